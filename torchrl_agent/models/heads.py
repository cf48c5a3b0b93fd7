"""Actor heads: the last layers of an actor and the distribution of its actions."""

from __future__ import annotations

import math
from typing import Any

import torch
from tensordict.nn import (
    InteractionType,
    ProbabilisticTensorDictModule,
    ProbabilisticTensorDictSequential,
    TensorDictModule,
)
from tensordict.utils import NestedKey
from torch import Tensor, nn
from torch.distributions import Distribution
from torchrl.envs import EnvBase
from typing_extensions import override

from torchrl_agent.core import keys
from torchrl_agent.models.config import ModelConfig
from torchrl_agent.modules.distributions import (
    Chooser,
    ClippedNormal,
    ConditionedMultiCategorical,
    MaskedCategorical,
    MaskedMultiCategorical,
    MixedDistribution,
)
from torchrl_agent.modules.networks import mlp
from torchrl_agent.modules.specs import action_bounds, action_heads, action_masked, heads_masked, mixed_choices


def make_actor_head(
    env: EnvBase, entry: NestedKey, width: int, hidden: list[int], config: ModelConfig
) -> ProbabilisticTensorDictSequential:
    """Make the head that writes ``action``, ``action_log_prob`` and the parameters of their distribution: ``logits`` of
    discrete actions (legal ones, if the world has an ``action_mask``), ``loc`` and ``scale`` of continuous ones, or all
    three where actions are both.

    Args:
        entry: key of the features that it reads, [..., width].
        width: number of these features.
        config: activation, first deviation of continuous actions and least probability of discrete ones.
    """
    bounds, choices = action_bounds(env), mixed_choices(env)
    sizes = action_heads(env) if bounds is None else list(choices)
    layers = []
    if sizes:
        network = mlp(width, sum(sizes), hidden, config.activation, 0.01)
        layers.append(TensorDictModule(network, [entry], [keys.LOGITS]))
    if bounds is None:
        least = config.least_probability
        return ProbabilisticTensorDictSequential(*layers, _discrete_choice(env, {"least": least} if least else {}))
    low, high = (end[len(choices) :] for end in bounds)
    network = Gaussian(mlp(width, len(low), hidden, config.activation, 0.01), low, high, config.initial_std)
    layers.append(TensorDictModule(network, [entry], [keys.LOC, keys.SCALE]))
    options = {"low": low, "high": high}
    if not choices:
        return ProbabilisticTensorDictSequential(*layers, action_choice([keys.LOC, keys.SCALE], ClippedNormal, options))
    read = {"logits": keys.LOGITS, "loc": keys.LOC, "scale": keys.SCALE}
    if action_masked(env):
        read["mask"] = keys.ACTION_MASK
    choice = action_choice(read, MixedDistribution, {"sizes": choices, **options})
    return ProbabilisticTensorDictSequential(*layers, choice)


def _discrete_choice(env: EnvBase, options: dict[str, Any]) -> ActionChoice:
    """Make the choice from the logits, among legal values if the world shows them."""
    heads = action_heads(env)
    read = {"logits": keys.LOGITS, "mask": keys.ACTION_MASK} if action_masked(env) else {"logits": keys.LOGITS}
    if len(heads) == 1:
        return action_choice(read, MaskedCategorical, options)
    if heads_masked(env):
        read["head_mask"] = keys.HEAD_MASK
        return action_choice(read, ConditionedMultiCategorical, {"sizes": heads, **options})
    return action_choice(read, MaskedMultiCategorical, {"sizes": heads, **options})


class Gaussian(nn.Module):
    """Mean and standard deviation of continuous actions. The mean begins in the middle of the range; the deviation is
    learned but does not depend on the observation, as in the PPO paper (Schulman et al. 2017, section 6.1).

    Args:
        network: maps [..., F] to [..., D].
        low: bounds, [D]; a number with an infinite bound is taken as it is.
        high: likewise.
        initial_std: initial standard deviation, in units of half the range.
    """

    def __init__(self, network: nn.Module, low: Tensor, high: Tensor, initial_std: float) -> None:
        super().__init__()
        self.network = network
        bounded = low.isfinite() & high.isfinite()
        self.register_buffer("center", torch.where(bounded, (low + high) / 2, 0.0), persistent=False)
        self.register_buffer("half_range", torch.where(bounded, (high - low) / 2, 1.0), persistent=False)
        self.log_std = nn.Parameter(torch.full_like(low, math.log(initial_std)))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """``loc`` and ``scale``, [..., D] each, in the world's units."""
        loc = self.center + self.half_range * self.network(features).float()
        return loc, (self.half_range * self.log_std.exp()).expand_as(loc)


class ActionChoice(Chooser, ProbabilisticTensorDictModule):
    """The module that samples an action, with its log-probability, from parameters of a distribution."""

    @override
    def _dist_sample(self, dist: Distribution, *args: Any, **kwargs: Any) -> Tensor:
        return self.chosen(dist, super()._dist_sample(dist, *args, **kwargs))


def action_choice(read: list[str] | dict[str, str], distribution: type, options: dict[str, Any]) -> ActionChoice:
    """Make the module that samples an action."""
    return ActionChoice(
        in_keys=read,
        out_keys=[keys.ACTION],
        distribution_class=distribution,
        distribution_kwargs=options,
        default_interaction_type=InteractionType.RANDOM,
        return_log_prob=True,
        log_prob_key=keys.LOG_PROB,
    )
