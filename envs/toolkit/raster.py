"""Soft shapes stamped onto batches of small pictures, without a loop over pictures or shapes; independent of any game.

A shape touches only the few pixels around it, so only those are computed. Where shapes overlap the maximum is kept,
channel by channel: this does not depend on the order, so pictures are the same on every device, and no pixel exceeds
the brightest light.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

Color: TypeAlias = tuple[float, float, float]
"""Red, green, blue, 0 to 1."""


class Patches(NamedTuple):
    """Pixels around K points in each of N pictures, P pixels for each point."""

    index: Tensor
    """Index of the pixel, row by row, int64 [N, K, P]."""
    dx: Tensor
    """Pixel's center minus point, in pixels, float32 [N, K, P]."""
    dy: Tensor


class Stamp(NamedTuple):
    """Light to be put on N pictures: E pixels in C channels; a pixel may occur several times."""

    index: Tensor
    """Index of the pixel, row by row, int64 [N, E]."""
    light: Tensor
    """Light at the pixel, float32 [N, C, E]."""


def around(x: Tensor, y: Tensor, reach: tuple[float, float], size: tuple[int, int]) -> Patches:
    """Return every pixel whose center lies within ``reach`` (x, y) [pixels] of a point, and a few more.

    Args:
        x: points, [K, N], in pixels from the left edge.
        y: points, [K, N], in pixels from the upper edge.
        reach: half the width and height of a patch.
        size: rows and columns of the pictures. A patch is moved to lie inside them, so points beyond an edge keep
            the pixels that they still reach.
    """
    rows, columns = (min(math.ceil(2 * half), side) for half, side in zip(reversed(reach), size, strict=True))
    x, y = x.T.unsqueeze(-1), y.T.unsqueeze(-1)
    left = torch.floor(x - (columns - 1) / 2).clamp(0, size[1] - columns)
    top = torch.floor(y - (rows - 1) / 2).clamp(0, size[0] - rows)
    index = torch.arange(rows * columns, device=x.device)
    column, row = left + index % columns, top + index // columns
    return Patches((row * size[1] + column).long(), column + 0.5 - x, row + 0.5 - y)


def disc(patches: Patches, radius: float) -> Tensor:
    """Fraction of each pixel that a disc around the point covers, [N, K, P]; the edge is one pixel wide and soft."""
    return (radius + 0.5 - _length(patches.dx, patches.dy)).clamp(0, 1)


def capsule(patches: Patches, x: Tensor, y: Tensor, radius: float) -> Tensor:
    """Fraction of each pixel, as :func:`disc`, covered by a line of half width ``radius`` from the point to the point
    plus (x, y), [K, N] [pixels].
    """
    x, y = x.T.unsqueeze(-1), y.T.unsqueeze(-1)
    along = ((patches.dx * x + patches.dy * y) / (x * x + y * y).clamp_min(1e-6)).clamp(0, 1)
    return (radius + 0.5 - _length(patches.dx - along * x, patches.dy - along * y)).clamp(0, 1)


def box(patches: Patches, left: Tensor | float, right: Tensor | float, half_height: float) -> Tensor:
    """Fraction of each pixel, [N, K, P], that a rectangle covers: from ``left`` to ``right`` of the point (numbers or
    [K, N]) and ``half_height`` above and below it.
    """
    left, right = (side.T.unsqueeze(-1) if isinstance(side, Tensor) else side for side in (left, right))
    return overlap(patches.dx, left, right) * overlap(patches.dy, -half_height, half_height)


def overlap(center: Tensor, start: Tensor | float, end: Tensor | float) -> Tensor:
    """Length that the unit interval around ``center`` shares with the interval from ``start`` to ``end``."""
    return ((center + 0.5).clamp(max=end) - (center - 0.5).clamp(min=start)).clamp_min(0)


def colored(patches: Patches, cover: Tensor, brightness: Tensor, color: Color) -> Stamp:
    """Make a stamp of one color from the covered fraction of pixels ``cover`` [N, K, P]; ``brightness`` [K, N] is from
    0 (absent) to 1.
    """
    light = (cover * brightness.T.unsqueeze(-1)).flatten(1)
    return Stamp(patches.index.flatten(1), torch.stack([light * share for share in color], 1))


def put(pictures: Tensor, stamps: list[Stamp]) -> Tensor:
    """Return pictures [N, C, H, W] with the stamps applied, in memory of their own."""
    index = torch.cat([stamp.index for stamp in stamps], 1)
    light = torch.cat([stamp.light for stamp in stamps], 2)
    index = index.unsqueeze(1).expand_as(light)
    return pictures.flatten(2).scatter_reduce(2, index, light, "amax").view_as(pictures)


def _length(dx: Tensor, dy: Tensor) -> Tensor:
    return torch.sqrt(dx * dx + dy * dy)
