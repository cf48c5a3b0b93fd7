"""Translations of operations that read and write by indices.

Each instruction walks its tensors by strides: to the offset of an element it adds index times stride, for every axis
that is indexed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torchrl_agent.export.program import Value, Writer

Walk = tuple[int, list[int]]
"""Offset and strides."""


def lines(shape: Sequence[int], axis: int) -> tuple[int, int, int]:
    """Return the numbers of entries before, along and after an axis."""
    axis %= max(1, len(shape))
    return math.prod(shape[:axis]), shape[axis] if shape else 1, math.prod(shape[axis + 1 :])


def strides_of(shape: Sequence[int]) -> list[int]:
    """Return the strides of a tensor that fills its memory in order."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


# --- reading ---------------------------------------------------------------------------------------------------------


def _take(
    writer: Writer, source: Value, base: list[int], indices: list[list[Any]], axes: list[int], like: Tensor
) -> Value:
    """Read ``source`` by strides ``base`` and, along each of ``axes``, by an index (read in the result's shape)."""
    strides = strides_of(source.shape)
    steps = [[strides[axis], source.shape[axis]] for axis in axes]
    return writer.emit("take", like, [source.reading(), *indices], base, steps)


def _gather(writer: Writer, arguments: Sequence[Any], options: dict, like: Tensor) -> Value:
    source, index = writer.whole(arguments[0]), writer.tensor(arguments[2], torch.int64)
    return _along_axis(writer, source, arguments[1] % max(1, like.ndim), index, like)


def _index_select(writer: Writer, arguments: Sequence[Any], options: dict, like: Tensor) -> Value:
    source, axis, index = writer.whole(arguments[0]), arguments[1], writer.tensor(arguments[2], torch.int64)
    axis %= max(1, like.ndim)
    place = index.place.reshape([-1 if place == axis else 1 for place in range(like.ndim)])
    return _along_axis(writer, source, axis, type(index)(index.slot, place), like)


def _along_axis(writer: Writer, source: Value, axis: int, index: Value, like: Tensor) -> Value:
    base = [0 if place == axis else stride for place, stride in enumerate(strides_of(source.shape))]
    return _take(writer, source, base, [index.reading(like.shape)], [axis], like)


def _topk(writer: Writer, arguments: Sequence[Any], options: dict, like: Any) -> list[Value]:
    count, axis, largest = (*arguments[1:], -1, True)[:3] if len(arguments) < 3 else (*arguments[1:], True)[:3]
    return _ranked(writer, writer.whole(arguments[0]), count, axis, options.get("largest", largest), like)


def _sort(writer: Writer, arguments: Sequence[Any], options: dict, like: Any) -> list[Value]:
    value = writer.whole(arguments[0])
    axis = options.get("dim", arguments[1] if len(arguments) > 1 else -1)
    falling = options.get("descending", arguments[2] if len(arguments) > 2 else False)
    return _ranked(writer, value, lines(value.shape, axis)[1], axis, falling, like)


def _ranked(writer: Writer, value: Value, count: int, axis: int, largest: bool, like: Any) -> list[Value]:
    """Return the first ``count`` values along an axis in order, and their indices."""
    place = writer.emit("rank", like[1], [value.reading()], *lines(value.shape, axis), count, bool(largest))
    return [_along_axis(writer, value, axis % max(1, value.place.ndim), place, like[0]), place]


def _index(writer: Writer, arguments: Sequence[Any], options: dict, like: Tensor) -> Value:
    source = writer.whole(arguments[0])
    base, indices, axes = _indexed(writer, source.shape, arguments[1], like.shape)
    return _take(writer, source, base, indices, axes, like)


def _indexed(
    writer: Writer, shape: Sequence[int], given: Sequence[Any], result: Sequence[int]
) -> tuple[list[int], list[list[Any]], list[int]]:
    """Return strides of the axes that are kept, readings of the indices in the shape of the result, and their axes.

    The common shape of the indices takes the place of their axes, or the front where these lie apart.
    """
    places = {axis: writer.tensor(part, torch.int64) for axis, part in enumerate(given) if part is not None}
    if any(part.dtype == torch.bool for part in places.values()):
        raise writer.refuse("a mask as an index")
    axes, strides = list(places), strides_of(shape)
    common = torch.broadcast_shapes(*(part.shape for part in places.values()))
    front = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    base = [stride for axis, stride in enumerate(strides) if axis not in places]
    base[front:front] = [0] * len(common)
    wide = [part.place.expand(*common) for part in places.values()]
    behind = [0] * (len(result) - front - len(common))
    walks = [[*[0] * front, *part.stride(), *behind] for part in wide]
    slots = zip(places.values(), wide, walks, strict=True)
    return base, [[part.slot, place.storage_offset(), walk] for part, place, walk in slots], axes


def _cat(writer: Writer, arguments: Sequence[Any], options: dict, like: Tensor) -> Value:
    axis = arguments[1] if len(arguments) > 1 else options.get("dim", 0)
    values = [writer.tensor(part, like.dtype) for part in arguments[0]]
    values = [value for value in values if value.place.numel()]
    before, _, after = lines(like.shape, axis)
    shapes = [list(value.shape) for value in values]
    widths = [shape[axis] * after for shape in shapes]
    return writer.emit("cat", like, [value.reading() for value in values], shapes, before, widths)


