"""Means, shares and variances over the frames that count: those in which somebody lived, and no padding
(``keys.VALID``).
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchrl_agent.core import ranks
from torchrl_agent.modules.networks import masked_mean


def where_counted(values: Tensor, counted: Tensor | None) -> Tensor:
    """Values [...], 0 in frames that do not count (bool [...]; None counts all)."""
    return values if counted is None else torch.where(counted, values, 0.0)


def mean_of_counted(values: Tensor, counted: Tensor | None) -> Tensor:
    """Mean over the frames that count."""
    return values.mean() if counted is None else masked_mean(values, counted)


def share_of_counted(counted: Tensor | None) -> Tensor | float:
    """Share of the frames that count: a mean over all frames, of which the others are 0, divided by it is theirs."""
    return 1.0 if counted is None else ranks.mean(counted.float().mean()).clamp_min(1e-8)


def explained_variance(target: Tensor, values: Tensor, counted: Tensor) -> Tensor:
    """Share of the targets' variance that the values explain, of the ``counted`` frames."""
    return 1 - _variance(target - values, counted) / _variance(target, counted).clamp_min(1e-8)


def _variance(values: Tensor, counted: Tensor) -> Tensor:
    """Variance of the ``counted`` values."""
    count = counted.sum().clamp_min(1)
    mean = torch.where(counted, values, 0.0).sum() / count
    variance = torch.where(counted, (values - mean) ** 2, 0.0).sum() / count
    return ranks.moments(mean, variance, counted.sum())[1]
