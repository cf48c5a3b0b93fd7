"""Static networks beside grown ones, with operations counted by hand."""

import torch
from growing import TAPS8, small

from benchmarks.growth_static import NONE, grow, train_static
from envs.growth.scripted import Planting, SchedulePlayer, WaitingPlayer

PER_STEP = 4 * (8 * (8 * 4 + 2 * 4 * 4) + 4 * 8)
"""Multiplications of a host: four rows of eight positions with eight features, two layers of four, eight classes."""
MODULE = 4 * 8 * 4 * 4 * 8
"""Those of ``taps8``: three products from four features to eight units and one back."""


def test_a_static_network_without_modules_is_a_host_that_waits():
    env = small(3, seed=5)
    waits = grow(env, WaitingPlayer(env), env)
    none = torch.full((2, 3), NONE)
    static, again, other = (train_static(small(3, seed=seed), none, seed) for seed in (5, 5, 6))
    assert torch.equal(static.parameters, waits.parameters)
    assert static.operations.tolist() == waits.operations.tolist() == [40 * PER_STEP] * 3
    assert torch.equal(static.accuracy, again.accuracy) and not torch.equal(static.accuracy, other.accuracy)


def test_a_static_network_uses_no_more_operations_than_the_grown_one():
    env = small(2)
    grown = grow(env, SchedulePlayer(env, [Planting(0, 20)]), env)
    assert grown.blueprints.tolist() == [[TAPS8] * 2, [NONE] * 2]
    assert grown.operations.tolist() == [40 * PER_STEP + 19 * MODULE] * 2  # from the step after germination on
    static = train_static(small(2), grown.blueprints, 0, grown.operations)
    assert torch.equal(static.parameters, grown.parameters)
    assert (static.operations - grown.operations).abs().max() <= (PER_STEP + MODULE) / 2
