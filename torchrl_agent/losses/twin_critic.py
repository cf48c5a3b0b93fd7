"""Loss shared by SAC and TD3: the temporal difference of two action values, with slowly moving target networks.

The arithmetic is that of TorchRL's ``SACLoss``, ``DiscreteSACLoss`` and ``TD3Loss``, which make their own weights of
the action values: an agent could neither save nor export them.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictSequential
from torch import Tensor, nn
from torch.func import functional_call
from torchrl.objectives.value.functional import td0_return_estimate

from torchrl_agent.core import keys
from torchrl_agent.core.ranks import masked_mean
from torchrl_agent.models.twin_values import NUM_VALUES


class TwinValueLoss(nn.Module):
    """The loss of two action values (Fujimoto et al. 2018, clipped double Q-learning), on raw observations.

    The target network shares the normalizer, whose statistics move too slowly for a copy to be of use.

    Args:
        agent: agent with a policy, ``action_values`` and an ``action_range``.
        gamma: discount factor.
        followed: modules that the target network follows besides encoder and action values.
    """

    def __init__(self, agent: Any, gamma: float, followed: tuple[nn.Module, ...] = ()) -> None:
        super().__init__()
        self.agent, self.gamma = agent, gamma
        self.body = TensorDictSequential(*list(agent.encoder)[1:])
        self.followed = nn.ModuleList([self.body, agent.action_values, *followed])
        self.following = copy.deepcopy(self.followed).requires_grad_(False)

    @property
    def target(self) -> TensorDictBase:
        """Weights of the target network."""
        return TensorDict.from_module(self.following)

    def averaging(self, rate: float) -> Polyak:
        """Rule that updates the target network."""
        return Polyak(self, rate)

    def copy_to_target(self) -> None:
        """Copy the online network's weights to the target network."""
        self.averaging(1.0).step()

    def features(self, encoded: TensorDictBase) -> Tensor:
        """Features [B, F] that policy and action values read from an encoder's output."""
        return encoded.get(self.agent.actor_head.in_keys[0])

    def value_losses(self, tensordict: TensorDictBase, encoded: TensorDictBase, target: Tensor) -> dict[str, Tensor]:
        """Compute ``loss_value`` of transitions [B] (Huber 1964), and squared errors of the values of actions taken.

        Args:
            tensordict: the transitions.
            encoded: the encoder's output for their observations.
            target: targets of the values, [B, 1].
        """
        counted, weight = tensordict.get(keys.VALID, None), tensordict.get(keys.PRIORITY_WEIGHT, None)
        values = self.action_values(encoded)
        # Q1 and Q2 to the one target: their Huber losses are added
        errors = values - target
        huber = nn.functional.smooth_l1_loss(values, target.expand_as(values), reduction="none").sum(0).squeeze(-1)
        squared = errors.detach().square().amax(0)
        return {
            "loss_value": masked_mean(huber if weight is None else weight * huber, counted),
            "mean_td_error": masked_mean(squared.sqrt().squeeze(-1), counted),
            keys.TD_ERROR: squared,
        }

    def action_values(self, encoded: TensorDictBase) -> Tensor:
        """Values of the actions taken, [2, B, 1]."""
        features, action = self.features(encoded), encoded.get(keys.ACTION)
        if self.agent.action_range is not None:
            return self.agent.action_values(features, self.agent.action_range(action))
        values = self.agent.action_values(features)
        return values.gather(-1, action.expand(values.shape[:-1]).unsqueeze(-1))

    def frozen_values(self, *seen: Tensor, count: int = NUM_VALUES) -> Tensor:
        """The first action values [count, B, ...]; they pass gradients to their inputs but not to their own weights."""
        frozen = {name: value.detach() for name, value in self.agent.action_values.named_parameters()}
        return functional_call(self.agent.action_values, frozen, seen, {"count": count})

    def returns(self, tensordict: TensorDictBase, following_value: Tensor) -> Tensor:
        """Returns ``r + gamma^n V(s')`` [B, 1] of n rewards and the values [B, 1] of the states that followed."""
        following = tensordict.get(keys.NEXT)
        return td0_return_estimate(
            self.gamma ** tensordict.get(keys.STEPS_TO_NEXT),
            following_value,
            following.get(keys.REWARD),
            following.get(keys.TERMINATED),
        )


class Polyak:
    """Polyak averaging: each step moves a loss's target network a fraction of the way toward the online network."""

    def __init__(self, loss: TwinValueLoss, rate: float) -> None:
        self.loss, self.rate = loss, rate

    def step(self) -> None:
        """Move the target network once."""
        following, followed = (
            [each.data for each in part.parameters()] for part in (self.loss.following, self.loss.followed)
        )
        torch._foreach_lerp_(following, followed, self.rate)
