"""SAC's losses: all three follow from one soft value, of discrete or of continuous actions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from torchrl_agent.core import keys
from torchrl_agent.core.ranks import masked_mean
from torchrl_agent.losses.twin_critic import TwinValueLoss
from torchrl_agent.models.sac_agent import SACAgent


class SoftActorCriticLoss(TwinValueLoss):
    """The losses of soft actor-critic (Haarnoja et al. 2018; for discrete actions Christodoulou 2019), on raw
    observations.

    Args:
        agent: agent with a policy and action values.
        gamma: discount factor.
        target_entropy: entropy to which the temperature drives the policy, in nats; of continuous actions in -1 to 1.
    """

    agent: SACAgent

    def __init__(self, agent: SACAgent, *, gamma: float, target_entropy: float) -> None:
        super().__init__(agent, gamma)
        self.target_entropy = target_entropy

    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """Compute ``loss_actor``, ``loss_value`` and ``loss_temperature`` of transitions [B]; ``entropy``,
        ``temperature``, and the squared temporal-difference errors.
        """
        counted = tensordict.get(keys.VALID, None)
        now = self.body(self.agent.normalizer(tensordict.copy()))
        temperature = self.agent.log_alpha.detach().exp()
        of_values = self.value_losses(tensordict, now, self.targets(tensordict, temperature))
        # policy: V(s) of its own actions, of which the weights of Q stay as they are
        soft_value, entropy = self.soft_value(now, temperature, self.frozen_values)
        undecided = masked_mean(entropy.detach(), counted)
        return TensorDict(
            {
                "loss_actor": -masked_mean(soft_value.squeeze(-1), counted),
                "loss_temperature": self.agent.log_alpha * (undecided - self.target_entropy),
                "entropy": undecided,
                "temperature": temperature,
                **of_values,
            }
        )

    @torch.no_grad()
    def targets(self, tensordict: TensorDictBase, temperature: Tensor) -> Tensor:
        """Targets ``r + gamma^n V(s')`` [B, 1] of n-step returns."""
        following = self.agent.normalizer(tensordict.get(keys.NEXT).copy())
        body, values = self.following
        seen = self.features(body(following.copy()))
        soft_value, _ = self.soft_value(self.body(following), temperature, lambda _, *action: values(seen, *action))
        return self.returns(tensordict, soft_value)

    def soft_value(
        self, encoded: TensorDictBase, temperature: Tensor, values: Callable[..., Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Soft value ``V = E[min Q(s, a) - temperature log pi(a|s)]`` [B, 1] of the policy's actions, and its entropy
        [B]: the mean over all discrete actions, or one sampled continuous action, in units of half the actions' range.

        Args:
            encoded: features that the policy reads.
            temperature: weight of a nat of entropy.
            values: maps features, and a continuous action, to action values.
        """
        policy = self.agent.actor_head.get_dist(encoded.copy())
        features = self.features(encoded)
        action_range = self.agent.action_range
        if action_range is None:
            entropy = policy.entropy()
            # E[min Q(s, a)] over all actions
            worth = (policy.probs * values(features).amin(0)).sum(-1, keepdim=True)
        else:
            action, log_prob = policy.rsample_and_log_prob()
            entropy = action_range.entropy(log_prob)  # -log pi(a|s)
            # min Q(s, a) of the sampled action
            worth = values(features, action_range(action)).amin(0)
        return worth + temperature * entropy.unsqueeze(-1), entropy
