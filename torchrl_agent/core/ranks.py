"""One training in several processes, which torchrun starts and calls ranks: each plays an equal share of the worlds,
and all learn as if one process played them all.

Sizes are those of the whole, random numbers are drawn for all worlds by generators that are in step, and what is
learned from (means, moments, gradients) is made of all ranks' frames. In one process every function here returns what
it was given. All of them can be compiled into the code that calls them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.utils._pytree import tree_map

from torchrl_agent.core.rendezvous import connected

Value = TypeVar("Value")
_size, _rank = 1, 0
_dealt = "rows"


def size() -> int:
    """How many ranks there are."""
    return _size


def rank() -> int:
    """The number of this one; the first, 0, writes the run."""
    return _rank


def share(count: int, name: str) -> int:
    """This rank's part of what there is in all.

    Raises:
        ValueError: there is no equal part.
    """
    if count % _size:
        raise ValueError(f"{name}={count} does not divide among {_size} processes: choose a multiple of {_size}.")
    return count // _size


def alone() -> AbstractContextManager[None]:
    """In here this rank does something by itself, as one process would."""
    return among(1, 0)


@contextmanager
def among(count: int, number: int) -> Iterator[None]:
    """In here this is the rank of this number of so many, whether or not they talk to each other."""
    global _size, _rank
    before = _size, _rank
    _size, _rank = count, number
    try:
        yield
    finally:
        _size, _rank = before


@contextmanager
def dealing(what: str) -> Iterator[None]:
    """In here ranks share not rows but ``members``, which draw at once, by ``torch.vmap``, or ``agents`` of each row,
    which lie along the next axis: see :func:`draw`.
    """
    global _dealt
    before, _dealt = _dealt, what
    try:
        yield
    finally:
        _dealt = before


@contextmanager
def started(timeout: float, cuda: bool = False) -> Iterator[None]:
    """Train together in here, where torchrun has started this process with others.

    An error of one rank ends all of them with one sentence that names the rank.

    Args:
        timeout: seconds that a rank waits for the others, their compilation included.
        cuda: the ranks learn on CUDA devices, each on its own.

    Raises:
        ValueError: the ranks do not find each other, or torch was built without what they talk by.
        TrainingError: another rank failed, or is lost.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1 or _size > 1 or "RANK" not in os.environ:
        yield
        return
    number = int(os.environ["RANK"])
    with connected(number, count, timeout, cuda), among(count, number):
        yield


# --- tensors -------------------------------------------------------------------------------------------------------


def draw(random: Callable[..., Tensor], shape: Sequence[int], device: torch.device, axis: int = 0) -> Tensor:
    """This rank's random numbers, those of its rows along an axis among the numbers of all ranks' rows.

    Args:
        random: ``torch.rand`` or ``torch.randn``.
        shape: of the numbers of this rank.
        device: where they are.
        axis: along which rows lie.
    """
    if _size == 1:
        return random(shape, device=device)
    if _dealt == "members":  # all of a rank's members draw here at once: so rank after rank
        return torch.stack([random(shape, device=device) for _ in range(_size)])[_rank]
    axis += _dealt == "agents"
    whole = [*shape[:axis], shape[axis] * _size, *shape[axis + 1 :]]
    return random(whole, device=device).narrow(axis, _rank * shape[axis], shape[axis])


def normal_like(value: Tensor) -> Tensor:
    """This rank's normal random numbers, of the shape and type of a tensor whose rows lie along its first axis."""
    if _size == 1:
        return torch.randn_like(value)
    return draw(torch.randn, value.shape, value.device).to(value.dtype)


def permutation(count: int, device: torch.device) -> Tensor:
    """A random order of so many places of this rank, which takes from the generator what an order of all ranks' places
    would.
    """
    if _size == 1:
        return torch.randperm(count, device=device)
    return torch.randperm(count * _size, device=device).chunk(_size)[_rank].argsort()


def mean(value: Tensor) -> Tensor:
    """Mean over the ranks, the same bits on each; has no gradient."""
    return value if _size == 1 else total(value.detach()) / _size


def total(value: Tensor) -> Tensor:
    """Sum over the ranks."""
    if _size == 1:
        return value
    result = value.clone()
    distributed.all_reduce(result)
    return result


def largest(value: Tensor) -> Tensor:
    """Largest value of any rank."""
    if _size == 1:
        return value
    result = value.clone()
    distributed.all_reduce(result, distributed.ReduceOp.MAX)
    return result


