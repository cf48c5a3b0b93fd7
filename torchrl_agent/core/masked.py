"""Statistics of the frames that count: those of living agents, without padding (``keys.VALID``), on all ranks."""

from __future__ import annotations

import torch
from torch import Tensor

from torchrl_agent.core import ranks


def masked_mean(values: Tensor, mask: Tensor | None) -> Tensor:
    """Mean of the values where the mask (bool; None for all) is true, 0 if it is nowhere; with several ranks, the part
    of this rank: the mean of all ranks' parts is the mean.
    """
    if mask is None:
        return values.mean()
    return torch.where(mask, values, 0.0).sum() / ranks.mean(mask.sum()).clamp_min(1 / ranks.size())


def explained_variance(target: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Fraction of the targets' variance that the values explain, where the mask (bool, of the same shape) is true."""
    count, variances = mask.sum(), []
    for each in (target - values, target):
        mean = torch.where(mask, each, 0.0).sum() / count.clamp_min(1)
        variance = torch.where(mask, (each - mean) ** 2, 0.0).sum() / count.clamp_min(1)
        variances.append(ranks.moments(mean, variance, count)[1])
    return 1 - variances[0] / variances[1].clamp_min(1e-8)
