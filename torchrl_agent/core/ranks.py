"""Data-parallel training in several processes (ranks), which torchrun starts: each collects from an equal part of the
worlds, and all learn as if one process collected from all of them.

Configured sizes are global, random numbers are drawn for all worlds by synchronized generators, and statistics of
learning (means, moments, gradients) are computed over all ranks' frames. In one process every function here returns
its input. All of them can be compiled into the code that calls them.

Size and rank are state of the process, as in ``torch.distributed``, not an object that is passed: one agent acts with
all ranks in a rollout and :func:`alone` in an evaluation, so an object kept by its distributions, modules and losses
would change with the context, too, and lengthen their signatures.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import torch
from tensordict.utils import expand_as_right
from torch import Tensor, distributed, nn
from torch.utils._pytree import tree_map

from torchrl_agent.core.rendezvous import connected

Value = TypeVar("Value")
LEAST_DEVIATION, LEAST_DEVIATION_OF_VALID = 1e-6, 1e-4
"""Least divisor of advantages, where all frames count and where only those of living agents do; as in TorchRL."""
_size, _rank = 1, 0
_dealt = "rows"


def size() -> int:
    """Return the number of ranks (the world size)."""
    return _size


def rank() -> int:
    """Return the number of this rank; the first, 0, writes the run."""
    return _rank


def share(count: int, name: str) -> int:
    """Return this rank's equal part of a global count.

    Raises:
        ValueError: the count does not divide by the number of ranks.
    """
    if count % _size:
        raise ValueError(f"{name}={count} does not divide among {_size} processes: choose a multiple of {_size}.")
    return count // _size


def alone() -> AbstractContextManager[None]:
    """Return a context in which this rank acts as a single process, without communication."""
    return among(1, 0)


@contextmanager
def among(count: int, number: int) -> Iterator[None]:
    """Context in which this is rank ``number`` of ``count``, whether or not they are connected."""
    global _size, _rank
    before = _size, _rank
    _size, _rank = count, number
    try:
        yield
    finally:
        _size, _rank = before


@contextmanager
def dealing(what: str) -> Iterator[None]:
    """Context in which not rows are split among ranks but ``members``, which draw at once, by ``torch.vmap``, or the
    ``agents`` of each row, which lie along the next axis: see :func:`draw`.
    """
    global _dealt
    before, _dealt = _dealt, what
    try:
        yield
    finally:
        _dealt = before


@contextmanager
def started(timeout: float, cuda: bool = False) -> Iterator[None]:
    """Context that connects the ranks, where torchrun has started this process with others.

    An error of one rank ends all of them with one sentence that names the rank.

    Args:
        timeout: seconds that a rank waits for the others, including their compilation.
        cuda: the ranks learn on CUDA devices, each on its own.

    Raises:
        ValueError: the ranks do not find each other, or torch was built without their communication backend.
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
    """Draw random numbers for all ranks' rows along an axis, and return those of this rank's rows.

    Args:
        random: ``torch.rand`` or ``torch.randn``.
        shape: shape of this rank's numbers.
        device: device of the numbers.
        axis: axis of the rows.
    """
    if _size == 1:
        return random(shape, device=device)
    if _dealt == "members":  # all of a rank's members draw here at once: so rank after rank
        return torch.stack([random(shape, device=device) for _ in range(_size)])[_rank]
    axis += _dealt == "agents"
    whole = [*shape[:axis], shape[axis] * _size, *shape[axis + 1 :]]
    return random(whole, device=device).narrow(axis, _rank * shape[axis], shape[axis])


def normal_like(value: Tensor) -> Tensor:
    """Draw this rank's normal random numbers, of the shape and type of a tensor whose rows lie along its first axis."""
    if _size == 1:
        return torch.randn_like(value)
    return draw(torch.randn, value.shape, value.device).to(value.dtype)


def permutation(count: int, device: torch.device) -> Tensor:
    """Draw a random permutation of ``count`` indices of this rank; the generator advances as for a permutation of all
    ranks' indices.
    """
    if _size == 1:
        return torch.randperm(count, device=device)
    return torch.randperm(count * _size, device=device).chunk(_size)[_rank].argsort()


def mean(value: Tensor) -> Tensor:
    """Return the mean over the ranks, bitwise equal on each; it has no gradient."""
    return value if _size == 1 else total(value.detach()) / _size


def total(value: Tensor) -> Tensor:
    """Return the sum over the ranks."""
    if _size == 1:
        return value
    result = value.clone()
    distributed.all_reduce(result)
    return result


def largest(value: Tensor) -> Tensor:
    """Return the elementwise maximum over the ranks."""
    if _size == 1:
        return value
    result = value.clone()
    distributed.all_reduce(result, distributed.ReduceOp.MAX)
    return result


def all_true(value: Tensor) -> Tensor:
    """True where ``value`` (bool []) is true on all ranks."""
    return value if _size == 1 else mean(value.double()) == 1


