"""Learning-rate schedules: pure functions of how much of the training is done."""

from __future__ import annotations

import math
from dataclasses import dataclass

SCHEDULES = ("constant", "linear", "exponential", "cosine")


@dataclass
class LearningRateConfig:
    """How the learning rate moves over the training."""

    initial: float = 3e-4
    """Highest learning rate."""
    final: float = 0.0
    """Learning rate at the end (linear, cosine; exponential needs it above 0)."""
    schedule: str = "constant"
    """constant, linear, exponential or cosine."""
    warmup: float = 0.0
    """Share of the training during which the rate rises linearly from 0 to its schedule's value."""


def check_schedule(config: LearningRateConfig) -> None:
    """Raise ValueError for a schedule that cannot be."""
    if config.schedule not in SCHEDULES:
        raise ValueError(f"algorithm.learning_rate.schedule is {config.schedule!r}: use one of {', '.join(SCHEDULES)}.")
    if config.initial <= 0 or config.final < 0:
        raise ValueError("learning rates must be positive: check algorithm.learning_rate.initial and .final.")
    if config.schedule == "exponential" and config.final == 0:
        raise ValueError("an exponential schedule never reaches 0: give algorithm.learning_rate.final above 0.")
    if not 0 <= config.warmup < 1:
        raise ValueError(f"algorithm.learning_rate.warmup is {config.warmup}: give a share of the training in [0, 1).")


def learning_rate(config: LearningRateConfig, progress: float) -> float:
    """The learning rate when the share ``progress`` in [0, 1] of the training is done."""
    progress = min(max(progress, 0.0), 1.0)
    start, end = config.initial, config.final
    value = {
        "constant": lambda: start,
        "linear": lambda: start + (end - start) * progress,
        "exponential": lambda: start * (end / start) ** progress,
        "cosine": lambda: end + (start - end) * 0.5 * (1 + math.cos(math.pi * progress)),
    }[config.schedule]()
    return value * min(1.0, progress / config.warmup) if config.warmup > 0 else value
