"""Plane geometry and small table look-ups on world-axis-last tensors; independent of any game."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

TAU = 2.0 * math.pi


def squared_distance(dx: Tensor, dy: Tensor) -> Tensor:
    """Squared length of (dx, dy)."""
    return dx * dx + dy * dy


def clamp_disc(position: Tensor, radius: float, size: float) -> Tensor:
    """Clamp ``position`` so that a disc of ``radius`` lies inside [0, ``size``]."""
    return position.clamp(radius, size - radius)


def bearing(dx: Tensor, dy: Tensor) -> Tensor:
    """Direction of (dx, dy) [rad] in [-pi / 2, 3 / 2 pi]: 0 along x, pi / 2 along y; 0 for the zero vector.

    Not ``torch.atan2``, whose last bit on a CPU depends on a number's place in the tensor, and so on ``num_envs``.
    """
    # 1e-30 makes the zero vector's angle 0; dx < 0 is the half plane that atan does not reach
    return torch.add(torch.atan(dy / (dx + 1e-30)), dx < 0, alpha=math.pi)


def total(rows: Tensor) -> Tensor:
    """Sum over the first axis, one row after the other.

    ``sum`` adds in an order that on a CPU depends on the number of worlds, and so does the last bit of its result for
    numbers that are not integers.
    """
    return functools.reduce(torch.add, rows.unbind(0))


def relative_angle(dx: Tensor, dy: Tensor, rotation: Tensor) -> Tensor:
    """Bearing of (dx, dy) seen from ``rotation`` [rad], wrapped to [-pi, pi] and scaled to [0, 1]; 0.5 is straight
    ahead.
    """
    angle = bearing(dx, dy) - rotation
    wrapped = angle - TAU * torch.floor((angle + math.pi) / TAU)
    return ((wrapped + math.pi) / TAU).clamp(0.0, 1.0)


def look_up(index: Tensor, table: Sequence[float]) -> Tensor:
    """Return ``table[index]`` as float32; an index beyond the table takes its last entry. A chain of selects, so it
    fuses and never synchronizes.
    """
    result = torch.full_like(index, table[-1], dtype=torch.float32)
    for position, value in enumerate(table[:-1]):
        result = torch.where(index == position, value, result)
    return result


def nearest(squared: Tensor, count: int, *values: Tensor) -> list[tuple[Tensor, ...]]:
    """Return the ``count`` smallest of ``squared`` [K, ...] in order, each as (squared distance, *its row of every
    value), all [...].

    Missing rows are marked by an infinite distance in ``squared`` and stay infinite. Rounds of "minimum, take, mask
    out": on the first axis this is much faster than ``topk``. Of equal distances the lower row comes first.
    """
    rows = torch.arange(len(squared), device=squared.device).reshape(-1, *[1] * (squared.ndim - 1))
    result = []
    for _ in range(count):
        index = squared.argmin(0, keepdim=True)
        chosen = rows == index
        result.append((squared.amin(0), *((value * chosen).sum(0) for value in values)))
        squared = torch.where(chosen, torch.inf, squared)
    return result


def wrapped(value: Tensor, size: float) -> Tensor:
    """Wrap ``value`` in (-size, 2 size) into [0, size); unlike ``torch.remainder`` this vectorizes on a CPU."""
    value = torch.where(value < 0, value + size, value)
    return torch.where(value >= size, value - size, value)