def all_true(value: Tensor) -> Tensor:
    """Whether it (bool []) is true on all ranks."""
    return value if _size == 1 else mean(value.double()) == 1


def moments(means: Tensor, variances: Tensor, count: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance and number of all ranks' samples, given those of each (Chan et al. 1983): an exact union, whatever
    the ranks' numbers.
    """
    if _size == 1:
        return means, variances, count
    means, variances, weight = means.double(), variances.double(), count / mean(count).clamp_min(1e-12)
    joint = mean(weight * means)
    return joint, mean(weight * (variances + (means - joint) ** 2)), mean(count) * _size


def means(values: Sequence[Tensor]) -> list[Tensor]:
    """Means over the ranks of many tensors, by one reduction of them all in a row."""
    if _size == 1:
        return list(values)
    row = mean(torch.cat([value.detach().reshape(-1).float() for value in values]))
    parts = row.split([value.numel() for value in values])
    return [part.view_as(value) for part, value in zip(parts, values, strict=True)]


def begin_alike(module: nn.Module) -> None:
    """Give every rank the first one's parameters and buffers."""
    if _size > 1:
        for value in module.state_dict().values():
            if not hasattr(value, "full_tensor"):  # what is in parts was alike before that
                distributed.broadcast(value, 0)


def hand_out(values: Iterable[Tensor], source: int) -> None:
    """Give every rank what these tensors are on one of them, in place, whatever their types."""
    if _size == 1:
        return
    for value in values:
        contents = value.detach().contiguous().reshape(-1).view(torch.uint8)
        distributed.broadcast(contents, source)
        value.detach().copy_(contents.view(value.dtype).view(value.shape))


def taken_rows(value: Tensor, places: Tensor) -> Tensor:
    """This rank's part of the rows at these places, int64 [P] on the CPU and the same on all ranks, of what all ranks'
    tensors [P / ranks, ...] are behind each other. Only rows travel that another rank wants.
    """
    if _size == 1:
        return value[places.to(value.device)]
    count = len(value)
    owner, wants = places // count, torch.arange(len(places)) // count
    taken = torch.empty_like(value)
    for source in range(_size):
        traveling = places[(owner == source) & (wants != source)].unique()
        rows = value[:0].new_empty(len(traveling), *value.shape[1:])
        if source == _rank:
            rows.copy_(value[(traveling - source * count).to(value.device)])
        if len(traveling):
            hand_out([rows], source)
        mine = ((owner == source) & (wants == _rank)).nonzero().flatten()
        found = (
            value[(places[mine] - source * count).to(value.device)]
            if source == _rank
            else (rows[torch.searchsorted(traveling, places[mine]).to(value.device)])
        )
        taken[(mine - _rank * count).to(value.device)] = found
    return taken


# --- values of any kind ----------------------------------------------------------------------------------------------


def first(function: Callable[[], Value]) -> Value:
    """What a function returns that only the first rank calls, by itself."""
    if _size == 1:
        return function()
    result: list[Any] = [None]
    if _rank == 0:
        with alone():
            result = [function()]
    distributed.broadcast_object_list(result, 0)
    return result[0]


def from_one(source: int, function: Callable[[], Value]) -> Value:
    """What a function returns that only one rank calls."""
    result: list[Any] = [function() if source == _rank else None]
    if _size > 1:
        distributed.broadcast_object_list(result, source)
    return result[0]


def highest(number: int) -> int:
    """The highest number that a rank gives."""
    return number if _size == 1 else int(largest(torch.tensor(int(number))))


def everyones(value: Value) -> list[Value]:
    """What each rank gives."""
    if _size == 1:
        return [value]
    result: list[Any] = [None] * _size
    distributed.all_gather_object(result, value)
    return result


def join_rows(values: Any, axis: int) -> Any:
    """Tensors, or dicts of them, of all ranks one behind the other along an axis, on the first rank's CPU; the others
    get their own back.
    """
    if _size == 1:
        return values
    mine = tree_map(Tensor.cpu, values)
    every: list[Any] | None = [None] * _size if _rank == 0 else None
    distributed.gather_object(mine, every)
    return mine if every is None else tree_map(lambda *rows: torch.cat(rows, axis), *every)


def own_rows(values: Any, axis: int) -> Any:
    """Of tensors, or dicts of them, with all ranks' rows along an axis those of this rank."""
    if _size == 1:
        return values
    return tree_map(lambda rows: rows.chunk(_size, axis)[_rank], values)
