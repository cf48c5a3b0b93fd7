"""One training in several processes, which torchrun starts and calls ranks: each plays an equal share of the worlds,
and all learn as if one process played them all.

Sizes are those of the whole, random numbers are drawn for all worlds by generators that are in step, and what is learnt
from (means, moments, gradients) is made of all ranks' frames. In one process every function here returns what it was
given. All of them can be compiled into the code that calls them.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.utils._pytree import tree_map

from torchrl_agent.errors import TrainingError
from torchrl_agent.shared_memory import LostError, SharedMean, share_mean

Value = TypeVar("Value")
EXPLANATION_SECONDS = 5.0
"""How long a rank that lost another one looks for what that one had to say, and waits until all have heard it."""
_size, _rank = 1, 0
_dealt = "rows"
_timeout = 0.0
_shared: dict[int, SharedMean | None] = {}
"""Means of rows, by their length."""
_starts = itertools.count()


def size() -> int:
    """How many ranks there are."""
    return _size


def rank() -> int:
    """The number of this one; the first, 0, keeps the books."""
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
    """In here this rank has its part of what only so many share, who have nothing to say to each other."""
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
    if _size == 1:
        return value
    total = value.detach().clone()
    distributed.all_reduce(total)
    return total / _size


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
    row = _mean_of_rows(torch.cat([value.detach().reshape(-1).float() for value in values]))
    parts = row.split([value.numel() for value in values])
    return [part.view_as(value) for part, value in zip(parts, values, strict=True)]


def _mean_of_rows(row: Tensor) -> Tensor:
    """Mean over the ranks (float32 [length]), by the memory that they share where they do."""
    if row.device.type != "cpu":
        return mean(row)
    length = len(row)
    if length not in _shared:
        _shared[length] = share_mean(everyones, _rank, length, _timeout)
    shared = _shared[length]
    return mean(row) if shared is None else shared(row)


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
        travelling = places[(owner == source) & (wants != source)].unique()
        rows = value[:0].new_empty(len(travelling), *value.shape[1:])
        if source == _rank:
            rows.copy_(value[(travelling - source * count).to(value.device)])
        if len(travelling):
            hand_out([rows], source)
        mine = ((owner == source) & (wants == _rank)).nonzero().flatten()
        found = (
            value[(places[mine] - source * count).to(value.device)]
            if source == _rank
            else (rows[torch.searchsorted(travelling, places[mine]).to(value.device)])
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


def check_alike(facts: dict[str, str]) -> None:
    """Raise ValueError naming the first rank that differs from the first one in a fact, and in which."""
    everyone = everyones(facts)
    for number, theirs in enumerate(everyone):
        for name, value in everyone[0].items():
            if theirs[name] != value:
                raise ValueError(
                    f"rank {number} has another {name} ({theirs[name]}) than rank 0 ({value}): start all ranks with "
                    "the same command and the same code."
                )


# --- beginning and end -----------------------------------------------------------------------------------------------


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
    global _size, _rank, _timeout
    wanted = int(os.environ.get("WORLD_SIZE", "1"))
    if wanted == 1 or _size > 1 or "RANK" not in os.environ:
        yield
        return
    number = int(os.environ["RANK"])
    store = _meet(number, wanted, timeout)
    _connect(store, number, wanted, timeout, cuda)
    _size, _rank, _timeout = wanted, number, timeout
    try:
        yield
    except Exception as error:
        raise _ended(store, error) from error
    finally:
        _size, _rank = 1, 0
        _leave()
        if distributed.is_initialized():
            distributed.destroy_process_group()


def _meet(number: int, wanted: int, timeout: float) -> distributed.Store:
    """A store that all ranks of this attempt have come to; that of an earlier attempt, which torchrun keeps, still has
    the addresses of processes that died.
    """
    address, port = os.environ.get("MASTER_ADDR", "localhost"), int(os.environ.get("MASTER_PORT", "29500"))
    hosted = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    wait = timedelta(seconds=timeout)
    try:
        server = distributed.TCPStore(address, port, None, number == 0 and not hosted, wait, wait_for_workers=False)
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0][:200]
        raise ValueError(
            f"rank {number}: {address}:{port}, where the ranks meet, cannot be used ({reason}): let torchrun choose it "
            "(--standalone), or give another port."
        ) from None
    attempt = f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}, start {next(_starts)}"
    store = distributed.PrefixStore(attempt, server)
    store.set(f"here {number}", "")
    for other in range(wanted):
        try:
            store.wait([f"here {other}"], wait)
        except RuntimeError:
            raise ValueError(
                f"rank {other} has not come within {timeout:g} s: see what it says, or give a larger run.rank_timeout."
            ) from None
    return store


def _connect(store: distributed.Store, number: int, wanted: int, timeout: float, cuda: bool) -> None:
    """Let ranks talk to each other from here on; on CUDA each has the device of its number on its machine."""
    for name in ("gloo", "nccl")[: 1 + cuda]:
        if not distributed.is_backend_available(name):
            raise ValueError(
                f"rank {number}: torch was built without {name}, by which ranks talk: install another build of torch, "
                "or train in one process."
            )
    if cuda:
        here = int(os.environ.get("LOCAL_RANK", number))
        if here >= torch.cuda.device_count():
            raise ValueError(
                f"rank {number}: there is no CUDA device for process {here} of this machine, which has "
                f"{torch.cuda.device_count()}: start as many processes as there are devices, or give device=cpu."
            )
        torch.cuda.set_device(here)
    backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
    distributed.init_process_group(
        backend, store=store, rank=number, world_size=wanted, timeout=timedelta(seconds=timeout)
    )


def _ended(store: distributed.Store, error: Exception) -> Exception:
    """The error to raise in place of this one: what the first rank to fail had to say, which all have heard then."""
    number, count = _rank, _size
    lost = isinstance(error, LostError | distributed.DistError) or (
        isinstance(error, RuntimeError) and "gloo" in str(error)
    )
    known = isinstance(error, ValueError | TrainingError)
    sentence = str(error) if known else f"{type(error).__name__}: {error}"
    if not re.search(r"\brank \d", sentence):
        sentence = f"rank {number}: {sentence}"
    _leave()
    distributed.destroy_process_group()  # who waits for this rank waits in vain from here on
    told, silent = "", set(range(count)) - {number}
    try:
        if not lost:
            store.compare_set("error", "", f"{number} {sentence}")
        if _come(store, ["error"]):
            told = store.get("error").decode()
        store.set(f"heard {number}", "")
        if not _come(store, [f"heard {other}" for other in silent]):
            silent = {other for other in silent if not store.check([f"heard {other}"])}
    except RuntimeError:  # the store is gone with the process that had it
        pass
    whose, _, first_words = told.partition(" ")
    if whose == str(number) and not known:
        return error
    if told:
        return (ValueError if isinstance(error, ValueError) else TrainingError)(first_words)
    names = ", ".join(map(str, sorted(silent))) or "another"
    return TrainingError(f"rank {names} is lost, or did not answer within run.rank_timeout: see what it says last.")


def _leave() -> None:
    """Let who waits for this rank in shared memory know that it does so in vain."""
    for shared in _shared.values():
        if shared is not None:
            shared.leave()
    _shared.clear()


def _come(store: distributed.Store, names: list[str]) -> bool:
    """Whether the store has these within :data:`EXPLANATION_SECONDS`."""
    end = time.monotonic() + EXPLANATION_SECONDS
    while not store.check(names):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
