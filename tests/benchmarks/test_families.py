"""What the benchmark of families computes, by hand, and the whole of it in the smallest size."""

import json
import math

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.families import correlation, generations, gini, sign_test
from benchmarks.personality import slope
from torchrl_agent.population.evolution import EvolutionStep

SMALL = (
    "device=cpu",
    "threads=1",
    "world.num_envs=8",
    "world.rules.max_steps=4",
    "model.hidden_sizes=[8]",
    "algorithm.rollout_steps=4",
    "algorithm.minibatch_size=64",
    "algorithm.num_epochs=1",
    "population.members=4",
    "population.every=64",
    "population.least_episodes=1",
    "total_frames=256",
    *(f"acceleration.{part}=false" for part in ("step", "advantages", "update")),
)


def test_gini_by_hand():
    assert gini(torch.tensor([1.0, 1.0, 1.0])) == 0
    assert gini(torch.tensor([0.0, 0.0, 0.0, 8.0])) == pytest.approx(0.75)
    assert gini(torch.tensor([1.0, 3.0])) == pytest.approx(0.25)  # |1 - 3| twice, over 2 * 4 * 2
    assert gini(torch.zeros(3)) == 0


def test_the_sign_test_by_hand():
    assert sign_test([1.0] * 5) == pytest.approx(2 / 32)
    assert sign_test([-1.0] * 6 + [0.0]) == pytest.approx(2 / 64)
    assert sign_test([1, 1, 1, -1]) == pytest.approx(2 * 5 / 16)
    assert sign_test([1, -1]) == 1.0


def test_children_are_compared_with_the_mean_of_their_parents():
    fitness = torch.tensor([0.0, 1.0, 2.0, 3.0])
    parents = torch.tensor([[2, 3], [1, 1], [2, 2], [3, 3]])
    step = EvolutionStep(1, fitness, parents, {}, {})
    later = EvolutionStep(2, torch.tensor([8.0, 4.0, 4.0, 0.0]), parents, {}, {})
    deviation = math.sqrt(1.25)
    assert generations(step, later).tolist() == [pytest.approx([1 / deviation, 4 / math.sqrt(8)])]
    unknown = EvolutionStep(2, torch.tensor([math.nan, 4.0, 4.0, 0.0]), parents, {}, {})
    assert generations(step, unknown).shape == (0, 2)


def test_a_correlation_has_its_interval():
    pairs = torch.tensor([[0.0, 0.0], [1.0, 0.5], [2.0, 2.5], [3.0, 2.0], [4.0, 5.0]], dtype=torch.float64)
    found = correlation(pairs)
    assert found["r"] == pytest.approx(torch.corrcoef(pairs.T)[0, 1].item())
    half = 1.96 / math.sqrt(2)
    assert found["low"] == pytest.approx(math.tanh(math.atanh(found["r"]) - half))
    assert found["low"] < found["r"] < found["high"] < 1
    assert math.isnan(correlation(pairs[:3])["r"])


@pytest.mark.slow
def test_it_measures_from_the_command_line(capsys):
    words = ["families", "families", *SMALL, "--seeds", "0", "1", "--trait", "world.traits.curiosity", "--json"]
    assert main(words) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    found = json.loads(last)
    assert len(lines) == 3
    shift = found["shift"]
    expected = [a - b for a, b in zip(shift["world.traits.curiosity"], shift["neutral"], strict=True)]
    assert shift["difference"]["mean"] == pytest.approx(sum(expected) / 2)
    assert any(expected)
    assert found["heritability"]["pairs"] == 2 * 2 * 3, "two children at each step but the last, of two populations"
    assert all(0 <= value < 1 for name in ("with", "without") for value in found["gini"][name])
    assert found["gini"]["with"] != found["gini"]["without"]


def test_without_wealth_there_is_one_population_per_seed(capsys):
    assert main(["families", "families", *SMALL, "--seeds", "0", "--wealth", "0", "--json"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    gini = json.loads(last)["gini"]
    assert len(lines) == 2
    assert (len(gini["without"]), gini["with"], gini["difference"]) == (1, [], None)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["smoke"], "configuration smoke has no families: set population.evolve=genetic"),
        (["families", *SMALL, "--trait", "wit"], "lacks the gene wit, which this measures"),
        (["families", *SMALL, "world.drives=false", "character.scale=0", "--wealth", "0"], "lacks the statistic money"),
        (["families", *SMALL, "total_frames=96"], "ends before a second evolution step: give a larger total_frames="),
    ],
)
def test_what_cannot_be_measured(capsys, words, sentence):
    assert main(["families", *words, "--seeds", "0"]) == 2
    assert sentence in capsys.readouterr().err


def test_slopes_are_changes_of_a_share_from_trait_0_to_1():
    rows = torch.tensor([[0.0, 0.1, 0.5], [1.0, 0.3, 0.5], [0.5, 0.2, 0.5]])
    assert slope(rows).tolist() == pytest.approx([0.2, 0.0])
    bent = torch.tensor([[0.0, 0.0], [0.5, 0.6], [1.0, 0.6]])  # (-0.5 * -0.4 + 0.5 * 0.2) / 0.5
    assert slope(bent).tolist() == pytest.approx([0.6])


@pytest.mark.slow
def test_personality_is_measured_and_drawn_from_the_command_line(tmp_path, capsys):
    words = ["personality", "families", *SMALL, "--seeds", "0", "1", "--json"]
    assert main([*words, "--pictures", str(tmp_path)]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    found = json.loads(last)
    assert len(lines) == len(found["actions"]) + 2
    for members in found["members"]:
        assert len(members) == 4
        for trait, *of_actions in members:
            assert 0 <= trait <= 1 and sum(of_actions) == pytest.approx(1.0)
    for kind in ("without", "with"):
        assert [len(each) for each in found["wealth"][kind]["gini"]] == [4, 4]  # generations of two seeds
    assert sorted(path.name for path in tmp_path.iterdir()) == ["families_actions.png", "families_wealth.png"]
