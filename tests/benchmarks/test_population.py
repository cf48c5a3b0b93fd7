"""What the benchmarks of populations measure, in the smallest size."""

import pytest

from benchmarks.__main__ import main
from benchmarks.evolution import measure_evolution
from benchmarks.population import measure_speed

SMALL = (
    "device=cpu",
    "world.num_envs=32",
    "algorithm.rollout_steps=4",
    "algorithm.minibatch_size=64",
    "world.rules={max_steps: 12}",
)
PBT = (
    "population.members=4",
    "population.evolve=pbt",
    "population.every=256",
    "population.least_episodes=1",
    "population.margin=0",
    "total_frames=512",
    "+population.genes={algorithm.entropy_coeff: {low: 1e-4, high: 0.1}}",
)


def test_one_program_and_runs_one_after_another_make_the_same_frames():
    found = measure_speed("smoke", SMALL, members=2)
    rates = found["frames_per_second"]
    assert found["times_as_fast"] == pytest.approx(rates["together"] / rates["alone"], rel=0.01)
    assert len(found["of_each_round"]) == 5
    assert min(found["of_each_round"]) > 0
    assert found["ran"] == {"rollout": "eager", "update": "eager"}


@pytest.mark.slow
def test_evolution_is_paired_with_the_same_population_that_does_not_evolve():
    found = measure_evolution("smoke", (*SMALL, *PBT), seeds=[0, 1], episodes=2)
    for what in ("best", "median"):
        pairs = list(zip(found[what]["evolved"], found[what]["random search"], strict=True))
        assert len(pairs) == 2
        assert found[what]["difference"]["mean"] == pytest.approx(sum(a - b for a, b in pairs) / 2)
    assert all(a >= b for a, b in zip(found["best"]["evolved"], found["median"]["evolved"], strict=True))
    never = measure_evolution("smoke", (*SMALL, *PBT, "population.warmup=512"), seeds=[0, 1], episodes=2)
    assert never["best"]["random search"] == found["best"]["random search"], "it does not depend on evolution's keys"


def test_what_cannot_be_measured_is_refused(capsys):
    assert main(["population", "smoke", "--members", "1"]) == 2
    assert "--members is 1" in capsys.readouterr().err
    assert main(["evolution", "smoke", "--seeds", "0"]) == 2
    assert "no population that evolves" in capsys.readouterr().err
