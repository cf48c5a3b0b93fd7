"""Functions on records: nested NamedTuples of tensors with the world axis last."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


def map_record(function: Callable, *records: Any) -> Any:
    """Apply ``function`` to the matching tensors of records (nested NamedTuples) and return such a record."""
    first = records[0]
    if isinstance(first, Tensor):
        return function(*records)
    return type(first)(*(map_record(function, *fields) for fields in zip(*records, strict=True)))


def every(kind: Any, value: Tensor) -> Any:
    """Return a record of a kind whose tensors are all the same one."""
    return kind(*[value] * len(kind._fields))


def row(world: int, *records: Any) -> list[Any]:
    """Return one world of each record as plain numbers (nested lists), by a single copy to the host."""
    values = [value[..., world] for record in records for _, value in named_tensors(record)]
    numbers = torch.cat([value.reshape(-1).double() for value in values]).cpu().split([each.numel() for each in values])
    pieces = zip(values, numbers, strict=True)
    plain = iter([piece.reshape(value.shape).to(value.dtype).tolist() for value, piece in pieces])
    return [filled(record, plain) for record in records]


def choose(worlds: Tensor, new: Any, old: Any) -> Any:
    """Select ``new`` in the ``worlds`` (bool [N]), ``old`` elsewhere, for every tensor of the records."""
    return map_record(lambda a, b: a if a is b else torch.where(worlds, a, b), new, old)


def write(target: Any, source: Any) -> None:
    """Copy every tensor of ``source`` into the memory of ``target``."""
    map_record(lambda a, b: a if a is b else a.copy_(b), target, source)


def named_tensors(record: Any, prefix: str = "") -> list[tuple[str, Tensor]]:
    """Return (dotted name, tensor) for every tensor of a record."""
    if isinstance(record, Tensor):
        return [(prefix, record)]
    start = prefix + "." if prefix else ""
    return [pair for name in record._fields for pair in named_tensors(getattr(record, name), start + name)]


def filled(record: Any, values: Iterable[Any]) -> Any:
    """Return a record like this one with other values, the next ones, in the order of :func:`named_tensors`."""
    values = iter(values)
    return map_record(lambda _: next(values), record)