def _flip(writer: Writer, arguments: Sequence[Any], options: dict, like: Tensor) -> Value:
    value = writer.whole(arguments[0])
    strides, offset = strides_of(value.shape), 0
    for axis in arguments[1]:
        offset += strides[axis] * (value.shape[axis] - 1)
        strides[axis] = -strides[axis]
    return writer.emit("read", like, [[value.slot, offset, strides]])


def _repeat(writer: Writer, arguments: Sequence[Any], options: dict, like: Tensor) -> Value:
    value, times = writer.tensor(arguments[0], like.dtype), arguments[1]
    place = value.place.reshape((1,) * (len(times) - value.place.ndim) + tuple(value.shape))
    pairs = [size for pair in zip(times, place.shape, strict=True) for size in pair]
    for axis in range(len(times)):
        place = place.unsqueeze(2 * axis)
    wide = type(value)(value.slot, place.expand(pairs))
    found = writer.emit("read", torch.empty(pairs, dtype=like.dtype, device="meta"), [wide.reading()])
    return type(value)(found.slot, found.place.view(like.shape))


# --- writing ---------------------------------------------------------------------------------------------------------


def _put(
    writer: Writer,
    target: Any,
    source: Value,
    walk: Walk,
    like: Tensor,
    indices: Sequence[list[Any]] = (),
    axes: Sequence[int] = (),
    how: str = "set",
) -> Value:
    """Copy ``target`` and write ``source`` into it, by a walk and, along each of ``axes``, by an index."""
    strides, shape = strides_of(like.shape), list(source.shape)
    reads = [writer.tensor(target, like.dtype).reading(like.shape), source.reading(), *indices]
    steps = [[strides[axis], like.shape[axis]] for axis in axes]
    return writer.emit("put", like, reads, shape, *walk, steps, how)


def _scatter(writer: Writer, arguments: Sequence[Any], options: dict, like: Tensor) -> Value:
    target, axis, index, source, *more = arguments
    index, axis = writer.tensor(index, torch.int64), axis % max(1, like.ndim)
    new = writer.tensor(source, like.dtype)
    place = new.place.expand(index.shape) if isinstance(source, (int, float)) else new.place
    corner = type(new)(new.slot, place[tuple(slice(0, size) for size in index.shape)])
    walk = [0 if place == axis else stride for place, stride in enumerate(strides_of(like.shape))]
    how = more[0] if more else options.get("reduce", "set")
    return _put(writer, target, corner, (0, walk), like, [index.reading()], [axis], how)


def _index_put(writer: Writer, arguments: Sequence[Any], options: dict, like: Tensor) -> Value:
    target, given, source, accumulate = (*arguments, False)[:4]
    new = writer.tensor(source, like.dtype)
    where = [None if part is None else writer.tensor(part, torch.int64) for part in given]
    picked = [slice(None) if part is None else part.place.long() for part in where]
    shape = torch.empty(like.shape, device="meta")[tuple(picked)].shape
    base, indices, axes = _indexed(writer, like.shape, where, shape)
    wide = type(new)(new.slot, new.place.expand(shape))
    return _put(writer, target, wide, (0, base), like, indices, axes, "sum" if accumulate else "set")


def _into(view: Callable) -> Callable:
    """Write into a view: that of a tensor without memory says where."""

    def translated(writer: Writer, arguments: Sequence[Any], options: dict, like: Tensor) -> Value:
        target, source, *where = arguments
        part = view(torch.empty(like.shape, device="meta"), *where, **options)
        new = writer.tensor(source, like.dtype)
        wide = type(new)(new.slot, new.place.expand(part.shape))
        return _put(writer, target, wide, (part.storage_offset(), list(part.stride())), like)

    return translated


def _pad(writer: Writer, arguments: Sequence[Any], options: dict, like: Tensor) -> Value:
    value, pads, filling = (*arguments, 0.0)[:3]
    place, inner = value.place, torch.empty(like.shape, device="meta")
    for index in range(len(pads) // 2):
        axis, before, behind = -1 - index, pads[2 * index], pads[2 * index + 1]
        kept = place.shape[axis] + min(before, 0) + min(behind, 0)
        place, inner = place.narrow(axis, max(-before, 0), kept), inner.narrow(axis, max(before, 0), kept)
    walk = (inner.storage_offset(), list(inner.stride()))
    return _put(writer, filling, type(value)(value.slot, place), walk, like)


OPERATIONS: dict[str, Callable] = {
    "cat": _cat,
    "flip": _flip,
    "gather": _gather,
    "index": _index,
    "index_select": _index_select,
    "repeat": _repeat,
    "sort": _sort,
    "topk": _topk,
    "constant_pad_nd": _pad,
    "index_put": _index_put,
    "scatter": _scatter,
    "scatter_add": lambda writer, arguments, options, like: _scatter(writer, (*arguments, "sum"), options, like),
    "scatter_reduce": _scatter,
    "select_scatter": _into(torch.ops.aten.select.int),
    "slice_scatter": _into(torch.ops.aten.slice.Tensor),
}
