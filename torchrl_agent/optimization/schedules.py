"""Schedules of the learning rate and the clipping range: functions of the progress of the training, and one that
follows the KL.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
from torch import Tensor

from torchrl_agent.core.bounds import check_ranges, choice, number

Number = TypeVar("Number", float, Tensor)
ADAPTIVE = "adaptive"
LOWEST, HIGHEST = 1e-5, 1e-2
"""Bounds of an adaptive rate."""
MOVING = ("linear", "exponential", "cosine")
"""Schedules from an initial to a final value."""
SCHEDULES = ("constant", *MOVING, ADAPTIVE)


@dataclass
class LearningRateConfig:
    """Schedule of the learning rate over the training."""

    number_means: ClassVar[str] = "initial"
    """The key that a number means where a configuration gives one for the whole section."""
    initial: float = number(3e-4, above=0)
    """Highest learning rate."""
    final: float = number(0.0, least=0)
    """Learning rate at the end of training. For linear, cosine and exponential, which needs it above 0."""
    schedule: str = choice("constant", SCHEDULES)
    """Schedule of the learning rate. adaptive follows the KL of PPO's updates."""
    warmup: float = number(0.0, least=0, below=1)
    """Fraction of training with a linear warmup."""


def check_schedule(config: LearningRateConfig) -> None:
    """Raise ValueError for a schedule that cannot work."""
    check_ranges(config, "algorithm.learning_rate.")
    if config.schedule == "exponential" and config.final == 0:
        raise ValueError("an exponential schedule never reaches 0: give algorithm.learning_rate.final above 0.")
    if config.schedule == ADAPTIVE and not LOWEST <= config.initial <= HIGHEST:
        raise ValueError(
            f"an adaptive learning rate moves between {LOWEST:g} and {HIGHEST:g}: let "
            f"algorithm.learning_rate.initial={config.initial:g} lie there."
        )


def learning_rate(config: LearningRateConfig, progress: float) -> float:
    """Learning rate after the fraction ``progress`` in [0, 1] of the training."""
    progress = min(max(progress, 0.0), 1.0)
    moves = config.schedule in MOVING
    value = scheduled(config.schedule, config.initial, config.final, progress) if moves else config.initial
    return value * min(1.0, progress / config.warmup) if config.warmup > 0 else value


def scheduled(schedule: str, start: Number, end: float, progress: float) -> Number:
    """Value after the fraction ``progress`` of the training by one of :data:`MOVING`, from ``start`` to ``end``."""
    progress = min(max(progress, 0.0), 1.0)
    if schedule == "linear":
        return start + (end - start) * progress
    if schedule == "exponential":
        return start * (end / start) ** progress
    return end + (start - end) * (0.5 * (1 + math.cos(math.pi * progress)))


class AdaptiveRate:
    """A learning rate that follows the policy's Kullback-Leibler divergence, as the penalty of Schulman et al. 2017
    (section 4) does, without a wait for the device.

    Every update divides the rate by 1.5 where its divergence is above twice the target, and multiplies it by 1.5 where
    it is below half of it.

    Args:
        initial: the rate that is adapted.
        target: divergence to aim at.
        device: device of the divergence.

    Attributes:
        factor: factor of the scheduled rate, [].
    """

    STEP = 1.5

    def __init__(self, initial: float, target: float, device: torch.device) -> None:
        self.initial, self.target = initial, target
        self.factor = torch.ones((), device=device)

    def follow(self, divergence: Tensor) -> Tensor:
        """Adapt the factor after an update with this divergence []; returns the ratio of new to old factor."""
        before = self.factor.clone()
        down = torch.where(divergence > 2 * self.target, 1 / self.STEP, 1.0)
        up = torch.where(divergence < self.target / 2, self.STEP, 1.0)
        self.factor.copy_((before * down * up).clamp(LOWEST / self.initial, HIGHEST / self.initial))
        return self.factor / before
