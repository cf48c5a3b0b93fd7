"""Losses of algorithms with a policy and a critic: the clipped objective (PPO), the policy gradient (A2C), and the
policy gradient with V-trace's advantages (IMPALA).

PPO's and A2C's are TorchRL's losses with the arithmetic written out: the policy is evaluated once, ratios are bounded,
frames that do not count (``keys.VALID``) are left out, nothing waits for the host, and all of it compiles as one graph.
Where every frame counts, TorchRL's own forward gives the same values.

Shapes: ``B`` frames, or ``B`` sequences of ``T`` frames; [...] stands for either [B] or [B, T].
"""

from __future__ import annotations

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import (
    ProbabilisticTensorDictModule,
    ProbabilisticTensorDictSequential,
    TensorDictModuleBase,
    dispatch,
)
from torch import Tensor, nn
from torch.distributions import Distribution
from torchrl.objectives import A2CLoss, ClipPPOLoss
from torchrl.objectives.value.functional import vtrace_advantage_estimate
from typing_extensions import override

from torchrl_agent.core import keys
from torchrl_agent.core.ranks import explained_variance, masked_mean
from torchrl_agent.models.agent import Agent
from torchrl_agent.modules.distributions import ClippedNormal, MixedDistribution

LARGEST_LOG_RATIO = 20.0
"""Probability ratios are kept within exp(+-20), so that no pair of log-probabilities overflows."""
BOOTSTRAP = "bootstrap_value"
"""The critic's value of the observation after a step, used where an episode or the rollout ends, [..., 1]."""
PAID = ("controller_reward", "controller_done", "controller_terminated")
"""Reward of the controller, and the ends of the episodes or options that it learns from, [..., 1] each."""


class AgentLoss(nn.Module):
    """An objective of an agent: the encoder runs once for actor, critic and modules, whose own losses are added.

    Losses that have ``subsampled`` set see the first ``model.auxiliary_fraction`` of each minibatch, whose order is
    random.

    Args:
        agent: the agent that learns.
        objective: a module from an encoded minibatch to ``loss_*`` and diagnostics.
    """

    def __init__(self, agent: Agent, objective: nn.Module) -> None:
        super().__init__()
        self.encoder, self.objective, self.auxiliary = agent.encoder, objective, agent.auxiliary
        self.auxiliary_fraction = agent.auxiliary_fraction

    def forward(self, minibatch: TensorDictBase) -> TensorDict:
        """Losses (``loss_*``) and diagnostics of frames [B], or of sequences [B, T] in TorchRL's recurrent mode."""
        encoded = self.encoder(minibatch.copy())
        losses = self.objective(encoded)
        subset = encoded[: max(1, round(self.auxiliary_fraction * len(encoded)))]
        for auxiliary in self.auxiliary:
            losses.update(auxiliary(subset if getattr(auxiliary, "subsampled", False) else encoded))
        return losses


