"""Learning-rate schedules, by hand."""

import math

import pytest
import torch

from torchrl_agent.optimization.schedules import AdaptiveRate, LearningRateConfig, check_schedule, learning_rate


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("constant", (1.0, 1.0, 1.0)),
        ("linear", (1.0, 0.55, 0.1)),
        ("exponential", (1.0, 0.1**0.5, 0.1)),
        ("cosine", (1.0, 0.55, 0.1)),
    ],
)
def test_each_schedule_goes_from_the_initial_to_the_final_rate(schedule, rates):
    config = LearningRateConfig(initial=1.0, final=0.1, schedule=schedule)
    assert [learning_rate(config, progress) for progress in (0.0, 0.5, 1.0)] == pytest.approx(rates)


def test_cosine_is_slow_at_both_ends():
    config = LearningRateConfig(initial=1.0, final=0.0, schedule="cosine")
    assert learning_rate(config, 1 / 3) == pytest.approx(0.75)  # (1 + cos 60°) / 2
    assert learning_rate(config, 2 / 3) == pytest.approx(0.25)


def test_progress_outside_the_training_is_its_nearer_end():
    config = LearningRateConfig(initial=1.0, final=0.5, schedule="linear")
    assert learning_rate(config, -0.2) == 1.0
    assert learning_rate(config, 1.7) == 0.5


def test_warmup_rises_linearly_to_the_schedule():
    config = LearningRateConfig(initial=1.0, final=0.0, schedule="linear", warmup=0.2)
    rates = [learning_rate(config, progress) for progress in (0.0, 0.1, 0.2, 0.6, 1.0)]
    assert rates == pytest.approx([0.0, 0.9 * 0.5, 0.8, 0.4, 0.0])


@pytest.mark.parametrize(
    ("wrong", "culprit"),
    [
        ({"schedule": "steps"}, "learning_rate.schedule"),
        ({"initial": 0.0}, "initial"),
        ({"initial": -1e-3}, "initial"),
        ({"final": -1e-3}, "final"),
        ({"schedule": "exponential", "final": 0.0}, "final"),
        ({"warmup": 1.0}, "warmup"),
        ({"warmup": -0.1}, "warmup"),
    ],
)
def test_impossible_schedules_are_refused_by_name(wrong, culprit):
    with pytest.raises(ValueError, match=culprit) as caught:
        check_schedule(LearningRateConfig(**wrong))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_a_final_rate_of_zero_is_possible(schedule):
    check_schedule(LearningRateConfig(schedule=schedule, final=0.0, warmup=0.5))


def test_an_adaptive_rate_follows_the_divergence_within_its_bounds():
    config = LearningRateConfig(initial=2e-5, schedule="adaptive")
    check_schedule(config)
    assert learning_rate(config, 0.7) == 2e-5
    rate = AdaptiveRate(2e-5, 0.01, torch.device("cpu"))
    moved = [rate.follow(torch.tensor(kl)).item() for kl in (0.021, 0.02, 0.01, 0.005, 0.0049, 0.1, 0.1, math.nan)]
    assert moved == pytest.approx([1 / 1.5, 1, 1, 1, 1.5, 1 / 1.5, 0.75, 1])  # the last fall ends at the bound
    assert rate.factor.item() == pytest.approx(0.5)
    for _ in range(20):
        rate.follow(torch.tensor(0.0))
    assert rate.factor.item() == pytest.approx(500.0)  # 0.01


def test_a_rate_that_begins_outside_of_its_bounds_is_refused():
    with pytest.raises(ValueError, match=r"moves between 1e-05 and 0\.01: let .*initial=0\.1 lie there"):
        check_schedule(LearningRateConfig(initial=0.1, schedule="adaptive"))
