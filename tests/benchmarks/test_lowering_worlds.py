"""A step and a loss compile for a GPU, without one; their bounds are a little above what was counted, so that a change
that costs a GPU more is noticed.
"""

from __future__ import annotations

import math

import pytest

pytest.importorskip("triton", reason="needs Triton: pip install triton==3.7.1")

from kinds import MIND

from benchmarks import roofline
from benchmarks.roofline import lower_training, lower_world, small_experiment
from envs import ArenaEnv, TownEnv
from envs.arena.observation import MODES
from envs.town import LEVELS

pytestmark = pytest.mark.slow

WORLDS: dict[str, tuple[type, dict]] = {
    **{f"arena {observation}": (ArenaEnv, {"observation": observation}) for observation in MODES},
    **{f"town {level}": (TownEnv, {"level": level}) for level in LEVELS},
}
UPDATES = [
    [],
    ["algorithm.precision=bfloat16"],
    ["algorithm=a2c"],
    ["algorithm=impala"],
    ["algorithm=dqn", "algorithm.rollout_steps=8"],
    ["policy=cnn", "world.observation=heatmap"],
]
MOST = {
    "arena classic": (32, 9_400),  # its two observations are one region, which compiles sooner and fuses less
    "arena pixels": (115, 530_000),
    "arena heatmap": (80, 88_000),
    "town L3": (42, 5_900),
    "town L8": (95, 42_000),
}
"""Launches, and bytes per world and step."""


@pytest.mark.parametrize("name", WORLDS)
def test_a_step_compiles_for_a_gpu_and_asks_nothing(name):
    worlds = 1024
    make, options = WORLDS[name]
    part = lower_world(make(worlds, **options))
    launches, size = MOST.get(name, (150, math.inf))
    assert part.waits == 0
    assert 0 < part.registers <= 255
    assert 0 < part.launches <= launches
    assert 0 < part.bytes <= worlds * size


def test_the_arenas_update_is_few_launches_and_asks_nothing():
    ((update,), _) = lower_training(small_experiment("arena", [], 2048), names=("the update",))
    assert update.launches <= 38  # of which 14 are matrix products
    assert (update.waits, update.spills) == (0, 0)


@pytest.mark.parametrize("overrides", UPDATES, ids=" ".join)
def test_every_update_is_lowered_and_asks_nothing(overrides):
    names = ("the update", "the advantage function")
    *_, update = parts = lower_training(small_experiment("smoke", overrides), assemble=False, names=names)[0]
    assert update.name == "the update" and update.flops > 0
    assert all(part.waits == 0 for part in parts)


MEMORIES = {"gru": ("smoke", ["policy=gru"]), "lstm": ("smoke", ["policy=lstm"]), "mind": ("town_agent", MIND)}


@pytest.mark.parametrize("memory", MEMORIES)
def test_losses_over_sequences_compile_for_a_gpu_and_ask_nothing(memory, monkeypatch):
    monkeypatch.setattr(roofline, "MINIBATCH", 256)
    config, overrides = MEMORIES[memory]
    experiment = small_experiment(config, overrides)
    ((loss,), _) = lower_training(experiment, names=("the loss",))
    # forward and backward; the four-module agent remembers the others' steps besides its own
    assert loss.loop_steps == (4 if memory == "mind" else 2) * experiment.algorithm.rollout_steps
    assert loss.graphs == ["forward", "backward"]
    assert loss.waits == 0
    assert 0 < loss.registers <= 255