class PPOLoss(ClipPPOLoss):
    """The clipped objective of proximal policy optimization (Schulman et al. 2017, equations 7 and 9).

    Reads the ``advantage``, ``value_target``, ``state_value``, ``action`` and ``action_log_prob`` of the rollout.

    Args:
        actor_network: the policy's head.
        critic_network: the state value's head.
        clip_epsilon: clipping range of the probability ratio.
        clip_value: clipping range of the value's change, or None.
        critic_coeff: weight of the critic's loss.
        entropy_coeff: weight of the entropy bonus.
        normalize_advantage: zero mean and unit standard deviation of the minibatch's advantages.
        normalize_entropy: take of each head's entropy its fraction of the largest.
    """

    def __init__(
        self,
        actor_network: ProbabilisticTensorDictSequential,
        critic_network: TensorDictModuleBase,
        *,
        clip_epsilon: float = 0.2,
        clip_value: float | None = None,
        critic_coeff: float = 1.0,
        entropy_coeff: float = 0.01,
        normalize_advantage: bool = False,
        normalize_entropy: bool = False,
    ) -> None:
        super().__init__(
            actor_network,
            critic_network,
            clip_epsilon=clip_epsilon,
            entropy_coeff=entropy_coeff,
            loss_critic_type="l2",
            normalize_advantage=normalize_advantage,
            log_explained_variance=False,
            functional=False,
        )
        self.critic_coeff.fill_(critic_coeff)  # here, as TorchRL leaves out a critic whose weight is 0
        self.clip_value = clip_value  # a plain number: of a tensor the host would wait for the answer
        self.normalize_entropy = normalize_entropy
        if normalize_entropy:
            check_discrete(actor_network, "normalize_entropy=true")
        read = [keys.ACTION, keys.LOG_PROB, keys.ADVANTAGE, keys.VALUE_TARGET, keys.VALUE]
        self.in_keys = list(dict.fromkeys([*actor_network.in_keys, *critic_network.in_keys, *read]))
        self.out_keys = ["loss_objective", "loss_critic", "loss_entropy"]

    @dispatch
    @override
    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """Compute ``loss_objective``, ``loss_critic``, ``loss_entropy``; the distance to the behavior policy: ``kl``
        (Schulman's unbiased estimate ``ratio - 1 - log ratio``), ``clip_fraction``, ``clip_range`` and the extremes of
        the ratio; ``entropy``, ``scaled_value_loss``, and ``std`` of continuous actions.
        """
        valid = tensordict.get(keys.VALID, None)
        policy = self.actor_network.get_dist(tensordict.copy())  # a copy, which keeps the rollout's logits
        advantage = tensordict.get(keys.ADVANTAGE)
        advantage = self._maybe_normalize_advantage(advantage, tensordict, update_norm=False).squeeze(-1)
        policy_terms = self._policy_terms(tensordict, policy, advantage, valid)

        # critic: (V - target)^2, of the clipped V if that is larger
        value, target = self.critic_network(tensordict.copy()).get(keys.VALUE), tensordict.get(keys.VALUE_TARGET)
        error, value_clips = (value - target).square(), {}
        if self.clip_value is not None:
            old = tensordict.get(keys.VALUE)
            change = value - old
            clipped = change.clamp(-self.clip_value, self.clip_value)
            error = torch.maximum(error, (old + clipped - target).square())
            value_clips = {"value_clip_fraction": (clipped != change).to(value.dtype).mean()}
        value_loss = masked_mean(error.squeeze(-1), valid)

        action = tensordict.get(keys.ACTION) if self.normalize_entropy else None
        return TensorDict(
            {
                **policy_terms,
                "loss_critic": self.critic_coeff * value_loss,
                "scaled_value_loss": value_loss.detach(),
                **entropy_bonus(policy, valid, self.entropy_coeff, action),
                "clip_range": self.clip_epsilon.clone(),
                **value_clips,
            }
        )

    def _policy_terms(
        self, tensordict: TensorDictBase, policy: Distribution, advantage: Tensor, valid: Tensor | None
    ) -> dict[str, Tensor]:
        """The policy's loss and the diagnostics of the ratio, from advantages [...]."""
        # log of the ratio pi(a|s) / pi_old(a|s) to the behavior policy
        difference = policy.log_prob(tensordict.get(keys.ACTION)) - tensordict.get(keys.LOG_PROB)
        log_ratio = difference.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
        if valid is not None:
            log_ratio = torch.where(valid, log_ratio, 0.0)
        # the smaller of ratio A and clip(ratio, 1 - eps, 1 + eps) A
        clipped = log_ratio.clamp((-self.clip_epsilon).log1p(), self.clip_epsilon.log1p())
        gain = torch.minimum(log_ratio.exp() * advantage, clipped.exp() * advantage)
        now = log_ratio.detach()
        ratio = now.exp()
        return {
            "loss_objective": masked_mean(-gain, valid),
            "kl": masked_mean(ratio - 1 - now, valid),
            "clip_fraction": masked_mean((clipped != log_ratio).to(now.dtype), valid),
            "max_ratio": ratio.max(),
            "min_ratio": ratio.min(),
        }


