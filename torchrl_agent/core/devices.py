"""Devices that configurations name, and checks that tensors fit into their memory."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


def resolve_device(name: str) -> torch.device:
    """Return the device named by ``auto``, ``cpu``, ``cuda`` or ``cuda:N``, if this machine has it."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device {name!r} is unknown: use auto, cpu, cuda or cuda:N.") from None
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        raise ValueError(f"device {name!r} was asked for but is not there: use device=cpu or device=auto.")
    return device


def use_device(name: str) -> torch.device:
    """Return :func:`resolve_device` and make it the current CUDA device, which streams, graphs and kernels use by
    default; matrix products may use TensorFloat-32 there.
    """
    device = resolve_device(name)
    torch.set_float32_matmul_precision("high")
    if device.index is not None and device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def forked_random(device: torch.device | None) -> AbstractContextManager[None]:
    """Return a context that restores the states of the random generators of the CPU and of this device at its end."""
    return torch.random.fork_rng([device] if device is not None and device.type == "cuda" else [])


# --- capacity --------------------------------------------------------------------------------------------------------

_FACTORIES = ("empty", "zeros", "ones", "full", "rand", "randn", "randperm", "arange")
"""Operations that allocate a tensor whose size is their first argument."""


def size_limit(what: str, fix: str, device: torch.device) -> AbstractContextManager:
    """Return a :class:`SizeLimit` on a CPU; other devices' allocators raise by themselves and end no process."""
    return SizeLimit(what, fix) if device.type == "cpu" else nullcontext()


class SizeLimit(TorchDispatchMode):
    """Context that refuses to allocate a tensor larger than the device's free memory.

    Args:
        what: name of the object being made.
        fix: settings that make it smaller.

    Raises:
        ValueError: a tensor would be larger; the sentence names its size.
    """

    def __init__(self, what: str, fix: str) -> None:
        super().__init__()
        self.what, self.fix = what, fix

    def __torch_dispatch__(
        self, func: Callable, types: Sequence[type], args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.__name__.split(".")[0]
        if name == "clone":  # also materializes an expanded tensor
            check_room(args[0].numel() * args[0].itemsize, args[0].device, self.what, self.fix)
        elif name in _FACTORIES:
            size = args[0] if isinstance(args[0], (list, tuple)) else args[:1]
            bytes_each = (kwargs.get("dtype") or torch.get_default_dtype()).itemsize
            device = torch.device(kwargs.get("device") or "cpu")
            check_room(math.prod(size) * bytes_each, device, self.what, self.fix)
        return func(*args, **kwargs)


class Moment:
    """The moment when a device has done all that was submitted to it so far.

    Args:
        device: a GPU, which may come to it later; on others it is now.
    """

    def __init__(self, device: torch.device) -> None:
        self._now, self._event = time.perf_counter(), None
        if device.type == "cuda":
            self._event = torch.cuda.Event(enable_timing=True)
            self._event.record(torch.cuda.current_stream(device))

    def until(self, later: Moment) -> float:
        """Return the seconds until a later moment, after which it is."""
        if self._event is None or later._event is None:
            return later._now - self._now
        if not later._event.query():
            later._event.synchronize()
        return self._event.elapsed_time(later._event) / 1000


def check_room(needed: int, device: torch.device, what: str, fix: str) -> None:
    """Raise ValueError if ``needed`` bytes are more than a device has free."""
    free = free_memory(device)
    if free is not None and needed > free:
        raise ValueError(
            f"{what} would need at least {needed / 2**30:,.1f} GiB, but {device} has {free / 2**30:,.1f} free: give a "
            f"smaller {fix}."
        )


def free_memory(device: torch.device) -> int | None:
    """Return the free bytes of a device's memory (the total where only that is known); None where neither is known."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # cached by PyTorch, for reuse
        return torch.cuda.mem_get_info(device)[0] + kept
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines())
        return int(lines["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError):  # not Linux
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on Windows
        return None
