"""Vital signs of a training, judged by their own history on the device, without waiting for the host.

The history is that of ZClip (Kumar et al. 2025) for gradient norms: moving averages of value and deviation. They leave
out bad values, and include an excused value only as far as the threshold.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

RETURN = "return"
"""Vital sign from the episodes; all others are diagnostics of the algorithm."""
RISE = 2.0
"""Usual deviations of the return above its history from which on all other signs are excused: the agent learns
something new."""
SIGMA = math.sqrt(math.pi / 2)
"""Standard deviations in a mean absolute deviation, of a normal distribution."""


@dataclass(frozen=True)
class Sign:
    """Criterion of a vital sign."""

    least: float
    """Smallest distance from its history that is bad, in the unit in which it is judged."""
    worse: int = 1
    """1 if more is worse, -1 if less is, 0 for both."""
    logarithm: bool = False
    """Judge orders of magnitude (the natural logarithm)."""
    relative: bool = False
    """``least`` is a fraction of the mean of its history."""
    smallest: float = 1e-8
    """Lower clamp of a sign judged by orders of magnitude: below it, more does no harm."""


FIVE_TIMES = math.log(5.0)
SIGNS = {
    RETURN: Sign(0.5, worse=-1, relative=True),
    "loss_critic": Sign(FIVE_TIMES, logarithm=True, smallest=0.05),
    "loss_value": Sign(FIVE_TIMES, logarithm=True, smallest=0.05),
    "explained_variance": Sign(FIVE_TIMES, logarithm=True, smallest=0.1),  # judged as the share not explained
    "entropy": Sign(0.3, worse=0),
    "max_ratio": Sign(FIVE_TIMES, logarithm=True),
    "min_ratio": Sign(FIVE_TIMES, worse=-1, logarithm=True),
}
"""Vital signs by the names of diagnostics; besides, the norm of each module's gradient."""
GRADIENT = Sign(FIVE_TIMES, logarithm=True)


class VitalSigns:
    """Values and histories of S signs, each a tensor [S].

    Args:
        names: names of the available diagnostics.
        warmup: number of values that a history needs before a sign is judged by it.
        memory: number of values that it reaches back, the time constant of its moving averages.
        threshold: usual deviations from the history, toward the worse, from which on a sign is bad.
        clipped: norm from which on gradients are clipped; below it, none does harm.
        device: device of the signs.

    Attributes:
        names: names of the signs.
        history: ``mean``, ``deviation``, ``count`` and ``bad_in_row`` (iterations) of each sign.
    """

    def __init__(
        self, names: Iterable[str], warmup: int, memory: int, threshold: float, clipped: float, device: torch.device
    ) -> None:
        signs = {RETURN: SIGNS[RETURN], **{name: SIGNS[name] for name in names if name in SIGNS}}
        gradient = dataclasses.replace(GRADIENT, smallest=clipped)
        signs |= {name: gradient for name in names if name.startswith("grad_norm/")}
        self.names = list(signs)
        self.warmup, self.memory, self.threshold = warmup, memory, threshold

        def column(values: Iterable[Any]) -> Tensor:
            return torch.tensor(list(values), device=device)

        self._least, self._smallest = (column(getattr(s, n) for s in signs.values()) for n in ("least", "smallest"))
        self._logarithm, self._relative = (
            column(getattr(s, n) for s in signs.values()) for n in ("logarithm", "relative")
        )
        self._direction = column(-1.0 if sign.worse < 0 else 1.0 for sign in signs.values())
        self._both = column(sign.worse == 0 for sign in signs.values())
        self._is_return = column(name == RETURN for name in signs)
        self._is_explained = column(name == "explained_variance" for name in signs)
        self.values = torch.zeros(len(signs), device=device)
        parts = ("mean", "deviation", "count", "bad_in_row")
        self.history = {part: torch.zeros(len(signs), device=device) for part in parts}

    @torch.no_grad()
    def judge(self, diagnostics: dict[str, Tensor], average: Tensor, remember: bool) -> Tensor:
        """Compute the distance of each sign [S] from its history, in usual deviations, above 0 toward the worse; 0
        where there is no history yet.

        Args:
            diagnostics: diagnostics of an iteration's updates, device scalars.
            average: the mean return; NaN if it is not known, and then not judged.
            remember: add the values to the history.
        """
        self.values = torch.stack([average, *(diagnostics[name].float() for name in self.names[1:])])
        value, history = self._judged(self.values), self.history
        made = diagnostics["updates"] > 0  # otherwise they are means over no updates
        known = made & (value.isfinite() | ~self._is_return)
        ready = known & (history["count"] >= self.warmup)
        least = self._least * torch.where(self._relative, history["mean"].abs(), 1.0)
        spread = torch.maximum(history["deviation"], least / self.threshold).clamp_min(1e-8)
        distance = (value - history["mean"]) / spread
        distance = torch.where(self._both, distance.abs(), distance)
        distance = torch.where(value.isfinite(), distance, math.inf)
        distance = torch.where(ready, distance, 0.0)
        bad = (distance > self.threshold) & ~self._excused(distance)
        history["bad_in_row"].copy_(torch.where(bad, history["bad_in_row"] + 1, 0.0))
        if remember:
            limit = self.threshold * spread
            within = torch.clamp(value, history["mean"] - limit, history["mean"] + limit)
            self._remember(torch.where(ready, within, value), known & value.isfinite() & ~bad)
        return distance

    def _excused(self, distance: Tensor) -> Tensor:
        """Mask of excused signs, bool [S]: all while the return rises; the explained variance while the critic's loss
        is less than usual, because nothing is left to explain where all returns are alike.
        """
        rises = distance[0] < -RISE
        if "loss_critic" not in self.names:
            return rises
        return rises | (self._is_explained & (distance[self.names.index("loss_critic")] < 0))

    def _judged(self, values: Tensor) -> Tensor:
        """Convert values [S] to the unit in which they are judged, where more is worse."""
        values = torch.where(self._is_explained, 1 - values, values)
        orders = torch.maximum(values, self._smallest).log()
        return torch.where(self._logarithm, orders, values) * self._direction

    def _remember(self, value: Tensor, counted: Tensor) -> None:
        """Add values [S] to the moving averages, which are plain means until they are ``memory`` long."""
        mean, deviation, count = (self.history[part] for part in ("mean", "deviation", "count"))
        weight = 1 / (count + 1).clamp_max(self.memory)
        mean += torch.where(counted, weight * (value - mean), 0.0)
        deviation += torch.where(counted, weight * (SIGMA * (value - mean).abs() - deviation), 0.0)
        count += counted.float()

    def describe(self, least_row: int) -> str:
        """Describe the signs that were bad in at least ``least_row`` iterations in a row; waits for the device."""
        mean = self.history["mean"] * self._direction
        mean = torch.where(self._logarithm, mean.exp(), mean)
        usual = torch.where(self._is_explained, 1 - mean, mean)
        columns = (self.values.tolist(), usual.tolist(), self.history["bad_in_row"].tolist())
        return ", ".join(
            f"{name} is {value:.3g}, usually {normal:.3g}"
            for name, value, normal, row in zip(self.names, *columns, strict=True)
            if row >= least_row
        )
