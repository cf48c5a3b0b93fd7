"""Everything that is compiled on a GPU compiles for one, without one: every world and observation, every loss.

Bounds are a few percent above what was counted, so that a change that costs a GPU more is noticed.
"""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="needs Triton: pip install triton==3.7.1")

from envs import ArenaEnv, TownEnv
from torchrl_agent.roofline import lower_training, lower_world, small_experiment

pytestmark = pytest.mark.slow

WORLDS = [
    (ArenaEnv, {}),
    (ArenaEnv, {"observation": "extended", "style": 2}),
    (ArenaEnv, {"observation": "dict"}),
    (ArenaEnv, {"observation": "pixels"}),
    (ArenaEnv, {"observation": "heatmap"}),
    *((TownEnv, {"level": f"L{number}"}) for number in range(9)),
    (TownEnv, {"level": "L6", "observation": "groups", "privileged": True, "potential": True}),
]
LOSSES = [
    ["algorithm=ppo"],
    ["algorithm=ppo", "ppo.precision=bfloat16"],
    ["algorithm=a2c"],
    ["algorithm=impala"],
    ["algorithm=dqn", "dqn.rollout_steps=8"],
    ["policy=cnn", "world.observation=heatmap"],
    ["policy=gru"],
    ["policy=lstm"],
]
MOST = {ArenaEnv: (80, 14_000), TownEnv: (140, 75_000)}
"""Launches, and bytes per world and step (pictures apart)."""


@pytest.mark.parametrize(("make", "options"), WORLDS, ids=lambda value: str(getattr(value, "__name__", value)))
def test_a_step_compiles_for_a_gpu_and_asks_nothing(make, options):
    worlds = 1024
    part = lower_world(make(worlds, **options), "the test")
    launches, size = MOST[make]
    assert part.waits == 0
    assert part.registers <= 255
    assert part.spills == 0
    if options.get("observation") not in ("pixels", "heatmap"):
        assert part.launches <= launches
        assert part.bytes <= worlds * size


@pytest.mark.parametrize("overrides", LOSSES, ids=" ".join)
def test_training_compiles_for_a_gpu_and_asks_nothing(overrides):
    names = ("the loss", "the advantage function", "the n-step function")
    parts, frames = lower_training(small_experiment("smoke", overrides), names=names)
    assert frames > 0
    assert len(parts) == 2
    by_name = {part.name: part for part in parts}
    assert by_name["the loss"].graphs == ["forward", "backward"]
    assert by_name["the loss"].flops > 0
    assert all(part.waits == 0 and part.registers <= 255 for part in parts)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_four_modules_compile_for_a_gpu(precision):
    overrides = [f"ppo.precision={precision}", "ppo.rollout_steps=16", "world.num_envs=16"]
    parts, _ = lower_training(small_experiment("town_agent", overrides))
    assert all(part.waits == 0 and part.registers <= 255 for part in parts)
