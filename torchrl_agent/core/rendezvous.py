"""Rendezvous of ranks: they connect, fail together and disconnect; their collectives are in ``ranks``."""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
from torch import distributed

from torchrl_agent.core.errors import TrainingError

EXPLANATION_SECONDS = 15.0
"""Time for which a rank that lost another one looks for its error, and waits until all ranks have read it."""
_starts = itertools.count()


@contextmanager
def connected(number: int, count: int, timeout: float, cuda: bool) -> Iterator[None]:
    """Context in which ranks can communicate; an error of one ends all of them with one sentence that names it.

    Args:
        timeout: seconds that a rank waits for the others.
        cuda: each has a CUDA device of its own.

    Raises:
        ValueError: the ranks do not find each other, or this one lacks their communication backend.
        TrainingError: another rank failed, or is lost.
    """
    _check_talking(number, cuda)
    store = _meet(number, count, timeout)
    backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
    wait = timedelta(seconds=timeout)
    distributed.init_process_group(backend, store=store, rank=number, world_size=count, timeout=wait)
    try:
        yield
    except Exception as error:
        distributed.destroy_process_group()  # from here on ranks that wait for this one fail
        raise _ended(store, error, number, count) from error
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()


def _check_talking(number: int, cuda: bool) -> None:
    """Raise ValueError if this rank lacks a communication backend or device, before any other waits for it; on CUDA,
    set the device of its local rank.
    """
    for name in ("gloo", "nccl")[: 1 + cuda]:
        if not distributed.is_backend_available(name):
            raise ValueError(
                f"rank {number}: torch was built without {name}, by which ranks talk: install another build of torch, "
                "or train in one process."
            )
    if not cuda:
        return
    here = int(os.environ.get("LOCAL_RANK", number))
    if here >= torch.cuda.device_count():
        raise ValueError(
            f"rank {number}: there is no CUDA device for process {here} of this machine, which has "
            f"{torch.cuda.device_count()}: start as many processes as there are devices, or give device=cpu."
        )
    torch.cuda.set_device(here)


def _meet(number: int, count: int, timeout: float) -> distributed.Store:
    """Return a store that all ranks of this attempt have joined; the store of an earlier attempt, which torchrun keeps,
    still has the addresses of processes that died.
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
    for other in range(count):
        try:
            store.wait([f"here {other}"], wait)
        except RuntimeError:
            raise ValueError(
                f"rank {other} has not come within {timeout:g} s: see what it says, or give a larger run.rank_timeout."
            ) from None
    return store


def _ended(store: distributed.Store, error: Exception, number: int, count: int) -> Exception:
    """Return the error to raise in place of this one: that of the first rank to fail, once all ranks have read it."""
    lost = isinstance(error, distributed.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))
    known = isinstance(error, ValueError | TrainingError)
    sentence = str(error) if known else f"{type(error).__name__}: {error}"
    if not re.search(r"\brank \d", sentence):
        sentence = f"rank {number}: {sentence}"
    message, missing = "", set(range(count)) - {number}
    try:
        if not lost:
            store.compare_set("error", "", f"{number} {sentence}")
        if _come(store, ["error"]):
            message = store.get("error").decode()
        store.set(f"heard {number}", "")
        if not _come(store, [f"heard {other}" for other in missing]):
            missing = {other for other in missing if not store.check([f"heard {other}"])}
    except RuntimeError:  # the store is gone with the process that had it
        pass
    whose, _, first_words = message.partition(" ")
    if whose == str(number) and not known:
        return error
    if message:
        return (ValueError if isinstance(error, ValueError) else TrainingError)(first_words)
    names = ", ".join(map(str, sorted(missing))) or "another"
    return TrainingError(f"rank {names} is lost, or did not answer within run.rank_timeout: see what it says last.")


def _come(store: distributed.Store, names: list[str]) -> bool:
    """True if the store has these names within :data:`EXPLANATION_SECONDS`."""
    end = time.monotonic() + EXPLANATION_SECONDS
    while not store.check(names):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