def moments(means: Tensor, variances: Tensor, count: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean, variance and number of all ranks' samples, given those of each (Chan et al. 1983): exact, whatever
    the numbers of samples.
    """
    if _size == 1:
        return means, variances, count
    means, variances, weight = means.double(), variances.double(), count / mean(count).clamp_min(1e-12)
    joint = mean(weight * means)
    return joint, mean(weight * (variances + (means - joint) ** 2)), mean(count) * _size


def masked_mean(values: Tensor, mask: Tensor | None) -> Tensor:
    """Mean of the values where the mask (bool; None for all) is true, 0 if it is nowhere; with several ranks, the part
    of this rank: the mean of all ranks' parts is the mean.
    """
    if mask is None:
        return values.mean()
    return torch.where(mask, values, 0.0).sum() / mean(mask.sum()).clamp_min(1 / _size)


def explained_variance(target: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Fraction of the targets' variance that the values explain, where the mask (bool, of the same shape) is true."""
    count, variances = mask.sum(), []
    for each in (target - values, target):
        center = torch.where(mask, each, 0.0).sum() / count.clamp_min(1)
        variance = torch.where(mask, (each - center) ** 2, 0.0).sum() / count.clamp_min(1)
        variances.append(moments(center, variance, count)[1])
    return 1 - variances[0] / variances[1].clamp_min(1e-8)


def normalized(advantage: Tensor, draws: Tensor, valid: Tensor | None = None) -> Tensor:
    """Advantages [frames or sequences, ...] with zero mean and unit standard deviation in each minibatch of all ranks;
    the deviation is that of a sample, of valid ones that of a population, as in TorchRL's ``ClipPPOLoss``.

    Args:
        advantage: advantages of this rank.
        draws: indices of this rank's part of each minibatch, [minibatches, size]; each index once.
        valid: mask of frames that count (those of living agents), bool, of the shape of ``advantage`` or with fewer
            dimensions; None for all.
    """
    drawn = advantage[draws].flatten(1)
    counts = torch.ones_like(advantage) if valid is None else expand_as_right(valid, advantage).to(advantage.dtype)
    counts = counts[draws].flatten(1)
    count = counts.sum(1)
    mean = (drawn * counts).sum(1) / count.clamp_min(1)
    variance = ((drawn - mean[:, None]).square() * counts).sum(1) / count.clamp_min(1)
    mean, variance, count = moments(mean, variance, count)
    if valid is None:
        deviation = (variance * count / (count - 1)).sqrt().clamp_min(LEAST_DEVIATION)
    else:
        deviation = variance.sqrt().clamp_min(LEAST_DEVIATION_OF_VALID)
    result = torch.empty_like(advantage)
    result[draws.flatten()] = ((drawn - mean[:, None]) / deviation[:, None]).float().view(-1, *advantage.shape[1:])
    return result


def means(values: Sequence[Tensor]) -> list[Tensor]:
    """Return the means over the ranks of many tensors, by one reduction of their concatenation."""
    if _size == 1:
        return list(values)
    row = mean(torch.cat([value.detach().reshape(-1).float() for value in values]))
    parts = row.split([value.numel() for value in values])
    return [part.view_as(value) for part, value in zip(parts, values, strict=True)]


def broadcast_state(module: nn.Module) -> None:
    """Broadcast the first rank's parameters and buffers to all ranks."""
    if _size > 1:
        for value in module.state_dict().values():
            if not hasattr(value, "full_tensor"):  # a sharded tensor was synchronized before it was sharded
                distributed.broadcast(value, 0)


def broadcast(values: Iterable[Tensor], source: int) -> None:
    """Broadcast these tensors from one rank to all, in place, whatever their types."""
    if _size == 1:
        return
    for value in values:
        contents = value.detach().contiguous().reshape(-1).view(torch.uint8)
        distributed.broadcast(contents, source)
        value.detach().copy_(contents.view(value.dtype).view(value.shape))


def fetch_rows(value: Tensor, places: Tensor) -> Tensor:
    """Return this rank's part of the rows at ``places``, int64 [P] on the CPU and the same on all ranks, of the
    concatenation of all ranks' tensors [P / ranks, ...]. Only rows that another rank needs are sent.
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
            broadcast([rows], source)
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
    """Call a function on the first rank alone, and return its result on all ranks."""

    def lone() -> Value:
        with alone():
            return function()

    return from_one(0, lone)


def from_one(source: int, function: Callable[[], Value]) -> Value:
    """Call a function on one rank, and return its result on all ranks."""
    result: list[Any] = [function() if source == _rank else None]
    if _size > 1:
        distributed.broadcast_object_list(result, source)
    return result[0]


def highest(number: int) -> int:
    """Return the maximum of all ranks' numbers."""
    return number if _size == 1 else int(largest(torch.tensor(int(number))))


def all_gather(value: Value) -> list[Value]:
    """Gather the values of all ranks, in their order."""
    if _size == 1:
        return [value]
    result: list[Any] = [None] * _size
    distributed.all_gather_object(result, value)
    return result


def gather_rows(values: Any, axis: int) -> Any:
    """Concatenate tensors, or dicts of them, of all ranks along an axis, on the first rank's CPU; the other ranks get
    their own back.
    """
    if _size == 1:
        return values
    mine = tree_map(Tensor.cpu, values)
    every: list[Any] | None = [None] * _size if _rank == 0 else None
    distributed.gather_object(mine, every)
    return mine if every is None else tree_map(lambda *rows: torch.cat(rows, axis), *every)


def own_rows(values: Any, axis: int) -> Any:
    """Return this rank's rows of tensors, or dicts of them, with all ranks' rows along an axis."""
    if _size == 1:
        return values
    return tree_map(lambda rows: rows.chunk(_size, axis)[_rank], values)
