"""Masks of frames that do not count in a loss, because no agent was alive in them or they are padding
(``keys.VALID``), and the targets' variance that values explain.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchrl_agent.core import ranks


def masked(values: Tensor, mask: Tensor | None) -> Tensor:
    """Values [...], 0 where the mask (bool [...]; None for all) is false."""
    return values if mask is None else torch.where(mask, values, 0.0)


def mask_fraction(mask: Tensor | None) -> Tensor | float:
    """Fraction of the frames that count: a mean over all frames, 0 in the others, divided by it is their mean."""
    return 1.0 if mask is None else ranks.mean(mask.float().mean()).clamp_min(1e-8)


def explained_variance(target: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Fraction of the targets' variance that the values explain."""
    return 1 - _variance(target - values, mask) / _variance(target, mask).clamp_min(1e-8)


def _variance(values: Tensor, mask: Tensor) -> Tensor:
    count = mask.sum().clamp_min(1)
    mean = torch.where(mask, values, 0.0).sum() / count
    variance = torch.where(mask, (values - mean) ** 2, 0.0).sum() / count
    return ranks.moments(mean, variance, mask.sum())[1]
