"""TD3's losses (Fujimoto et al. 2018): the error of two action values, and minus the value of the policy."""

from __future__ import annotations

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from torchrl_agent.core import keys
from torchrl_agent.core.ranks import masked_mean
from torchrl_agent.losses.twin_critic import TwinValueLoss
from torchrl_agent.models.td3_agent import TD3Agent


class DeterministicActorCriticLoss(TwinValueLoss):
    """The losses of TD3, on raw observations; the target network includes a target policy.

    Args:
        agent: agent with a deterministic policy and action values.
        gamma: discount factor.
        target_noise: standard deviation of the noise on the target policy's action, in units of half the range.
        noise_clip: largest absolute value of that noise.

    Attributes:
        moves_policy: True if the policy learns from this minibatch; if not, only the action values do.
    """

    agent: TD3Agent

    def __init__(self, agent: TD3Agent, *, gamma: float, target_noise: float, noise_clip: float) -> None:
        super().__init__(agent, gamma, followed=(agent.deterministic_policy.network,))
        self.target_noise, self.noise_clip = target_noise, noise_clip
        self.moves_policy = True

    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """Compute ``loss_value`` of transitions [B], ``loss_actor`` where the policy learns, and the squared
        temporal-difference errors.
        """
        now = self.body(self.agent.normalizer(tensordict.copy()))
        losses = self.value_losses(tensordict, now, self.targets(tensordict))
        if self.moves_policy:
            features = self.features(now)
            action = self.agent.deterministic_policy.network(features).float().tanh()  # in -1 to 1
            (first,) = self.frozen_values(features, action, count=1)
            # policy: -Q1(s, pi(s))
            losses["loss_actor"] = -masked_mean(first.squeeze(-1), tensordict.get(keys.VALID, None))
        return TensorDict(losses)

    @torch.no_grad()
    def targets(self, tensordict: TensorDictBase) -> Tensor:
        """Targets ``r + gamma^n min Q'(s', a')`` [B, 1], where ``a'`` is the target policy's action with clipped noise
        (equation 14, target policy smoothing).
        """
        body, values, policy = self.following
        features = self.features(body(self.agent.normalizer(tensordict.get(keys.NEXT).copy())))
        action = policy(features).float().tanh()
        # a' = clip(pi'(s') + clip(noise))
        noise = (torch.randn_like(action) * self.target_noise).clamp(-self.noise_clip, self.noise_clip)
        smoothed = (action + noise).clamp(-1, 1)
        return self.returns(tensordict, values(features, smoothed).amin(0))
