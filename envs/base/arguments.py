"""Checks of the arguments that every world takes, and of the numbers in its rules."""

from __future__ import annotations

import numbers
from typing import Any

import torch

MOST_REPEATS = 1000
"""Largest number of game steps with the same action."""
MOST_OBJECTS = 100_000
"""Largest number of worlds that are Python objects of their own, stepped one after another."""


def checked_number(num_envs: Any, most: int | None = None) -> int:
    """Return ``num_envs`` if it is a number of worlds up to ``most``; batched worlds are bounded only by the device's
    memory.
    """
    if isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1:
        raise ValueError(f"num_envs is {num_envs!r}: give a whole number of worlds, at least 1.")
    if most is not None and num_envs > most:
        raise ValueError(f"num_envs is {num_envs}: give at most {most} worlds, which are stepped one after another.")
    return num_envs


def checked_repeat(action_repeat: Any) -> int:
    """Return ``action_repeat`` if it is a valid number of steps."""
    if isinstance(action_repeat, bool) or not isinstance(action_repeat, int) or action_repeat < 1:
        raise ValueError(f"action_repeat is {action_repeat!r}: give a whole number of steps, at least 1.")
    if action_repeat > MOST_REPEATS:
        raise ValueError(f"action_repeat is {action_repeat}: give at most {MOST_REPEATS} steps.")
    return action_repeat


def checked_seed(seed: Any) -> int:
    """Return ``seed`` if it is one integer, at least 0."""
    if isinstance(seed, bool) or not isinstance(seed, numbers.Integral) or seed < 0:
        raise ValueError(f"seed is {seed!r}: give one whole number from 0, from which each row's is made.")
    return int(seed)


def checked_device(device: torch.device | str | None) -> torch.device:
    """Return ``device`` if this machine has it; ``None`` is the CPU."""
    try:
        found = torch.device(device or "cpu")
    except RuntimeError:
        raise ValueError(f"device {device!r} is unknown: use cpu, cuda or cuda:0.") from None
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"device {device!r} was asked for but this machine has no CUDA device: use device=cpu or device=auto."
        )
    return found


def check_least(rules: object, where: str, least: float, *names: str) -> None:
    """Raise ValueError for the first of these numbers that is below ``least``; ``where`` stands before its name."""
    for name in names:
        if getattr(rules, name) < least:
            raise ValueError(f"{where}{name} is {getattr(rules, name)}: it must be at least {least}.")
