"""Geometry on hand-picked points."""

from __future__ import annotations

import math

import pytest
import torch

from envs.toolkit.geometry import (
    bearing,
    clamp_disc,
    look_up,
    nearest,
    relative_angle,
    squared_distance,
    total,
    wrapped,
)


def test_distances_and_clamping():
    assert squared_distance(torch.tensor([3.0]), torch.tensor([4.0])).item() == 25
    assert clamp_disc(torch.tensor([-5.0, 50.0, 99.0]), 10, 100).tolist() == [10, 50, 90]


@pytest.mark.parametrize(
    ("dx", "dy", "rotation", "expected"),
    [
        (1, 0, 0, 0.5),
        (0, 1, 0, 0.75),
        (0, -1, 0, 0.25),
        (1, 0, math.pi / 2, 0.25),
        (-1, 1e-6, 0, 1.0),
        (-1, -1e-6, 0, 0.0),
        (1, 0, 2 * math.pi - 0.1, 0.5 + 0.1 / (2 * math.pi)),
    ],
)
def test_relative_angles(dx, dy, rotation, expected):
    angle = relative_angle(torch.tensor(float(dx)), torch.tensor(float(dy)), torch.tensor(float(rotation)))
    assert abs(angle.item() - expected) < 1e-5


def test_bearings_are_those_of_atan2_up_to_whole_turns():
    x, y = torch.randn(2, 5000, generator=torch.Generator().manual_seed(0))
    turns = (bearing(x, y) - torch.atan2(y, x)) / (2 * math.pi)
    torch.testing.assert_close(turns, turns.round(), atol=1e-6, rtol=0)
    corners = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0], [0.0, -4.0], [0.0, 0.0], [-1.0, -1.0], [1e-30, 1e30]])
    angles = torch.tensor([0.0, 0.5, 1.0, -0.5, 0.0, 1.25, 0.5]) * math.pi
    torch.testing.assert_close(bearing(*corners.unbind(1)), angles)


@pytest.mark.parametrize("function", [bearing, lambda x, y: total(torch.stack((x, y, x * y, x - y, x / 3)))])
def test_a_number_gives_the_same_wherever_it_stands(function):
    x, y = torch.randn(2, 64, generator=torch.Generator().manual_seed(0))
    whole = function(x, y)
    for size in (1, 3, 7, 31):
        parts = [function(*part) for part in zip(x.split(size), y.split(size), strict=True)]
        assert torch.equal(torch.cat(parts), whole), size


def test_look_up_takes_the_last_entry_beyond_the_table():
    assert look_up(torch.tensor([0, 1, 2, 9]), (10.0, 20.0, 30.0)).tolist() == [10, 20, 30, 30]


def test_nearest_gives_rows_in_order_with_their_values_and_marks_missing_ones():
    squared = torch.tensor([[9.0, torch.inf], [1.0, 4.0], [4.0, torch.inf]])
    value = torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    first, second, third = nearest(squared, 3, value)
    assert [pair[0].tolist() for pair in (first, second, third)] == [[1, 4], [4, torch.inf], [9, torch.inf]]
    assert [pair[1][0].item() for pair in (first, second, third)] == [2, 3, 1]
    assert first[1][1].item() == 2


def test_of_equally_near_rows_the_first_comes_first():
    assert nearest(torch.tensor([[4.0], [4.0]]), 1, torch.tensor([[7.0], [8.0]]))[0][1].item() == 7


@pytest.mark.parametrize(
    ("value", "expected"), [(-3.0, 7.0), (0.0, 0.0), (4.0, 4.0), (9.5, 9.5), (10.0, 0.0), (19.0, 9.0)]
)
def test_wrapping_brings_a_value_into_the_range(value, expected):
    assert wrapped(torch.tensor(value), 10.0).item() == expected


def test_wrapping_never_reaches_the_upper_end():
    tiny = torch.tensor([-1e-9, -1e-7, -1e-12])
    assert (wrapped(tiny, 2 * math.pi) < 2 * math.pi).all()


def test_relative_angles_are_those_of_python_for_all_rotations():
    generator = torch.Generator().manual_seed(0)
    dx, dy = torch.randn(2, 500, generator=generator) * 300
    rotation = (torch.rand(500, generator=generator) * 1.5 - 0.5) * 2 * math.pi
    for x, y, turn, mine in zip(
        dx.tolist(), dy.tolist(), rotation.tolist(), relative_angle(dx, dy, rotation).tolist(), strict=True
    ):
        theirs = math.remainder(math.atan2(y, x) - turn, 2 * math.pi)
        assert abs(mine - (theirs + math.pi) / (2 * math.pi)) < 1e-5


def test_a_thing_at_no_distance_lies_at_bearing_zero():
    assert relative_angle(torch.zeros(1), torch.zeros(1), torch.zeros(1)).item() == 0.5


def test_look_up_works_for_actions_and_for_counts():
    assert look_up(torch.tensor([2.0, 0.0]), (1.0, 2.0, 3.0)).tolist() == [3, 1]
    assert look_up(torch.tensor([5]), (4.0,)).dtype == torch.float32
