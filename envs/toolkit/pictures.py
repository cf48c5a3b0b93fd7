"""The shapes of arrays that are pictures."""

from __future__ import annotations

from collections.abc import Sequence

LEAST_SIDE = 5
"""Least shorter side of a picture [pixels]; smaller arrays are vectors."""


def picture_axes(shape: Sequence[int], is_bytes: bool = False) -> tuple[int, ...] | None:
    """Return the order of an array's axes that makes it a picture with its channels first; None if it is not a picture.

    Three axes of which two are at least 5 long are a picture: the channels are the shorter one of the first and the
    last axis, the last if they are equal. Bytes of two axes are a gray picture, and of four a stack of pictures.
    """
    order = tuple(range(len(shape)))
    if len(shape) == 4 and is_bytes:
        inner = picture_axes(shape[1:])
        return None if inner is None else (0, *(axis + 1 for axis in inner))
    if len(shape) == 3:
        order = (2, 0, 1) if shape[2] <= shape[0] else (0, 1, 2)
    elif len(shape) != 2 or not is_bytes:
        return None
    return order if min(shape[axis] for axis in order[-2:]) >= LEAST_SIDE else None
