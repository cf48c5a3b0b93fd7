"""The device that a configuration means."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch


def resolve_device(name: str) -> torch.device:
    """The device meant by ``auto``, ``cpu``, ``cuda`` or ``cuda:N``, if this machine has it."""
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
    """:func:`resolve_device`, made the one that CUDA's streams, graphs and kernels mean when they name none; matrix
    products may use TensorFloat-32 there.
    """
    device = resolve_device(name)
    torch.set_float32_matmul_precision("high")
    if device.index is not None and device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def forked_random(device: torch.device | None) -> AbstractContextManager[None]:
    """A context after which the random generators of the CPU and of this device are as they were before."""
    return torch.random.fork_rng([device] if device is not None and device.type == "cuda" else [])
