"""Outputs of the modules as records: typed views of the nested tensordicts under ``belief``, ``futures``, ``social``
and ``goal``.

``Belief.from_tensordict(tensordict.get(keys.BELIEF))`` copies nothing; ``record.to_tensordict()`` is the way back. The
modules themselves write plain tensordicts, as records inside compiled code cause recompilation.
"""

from __future__ import annotations

import math

import torch
from tensordict import tensorclass
from torch import Tensor

from torchrl_agent.core import ranks
from torchrl_agent.core.ranks import masked_mean


@tensorclass(shadow=True)
class Belief:
    """Belief of an agent about the world, from its observations, [...]."""

    mean: Tensor
    """Mean of a diagonal Gaussian over the hidden state of the world, [..., D]."""
    log_std: Tensor
    """Logarithm of its standard deviation, [..., D]."""
    proprioception: Tensor
    """The agent's exact knowledge of itself, [..., K]."""
    social_cues: Tensor | None = None
    """Cues of each visible other, [..., V, C]; None in worlds that show no others, as the following."""
    visible: Tensor | None = None
    """True where another agent is in the slot, bool [..., V]."""
    number: Tensor | None = None
    """Number of that agent, int64 [..., V]; the count of agents where the slot is empty."""


@tensorclass(shadow=True)
class Futures:
    """Imagined futures of P sequences of H actions, [..., P]."""

    actions: Tensor
    """Actions of the first head, int64 [..., P, H]."""
    states: Tensor
    """The agent's own state after each step, [..., P, H, K]."""
    rewards: Tensor
    """Rewards in the units of training, [..., P, H]."""
    dones: Tensor
    """Probability that the step was the episode's last, [..., P, H]."""
    values: Tensor
    """Values of the belief after each step, [..., P, H]."""
    confidence: Tensor
    """Confidence, 0 to 1, [..., P]."""
    reason: Tensor
    """Reason for low confidence, int64 [..., P]: ``NOTHING``, ``NOVEL_STATE`` or ``HIGH_VARIANCE`` of dynamics.py."""


@tensorclass(shadow=True)
class SocialPredictions:
    """Predictions of an agent about the others in its V slots, [...]; zeros in empty slots. Fields that a rollout
    leaves out to save memory are None.
    """

    goal: Tensor
    """Logits of goals, [..., V, goals]."""
    next_action: Tensor
    """Logits of next actions, [..., V, actions]."""
    meters: Tensor
    """Levels of meters, 0 to 1, [..., V, M]."""
    confidence: Tensor | None = None
    """Probability of the most likely goal, [..., V]."""
    reason: Tensor | None = None
    """Reason for low confidence, int64 [..., V]: ``NOTHING``, ``NOVEL_STATE`` or ``HIGH_VARIANCE`` of dynamics.py."""
    attention: Tensor | None = None
    """Attention weight of each for the policy, [..., V]; they sum to 1. None without ``pooling: attention``."""
    query: Tensor | None = None
    """Weights of keys in the query for moments like this one, [..., V, K]; None without ``associations``."""
    written: Tensor | None = None
    """Weights of keys under which this moment was written, [..., V, K]; None without ``associations``."""


@tensorclass(shadow=True)
class Goal:
    """Goal of an agent, [...]. Fields that a rollout leaves out to save memory are None."""

    type: Tensor
    """Number of the goal, int64 [...]."""
    decided: Tensor
    """True where a new goal was chosen in this step, bool [...]."""
    log_prob: Tensor
    """Log-probability of the choice, [...]."""
    value: Tensor
    """The manager's value, [..., 1]."""
    priority: Tensor | None = None
    """Probability that the manager gives the goal now, [..., 1]."""
    target: Tensor | None = None
    """Levels of the meters that fulfill the goal, 0 where a meter does not matter, [..., M]."""
    steps_left: Tensor | None = None
    """Number of steps that the goal may still last, [..., 1]."""
    entropy: Tensor | None = None
    """Entropy of the choice, [...]."""


# --- metrics ---------------------------------------------------------------------------------------------------------


def auroc(score: Tensor, positive: Tensor) -> float | None:
    """Probability that a positive case has a higher score than a negative one, ties counting half (Mann and Whitney
    1947); None without cases of both kinds.

    Args:
        score: scores, [cases].
        positive: True for positive cases, bool [cases].
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
    """An error as a fraction of the baseline's; None if the baseline makes none, or the error is not finite."""
    return error / baseline if baseline > 0 and math.isfinite(error) else None


def correlation(one: Tensor, other: Tensor, counted: Tensor) -> Tensor:
    """Pearson's correlation of the ``counted`` values, 0 where one of them does not vary."""
    means = [ranks.mean(masked_mean(value, counted)) for value in (one, other)]
    one, other = (torch.where(counted, value - mean, 0.0) for value, mean in zip((one, other), means, strict=True))
    products = torch.stack(((one * other).sum(), one.square().sum(), other.square().sum()))
    together, *squares = ranks.mean(products).unbind()
    return together / (squares[0] * squares[1]).sqrt().clamp_min(1e-12)