class PolicyGradientLoss(A2CLoss):
    """The policy gradient with a critic (Mnih et al. 2016, section 4).

    Reads ``advantage``, ``value_target`` and ``action``.

    Args:
        actor_network: the policy's head.
        critic_network: the state value's head.
        critic_coeff: weight of the critic's loss.
        entropy_coeff: weight of the entropy bonus.
        normalize_entropy: take of each head's entropy its fraction of the largest.
    """

    def __init__(
        self,
        actor_network: ProbabilisticTensorDictSequential,
        critic_network: TensorDictModuleBase,
        *,
        critic_coeff: float = 1.0,
        entropy_coeff: float = 0.01,
        normalize_entropy: bool = False,
    ) -> None:
        super().__init__(
            actor_network, critic_network, entropy_coeff=entropy_coeff, loss_critic_type="l2", functional=False
        )
        self.critic_coeff.fill_(critic_coeff)  # here, as TorchRL leaves out a critic whose weight is 0
        self.normalize_entropy = normalize_entropy
        if normalize_entropy:
            check_discrete(actor_network, "normalize_entropy=true")
        self.out_keys = ["loss_objective", "loss_critic", "loss_entropy"]

    @dispatch
    @override
    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """Compute ``loss_objective``, ``loss_critic``, ``loss_entropy``; ``entropy``."""
        policy = self.actor_network.get_dist(tensordict)
        return self.losses(tensordict, policy, policy.log_prob(tensordict.get(keys.ACTION)))

    def losses(self, tensordict: TensorDictBase, policy: Distribution, log_prob: Tensor) -> TensorDict:
        """Compute the same from a policy and the log-probability [...] that it gives the actions."""
        valid = tensordict.get(keys.VALID, None)
        # policy: -log pi(a|s) A; critic: (V - target)^2
        objective = -log_prob.unsqueeze(-1) * tensordict.get(keys.ADVANTAGE)
        value = self.critic_network(tensordict.copy()).get(keys.VALUE)
        error = (value - tensordict.get(keys.VALUE_TARGET)).square()
        value_loss = masked_mean(error.squeeze(-1), valid)
        action = tensordict.get(keys.ACTION) if self.normalize_entropy else None
        return TensorDict(
            {
                "loss_objective": masked_mean(objective.squeeze(-1), valid),
                "loss_critic": self.critic_coeff * value_loss,
                "scaled_value_loss": value_loss.detach(),
                **entropy_bonus(policy, valid, self.entropy_coeff, action),
            }
        )


