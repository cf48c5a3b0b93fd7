"""Learning-rate schedules: pure functions of how much of the training is done."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torchrl_agent.ranges import check_ranges, choice, number

SCHEDULES = ("constant", "linear", "exponential", "cosine")


@dataclass
class LearningRateConfig:
    """How the learning rate moves over the training."""

    number_means: ClassVar[str] = "initial"
    """The key that a number means where a configuration gives one for the whole section."""
    initial: float = number(3e-4, above=0)
    """Highest learning rate."""
    final: float = number(0.0, least=0)
    """Learning rate at the end (linear, cosine; exponential needs it above 0)."""
    schedule: str = choice("constant", SCHEDULES)
    """constant, linear, exponential or cosine."""
    warmup: float = number(0.0, least=0, below=1)
    """Share of the training during which the rate rises linearly from 0 to its schedule's value."""


def check_schedule(config: LearningRateConfig) -> None:
    """Raise ValueError for a schedule that cannot be."""
    check_ranges(config, "algorithm.learning_rate.")
    if config.schedule == "exponential" and config.final == 0:
        raise ValueError("an exponential schedule never reaches 0: give algorithm.learning_rate.final above 0.")


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
