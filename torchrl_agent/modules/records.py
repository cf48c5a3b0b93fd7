"""What the modules write, as records: typed views of the nested tensordicts under ``belief``, ``futures``, ``social``
and ``goal``.

``Belief.from_tensordict(tensordict.get(keys.BELIEF))`` copies nothing; ``record.to_tensordict()`` is the way back. The
modules themselves write plain tensordicts, as records inside of compiled code make it compile again.
"""

from __future__ import annotations

import math

import torch
from tensordict import tensorclass
from torch import Tensor

from torchrl_agent.core import ranks
from torchrl_agent.modules.networks import masked_mean


@tensorclass(shadow=True)
class Belief:
    """What an agent makes of what it saw, [...]."""

    mean: Tensor
    """Of a diagonal Gaussian over the hidden state of the world, [..., D]."""
    log_std: Tensor
    """Of the same, [..., D]."""
    proprioception: Tensor
    """What the agent exactly knows of itself, [..., K]."""
    social_cues: Tensor | None = None
    """What each visible other shows, [..., V, C]; None in worlds that show no others, as the following."""
    visible: Tensor | None = None
    """Whether somebody is in the slot, bool [..., V]."""
    number: Tensor | None = None
    """Who that is, int64 [..., V]; the number of agents where nobody is."""


@tensorclass(shadow=True)
class Futures:
    """Imagined futures of P sequences of H actions, [..., P]."""

    actions: Tensor
    """Of the first head, int64 [..., P, H]."""
    states: Tensor
    """The agent's own state after each step, [..., P, H, K]."""
    rewards: Tensor
    """In the units of training, [..., P, H]."""
    dones: Tensor
    """Probability that the step was the episode's last, [..., P, H]."""
    values: Tensor
    """Of the belief after each step, [..., P, H]."""
    confidence: Tensor
    """0 to 1, [..., P]."""
    reason: Tensor
    """Why it is small, int64 [..., P]: ``NOTHING``, ``NOVEL_STATE`` or ``HIGH_VARIANCE`` of world_model.py."""


@tensorclass(shadow=True)
class SocialPredictions:
    """What an agent thinks of the others in its V slots, [...]; zeros in empty slots. What a rollout leaves out to save
    memory is None.
    """

    goal: Tensor
    """Logits, [..., V, goals]."""
    next_action: Tensor
    """Logits, [..., V, actions]."""
    meters: Tensor
    """0 to 1, [..., V, M]."""
    confidence: Tensor | None = None
    """Probability of the likeliest goal, [..., V]."""
    reason: Tensor | None = None
    """Why it is small, int64 [..., V]: ``NOTHING``, ``NOVEL_STATE`` or ``HIGH_VARIANCE`` of world_model.py."""
    attention: Tensor | None = None
    """How much each matters to the policy, [..., V]; they sum to 1. None without ``pooling: attention``."""
    query: Tensor | None = None
    """By which keys it asks what each did in moments like this one, [..., V, K]; None without ``associations``."""
    written: Tensor | None = None
    """Under which keys, and how firmly, this moment was remembered, [..., V, K]; None without ``associations``."""


@tensorclass(shadow=True)
class Goal:
    """What an agent wants, [...]. What a rollout leaves out to save memory is None."""

    type: Tensor
    """Number of the goal, int64 [...]."""
    decided: Tensor
    """A new goal was chosen in this step, bool [...]."""
    log_prob: Tensor
    """Of the choice, [...]."""
    value: Tensor
    """The manager's, [..., 1]."""
    priority: Tensor | None = None
    """0 to 1: how sure it was, [..., 1]."""
    target: Tensor | None = None
    """Levels of the meters that fulfill the goal, 0 where a meter does not matter, [..., M]."""
    steps_left: Tensor | None = None
    """[..., 1]."""
    entropy: Tensor | None = None
    """Of the choice, [...]."""


# --- metrics ---------------------------------------------------------------------------------------------------------


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
