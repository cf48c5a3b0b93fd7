"""What SAC minimises: one soft value, of discrete actions or of continuous ones, from which all three losses follow.

The arithmetic is that of TorchRL's ``SACLoss`` and ``DiscreteSACLoss``, which make weights of the action values of
their own: an agent could neither save nor export them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictSequential
from torch import Tensor, nn
from torch.func import functional_call
from torchrl.objectives.value.functional import td0_return_estimate

from torchrl_agent import keys
from torchrl_agent.models.soft_agent import SoftAgent
from torchrl_agent.training.counted import mean_of_counted
from torchrl_agent.training.replay import STEPS, TD_ERROR, WEIGHT


class SoftActorCriticLoss(nn.Module):
    """The losses of soft actor-critic (Haarnoja et al. 2018; for discrete actions Christodoulou 2019), on raw
    observations.

    The target network shares the normaliser, whose statistics move too slowly for a copy to be of use.

    Args:
        agent: with a policy and action values.
        gamma: discount factor.
        target_entropy: that the temperature makes the policy have, in nats, of continuous actions in -1 to 1.
    """

    def __init__(self, agent: SoftAgent, *, gamma: float, target_entropy: float) -> None:
        super().__init__()
        self.agent, self.gamma, self.target_entropy = agent, gamma, target_entropy
        self.body = TensorDictSequential(*list(agent.encoder)[1:])
        self.followed = nn.ModuleList([self.body, agent.action_values])
        self.following = copy.deepcopy(self.followed).requires_grad_(False)

    @property
    def target(self) -> TensorDictBase:
        """Weights of the target network."""
        return TensorDict.from_module(self.following)

    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """``loss_actor``, ``loss_value`` and ``loss_temperature`` of transitions [B]; ``entropy``, ``temperature``, and
        what each action value was wrong by.
        """
        counted, weight = tensordict.get(keys.VALID, None), tensordict.get(WEIGHT, None)
        now = self.body(self.agent.normalizer(tensordict.copy()))
        temperature = self.agent.log_alpha.detach().exp()

        target, values = self.targets(tensordict, temperature), self.action_values(now)
        errors = values - target
        huber = nn.functional.smooth_l1_loss(values, target.expand_as(values), reduction="none").sum(0).squeeze(-1)

        frozen = {name: value.detach() for name, value in self.agent.action_values.named_parameters()}
        soft_value, entropy = self.soft_value(
            now, temperature, lambda *seen: functional_call(self.agent.action_values, frozen, seen)
        )
        undecided = mean_of_counted(entropy.detach(), counted)
        squared = errors.detach().square().amax(0)
        return TensorDict(
            {
                "loss_actor": -mean_of_counted(soft_value.squeeze(-1), counted),
                "loss_value": mean_of_counted(huber if weight is None else weight * huber, counted),
                "loss_temperature": self.agent.log_alpha * (undecided - self.target_entropy),
                "entropy": undecided,
                "temperature": temperature,
                "mean_td_error": mean_of_counted(squared.sqrt().squeeze(-1), counted),
                TD_ERROR: squared,
            }
        )

    def action_values(self, encoded: TensorDictBase) -> Tensor:
        """Values of the actions taken, [2, B, 1]."""
        features, action = encoded.get(self.agent.actor_head.in_keys[0]), encoded.get(keys.ACTION)
        if self.agent.action_range is not None:
            return self.agent.action_values(features, self.agent.action_range(action))
        values = self.agent.action_values(features)
        return values.gather(-1, action.expand(values.shape[:-1]).unsqueeze(-1))

    @torch.no_grad()
    def targets(self, tensordict: TensorDictBase, temperature: Tensor) -> Tensor:
        """``r + gamma^n V(s')`` [B, 1], of returns of n rewards."""
        following = self.agent.normalizer(tensordict.get(keys.NEXT).copy())
        body, values = self.following
        seen = body(following.copy()).get(self.agent.actor_head.in_keys[0])
        soft_value, _ = self.soft_value(self.body(following), temperature, lambda _, *action: values(seen, *action))
        return td0_return_estimate(
            self.gamma ** tensordict.get(STEPS),
            soft_value,
            following.get(keys.REWARD),
            following.get(keys.TERMINATED),
        )

    def soft_value(
        self, encoded: TensorDictBase, temperature: Tensor, values: Callable[..., Tensor]
    ) -> tuple[Tensor, Tensor]:
        """``V = E[min Q(s, a) - temperature log pi(a|s)]`` [B, 1] over the policy's actions and its entropy [B]: the
        mean over all discrete actions, or of one continuous action that is drawn, in units of half the actions' range.

        Args:
            encoded: what the policy reads.
            temperature: worth of a nat of entropy.
            values: from features, and a continuous action, to action values.
        """
        policy = self.agent.actor_head.get_dist(encoded.copy())
        features = encoded.get(self.agent.actor_head.in_keys[0])
        action_range = self.agent.action_range
        if action_range is None:
            entropy = policy.entropy()
            worth = (policy.probs * values(features).amin(0)).sum(-1, keepdim=True)
        else:
            action, log_prob = policy.rsample_and_log_prob()
            entropy = action_range.entropy(log_prob)
            worth = values(features, action_range(action)).amin(0)
        return worth + temperature * entropy.unsqueeze(-1), entropy


class Polyak:
    """Moves the target network of a loss a share of the way towards the learning one at each step."""

    def __init__(self, loss: SoftActorCriticLoss, rate: float) -> None:
        self.loss, self.rate = loss, rate

    def step(self) -> None:
        """Follow once."""
        following, followed = (
            [each.data for each in part.parameters()] for part in (self.loss.following, self.loss.followed)
        )
        torch._foreach_lerp_(following, followed, self.rate)
