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
LOSSES = [
    ["algorithm.precision=bfloat16"],
    ["algorithm=a2c"],
    ["algorithm=impala"],
    ["algorithm=dqn", "algorithm.rollout_steps=8"],
    ["policy=cnn", "world.observation=heatmap"],
]
MOST = {
    "arena classic": (32, 7_800),
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
    part = lower_world(make(worlds, **options), "the test")
    launches, size = MOST.get(name, (150, math.inf))
    assert part.waits == 0
    assert 0 < part.registers <= 255
    assert 0 < part.launches <= launches
    assert 0 < part.bytes <= worlds * size


NAMES = ("the loss", "the advantage function", "the reward scaler", "the n-step function")


def test_ppo_compiles_for_a_gpu_and_asks_nothing():
    parts, frames = lower_training(small_experiment("smoke", []), names=NAMES)
    assert frames > 0
    assert {part.name: part for part in parts}["the loss"].flops > 0
    assert all(part.waits == 0 and 0 < part.registers <= 255 for part in parts)


@pytest.mark.parametrize("overrides", LOSSES, ids=" ".join)
def test_every_loss_is_lowered_and_asks_nothing(overrides):
    parts, _ = lower_training(small_experiment("smoke", overrides), assemble=False, names=NAMES)
    assert len(parts) == 2
    loss = {part.name: part for part in parts}["the loss"]
    assert loss.graphs == ["forward", "backward"]
    assert loss.flops > 0
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