class VTraceLoss(nn.Module):
    """The policy gradient with V-trace's advantages and targets (Espeholt et al. 2018), computed with the present
    critic and policy.

    Reads sequences [B, T] with :data:`PAID`, the ``action_log_prob`` of the behavior policy and :data:`BOOTSTRAP`;
    writes ``advantage`` and ``value_target`` into them.

    Args:
        objective: the policy gradient.
        critic: the state value's head.
        gamma: discount factor.
        rho_clip: largest importance weight of a temporal difference and of a policy gradient.
        c_clip: largest importance weight with which a temporal difference is traced back.
    """

    def __init__(
        self,
        objective: PolicyGradientLoss,
        critic: TensorDictModuleBase,
        *,
        gamma: float,
        rho_clip: float,
        c_clip: float,
    ) -> None:
        super().__init__()
        self.objective, self.critic, self.gamma = objective, critic, gamma
        # as tensors on the device, or TorchRL would copy them there in every update
        self.register_buffer("rho_clip", torch.tensor(rho_clip), persistent=False)
        self.register_buffer("c_clip", torch.tensor(c_clip), persistent=False)

    @property
    def entropy_coeff(self) -> Tensor:
        """Weight of the entropy bonus."""
        return self.objective.entropy_coeff

    def forward(self, encoded: TensorDictBase) -> TensorDict:
        """Compute ``loss_objective``, ``loss_critic``, ``loss_entropy``; the distance to the behavior policy: ``kl``
        and the extremes of the ratio; ``entropy`` and ``explained_variance``.
        """
        policy = self.objective.actor_network.get_dist(encoded)
        log_prob = policy.log_prob(encoded.get(keys.ACTION))
        log_ratio, values, advantage, target = self.advantages(encoded, log_prob.detach().unsqueeze(-1))
        encoded.update({keys.ADVANTAGE: advantage, keys.VALUE_TARGET: target})  # the modules' own losses read them too
        losses = self.objective.losses(encoded, policy, log_prob)

        valid = encoded.get(keys.VALID, None)
        counted = torch.ones_like(target, dtype=torch.bool) if valid is None else valid.unsqueeze(-1)
        log_ratio = torch.where(counted, log_ratio, 0.0)
        ratio = log_ratio.exp()
        return losses.update(
            {
                "kl": masked_mean(ratio - 1 - log_ratio, None if valid is None else counted),
                "max_ratio": ratio.amax(),
                "min_ratio": ratio.amin(),
                "explained_variance": explained_variance(target, values, counted),
            }
        )

    @torch.no_grad()
    def advantages(self, encoded: TensorDictBase, log_prob: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Logarithm of the ratio to the behavior policy, values, V-trace's advantages and targets, [B, T, 1] each,
        given the present log-probabilities of the actions. (TorchRL's ``VTrace`` module weighs actions that it draws
        anew.)
        """
        reward, done, terminated = (encoded.get(key) for key in PAID)
        log_ratio = log_prob - encoded.get(keys.LOG_PROB).unsqueeze(-1)
        log_ratio = log_ratio.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
        values = self.critic(encoded.select(*self.critic.in_keys)).get(keys.VALUE).float()
        bootstrap = encoded.get(BOOTSTRAP)
        next_values = torch.where(done, bootstrap, torch.cat([values[:, 1:], bootstrap[:, -1:]], 1))
        advantage, target = vtrace_advantage_estimate(
            self.gamma,
            log_ratio,
            torch.zeros_like(log_ratio),  # as if the behavior policy had had probability 1
            values,
            next_values,
            reward,
            done,
            terminated,
            rho_thresh=self.rho_clip,
            c_thresh=self.c_clip,
        )
        return log_ratio, values, advantage, target


def check_discrete(actor_network: ProbabilisticTensorDictSequential, setting: str) -> None:
    """Raise ValueError if a setting of the section ``algorithm`` meets actions that are not discrete."""
    choice = actor_network[-1]
    assert isinstance(choice, ProbabilisticTensorDictModule)
    if choice.distribution_class in (ClippedNormal, MixedDistribution):
        raise ValueError(f"algorithm.{setting} needs discrete actions, but this world's are continuous: leave it out.")


def entropy_bonus(
    policy: Distribution, counted: Tensor | None, coefficient: Tensor, action: Tensor | None = None
) -> dict[str, Tensor]:
    """Compute ``loss_entropy``, which rewards a policy for high entropy, the ``entropy``, and ``std``, the mean
    standard deviation of continuous actions in the world's units.

    Given an ``action`` the entropy is the sum over heads of its fraction of the largest, with the masks that this
    action leaves to them.
    """
    entropy = policy.entropy() if action is None else policy.heads(action).normalized_entropy.sum(-1)
    bonus = masked_mean(coefficient * entropy, counted)
    deviation = {"std": policy.scale.detach().mean()} if isinstance(policy, ClippedNormal) else {}
    return {"loss_entropy": -bonus, "entropy": masked_mean(entropy.detach(), counted), **deviation}
