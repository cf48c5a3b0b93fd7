"""What algorithms with a policy and a critic minimise, read from top to bottom: the clipped objective (PPO), the policy
gradient (A2C), and the policy gradient with V-trace's advantages (IMPALA).

Each objective is made of one of TorchRL's losses. It asks the policy itself, once, and hands the log-probabilities on
(:class:`PrecomputedLogProb`): so ratios are bounded and frames that do not count (``keys.VALID``) are left out before
TorchRL's arithmetic begins, nothing waits for the host, and all of it compiles as one graph.

Shapes: ``B`` frames, or ``B`` sequences of ``T`` frames; what is called [...] is either [B] or [B, T].
"""

from __future__ import annotations

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import (
    ProbabilisticTensorDictModule,
    ProbabilisticTensorDictSequential,
    TensorDictModuleBase,
)
from torch import Tensor, nn
from torch.distributions import Distribution
from torchrl.objectives import A2CLoss, ClipPPOLoss
from torchrl.objectives.value.functional import vtrace_advantage_estimate

from torchrl_agent import keys
from torchrl_agent.losses.masked import explained_variance, mean_of_counted, share_of_counted, where_counted
from torchrl_agent.models.agent import Agent
from torchrl_agent.modules.distributions import ClippedNormal

LARGEST_LOG_RATIO = 20.0
"""Probability ratios are kept within exp(+-20), so that no pair of log-probabilities overflows."""
PRECOMPUTED = "precomputed_log_prob"
"""What TorchRL's losses take for the log-probability of the actions taken, [...]."""
BOOTSTRAP = "bootstrap_value"
"""The critic's value of the observation after a step, which counts where an episode or the rollout ends, [..., 1]."""
PAID = ("controller_reward", "controller_done", "controller_terminated")
"""The controller's reward, and where what it learns from ends: the episode's, or an option's, [..., 1] each."""


class AgentLoss(nn.Module):
    """An objective of an agent: the encoder runs once for actor, critic and modules, whose own losses join in.

    Losses that have ``subsampled`` set see the first ``model.taught_share`` of each minibatch, whose order is random.

    Args:
        agent: what learns.
        objective: from what the encoder made of a minibatch to ``loss_*`` and diagnostics.
    """

    def __init__(self, agent: Agent, objective: nn.Module) -> None:
        super().__init__()
        self.encoder, self.objective, self.auxiliary = agent.encoder, objective, agent.auxiliary
        self.taught_share = agent.taught_share

    def forward(self, minibatch: TensorDictBase) -> TensorDict:
        """Losses (``loss_*``) and diagnostics of frames [B], or of sequences [B, T] in TorchRL's recurrent mode."""
        encoded = self.encoder(minibatch.copy())
        losses = self.objective(encoded)
        taught = encoded[: max(1, round(self.taught_share * len(encoded)))]
        for auxiliary in self.auxiliary:
            losses.update(auxiliary(taught if getattr(auxiliary, "subsampled", False) else encoded))
        return losses


