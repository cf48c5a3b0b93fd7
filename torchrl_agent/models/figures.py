"""Figures of how well a module does, each beside what is possible without it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchrl_agent import ranks
from torchrl_agent.models.networks import masked_mean


def auroc(score: Tensor, positive: Tensor) -> float | None:
    """Probability that a positive case has a higher score than a negative one, ties counting half (Mann and Whitney
    1947); None without cases of both kinds.

    Args:
        score: [cases].
        positive: bool [cases].
    """
    count, others = int(positive.sum()), int((~positive).sum())
    if not count or not others:
        return None
    _, place, counts = score.unique(return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    rank = (last - (counts.double() - 1) / 2)[place]  # mean rank of equal scores, from 1 on
    return ((rank[positive].sum() - count * (count + 1) / 2) / (count * others)).item()


def most_frequent(values: Tensor, counted: Tensor, count: int) -> Tensor:
    """The most frequent of the counted values, which are below ``count``."""
    return torch.bincount(values[counted], minlength=count).argmax()


def feature_means(values: Tensor, counted: Tensor) -> Tensor:
    """Mean [F] of each feature over the ``counted`` rows (bool [...]) of values [..., F]; 0 where none counts."""
    return torch.where(counted.unsqueeze(-1), values, 0.0).flatten(0, -2).sum(0) / counted.sum().clamp_min(1)


def squared_error(guess: Tensor, truth: Tensor, counted: Tensor) -> float:
    """Mean squared error of the counted guesses [..., F]."""
    return masked_mean((guess - truth).square().mean(-1), counted).item()


def share_of(error: float, baseline: float) -> float | None:
    """An error as a share of the baseline's; None if the baseline makes none either."""
    return error / baseline if baseline > 0 and math.isfinite(error) else None


def correlation(one: Tensor, other: Tensor, counted: Tensor) -> Tensor:
    """Pearson's correlation of the ``counted`` values, 0 where one of them does not vary."""
    means = [ranks.mean(masked_mean(value, counted)) for value in (one, other)]
    one, other = (torch.where(counted, value - mean, 0.0) for value, mean in zip((one, other), means, strict=True))
    products = torch.stack(((one * other).sum(), one.square().sum(), other.square().sum()))
    together, *squares = ranks.mean(products).unbind()
    return together / (squares[0] * squares[1]).sqrt().clamp_min(1e-12)