class PPOLoss(nn.Module):
    """The clipped objective of proximal policy optimisation (Schulman et al. 2017), by
    :class:`~torchrl.objectives.ClipPPOLoss`, with the critic's squared error and an entropy bonus.

    Reads the ``advantage``, ``value_target``, ``state_value``, ``action`` and ``action_log_prob`` of the rollout.

    Args:
        actor: the policy's head.
        critic: the state value's head.
        clip_epsilon: range of the probability ratio.
        clip_value: range of the value's change, or None.
        critic_coeff: weight of the critic's loss.
        entropy_coeff: weight of the entropy bonus.
        normalize_advantage: zero mean and unit standard deviation of the minibatch's advantages.
    """

    def __init__(
        self,
        actor: ProbabilisticTensorDictSequential,
        critic: TensorDictModuleBase,
        *,
        clip_epsilon: float,
        clip_value: float | None,
        critic_coeff: float,
        entropy_coeff: float,
        normalize_advantage: bool,
    ) -> None:
        super().__init__()
        self.actor = actor
        self.clipped = ClipPPOLoss(
            precomputed_policy(),
            critic,
            clip_epsilon=clip_epsilon,
            critic_coeff=1.0,  # the weight is ours, so that it may be 0 and the error is known
            loss_critic_type="l2",
            normalize_advantage=normalize_advantage,
            reduction="none",  # the means are ours, as what TorchRL does to them cannot run for members at once
            entropy_bonus=False,  # ours, as TorchRL's asks the device whether the entropy is finite
            log_explained_variance=False,
            functional=False,
        )
        # a plain number: TorchRL asks whether it is 0, and of a tensor the host would wait for the answer
        self.clipped.clip_value = clip_value
        self.register_buffer("critic_coeff", torch.tensor(critic_coeff), persistent=False)
        self.register_buffer("entropy_coeff", torch.tensor(entropy_coeff), persistent=False)

    def forward(self, encoded: TensorDictBase) -> TensorDict:
        """``loss_objective``, ``loss_critic``, ``loss_entropy``; how far the policy is from the one that played:
        ``kl`` (Schulman's unbiased estimate ``ratio - 1 - log ratio``), ``clip_fraction``, ``clip_range`` and the
        extremes of the ratio; ``entropy``, ``scaled_value_loss``, and ``std`` of continuous actions.
        """
        policy, counted = self.actor.get_dist(encoded), encoded.get(keys.VALID, None)
        log_ratio = policy.log_prob(encoded.get(keys.ACTION)) - encoded.get(keys.LOG_PROB)
        log_ratio = where_counted(log_ratio.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO), counted)

        # TorchRL's ratio is exp(log_prob - action_log_prob): the ratio goes in as if what played had had probability 1
        given = {PRECOMPUTED: log_ratio, keys.LOG_PROB: torch.zeros_like(log_ratio)}
        found = self.clipped(encoded.copy().update(given))
        losses = found.select("value_clip_fraction", "max_ratio", strict=False)
        losses.update(mean_losses(found, counted, self.critic_coeff))
        losses.update(entropy_bonus(policy, counted, self.entropy_coeff))

        log_ratio, share = log_ratio.detach(), share_of_counted(counted)
        ratio = log_ratio.exp()
        return losses.update(
            {
                "kl": (ratio - 1 - log_ratio).mean() / share,
                "clip_fraction": found.get("clip_fraction") / share,
                "clip_range": self.clipped.clip_epsilon.clone(),
                "min_ratio": ratio.min(),
            }
        )


class PolicyGradientLoss(nn.Module):
    """The policy gradient with a critic (Mnih et al. 2016), ``-log pi(a|s) advantage``, by
    :class:`~torchrl.objectives.A2CLoss`, with the critic's squared error and an entropy bonus.

    Reads ``advantage``, ``value_target`` and ``action``.

    Args:
        actor: the policy's head.
        critic: the state value's head.
        critic_coeff: weight of the critic's loss.
        entropy_coeff: weight of the entropy bonus.
    """

    def __init__(
        self,
        actor: ProbabilisticTensorDictSequential,
        critic: TensorDictModuleBase,
        *,
        critic_coeff: float,
        entropy_coeff: float,
    ) -> None:
        super().__init__()
        self.actor = actor
        self.policy_gradient = A2CLoss(
            precomputed_policy(),
            critic,
            critic_coeff=1.0,  # the weight is ours, so that it may be 0 and the error is known
            loss_critic_type="l2",
            reduction="none",
            entropy_bonus=False,
            functional=False,
        )
        self.register_buffer("critic_coeff", torch.tensor(critic_coeff), persistent=False)
        self.register_buffer("entropy_coeff", torch.tensor(entropy_coeff), persistent=False)

    def forward(self, encoded: TensorDictBase) -> TensorDict:
        """``loss_objective``, ``loss_critic``, ``loss_entropy``; ``entropy``."""
        policy = self.actor.get_dist(encoded)
        return self.losses(encoded, policy, policy.log_prob(encoded.get(keys.ACTION)))

    def losses(self, encoded: TensorDictBase, policy: Distribution, log_prob: Tensor) -> TensorDict:
        """The same, of a policy that has been asked for the log-probability [...] of the actions."""
        found, counted = self.policy_gradient(encoded.copy().set(PRECOMPUTED, log_prob)), encoded.get(keys.VALID, None)
        losses = TensorDict(mean_losses(found, counted, self.critic_coeff))
        return losses.update(entropy_bonus(policy, counted, self.entropy_coeff))


class VTraceLoss(nn.Module):
    """The policy gradient with V-trace's advantages and targets (Espeholt et al. 2018), from the critic and the policy
    as they are now.

    Reads sequences [B, T] with :data:`PAID`, the ``action_log_prob`` of the policy that played and :data:`BOOTSTRAP`;
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
        """``loss_objective``, ``loss_critic``, ``loss_entropy``; how far the policy is from the one that played: ``kl``
        and the extremes of the ratio; ``entropy`` and ``explained_variance``.
        """
        policy = self.objective.actor.get_dist(encoded)
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
                "kl": (ratio - 1 - log_ratio).mean() / share_of_counted(valid),
                "max_ratio": ratio.amax(),
                "min_ratio": ratio.amin(),
                "explained_variance": explained_variance(target, values, counted),
            }
        )

    @torch.no_grad()
    def advantages(self, encoded: TensorDictBase, log_prob: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Logarithm of the ratio to the policy that played, values, V-trace's advantages and targets, [B, T, 1] each,
        given the log-probabilities of the actions now. (TorchRL's ``VTrace`` module weighs actions that it draws anew.)
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
            torch.zeros_like(log_ratio),  # as if what played had had probability 1
            values,
            next_values,
            reward,
            done,
            terminated,
            rho_thresh=self.rho_clip,
            c_thresh=self.c_clip,
        )
        return log_ratio, values, advantage, target


def mean_losses(found: TensorDictBase, counted: Tensor | None, critic_coeff: Tensor) -> dict[str, Tensor]:
    """Means of the losses [...] of the policy and of the critic over the frames that count, and that of the critic
    without its weight: ``scaled_value_loss``, the mean squared error in scaled rewards.
    """
    error = mean_of_counted(found.get("loss_critic"), counted)
    objective = mean_of_counted(found.get("loss_objective"), counted)
    return {"loss_objective": objective, "loss_critic": critic_coeff * error, "scaled_value_loss": error.detach()}


def entropy_bonus(policy: Distribution, counted: Tensor | None, coefficient: Tensor) -> dict[str, Tensor]:
    """``loss_entropy``, which rewards a policy for being undecided, the ``entropy``, and ``std``, the mean standard
    deviation of continuous actions in the world's units.
    """
    entropy = where_counted(policy.entropy(), counted)
    bonus = mean_of_counted(coefficient * entropy, counted)
    deviation = {"std": policy.scale.detach().mean()} if isinstance(policy, ClippedNormal) else {}
    return {"loss_entropy": -bonus, "entropy": entropy.detach().mean() / share_of_counted(counted), **deviation}


# --- a policy that has been asked ---------------------------------------------------------------------------------


class PrecomputedLogProb(Distribution):
    """The distribution of actions of a policy that has been asked already: it knows the log-probability of those taken.

    Args:
        log_prob: theirs, [...].
    """

    def __init__(self, log_prob: Tensor) -> None:
        super().__init__(log_prob.shape, validate_args=False)
        self.precomputed = log_prob

    def log_prob(self, value: Tensor) -> Tensor:
        """What it was given, [...]."""
        return self.precomputed


def precomputed_policy() -> ProbabilisticTensorDictModule:
    """An actor for TorchRL's losses that reads :data:`PRECOMPUTED` instead of asking a network once more."""
    return ProbabilisticTensorDictModule(
        in_keys={"log_prob": PRECOMPUTED},
        out_keys=[keys.ACTION],
        distribution_class=PrecomputedLogProb,
        return_log_prob=True,
        log_prob_key=keys.LOG_PROB,
    )
