"""Proximal policy optimisation (Schulman et al. 2017): advantages, then epochs of clipped minibatch updates, all on the
device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.objectives import ClipPPOLoss

from torchrl_agent import keys
from torchrl_agent.models.agent import Agent
from torchrl_agent.ranges import FRAMES
from torchrl_agent.training.acceleration import AccelerationConfig, Captured
from torchrl_agent.training.actor_critic import ActorCritic, ActorCriticConfig, EncodedLoss
from torchrl_agent.training.algorithm import check_config, check_positive, check_share

LARGEST_LOG_RATIO = 20.0
"""Probability ratios are kept within exp(+-20), so that no pair of log-probabilities overflows."""


@dataclass
class PPOConfig(ActorCriticConfig):
    """Hyper-parameters of PPO."""

    minibatch_size: int = field(default=4096, metadata=FRAMES)
    """Frames per update; must divide rollout_steps * worlds."""
    num_epochs: int = 4
    """Passes over each rollout."""
    clip_epsilon: float = 0.2
    """Range of the probability ratio."""
    clip_value: float | None = None
    """Range of the value's change per iteration; None does not clip."""
    normalize_advantage: bool = True
    """Zero mean and unit variance of advantages in each minibatch."""
    target_kl: float | None = None
    """Stop the iteration's updates once the approximate KL exceeds 1.5 times this; None never stops."""


class PPOLoss(EncodedLoss, ClipPPOLoss):
    """:class:`~torchrl.objectives.ClipPPOLoss` that never waits for the host, compiles as one graph and bounds the
    log-ratio.

    TorchRL's own samples the entropy again when compiled, asks the device whether it is finite when not, and tests the
    value clip as a tensor. Adds ``kl`` (Schulman's unbiased estimate ``mean(ratio - 1 - log ratio)``), ``min_ratio``
    and ``max_ratio``.
    """

    def __init__(self, agent: Agent, config: PPOConfig) -> None:
        super().__init__(
            agent,
            clip_epsilon=config.clip_epsilon,
            entropy_coeff=config.entropy_coeff,
            critic_coeff=config.critic_coeff,
            normalize_advantage=config.normalize_advantage,
            log_explained_variance=False,
            clip_value=config.clip_value,
        )
        self._buffers.pop("clip_value", None)
        self.__dict__["clip_value"] = config.clip_value

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Losses (``loss_*``) and diagnostics of one minibatch [B], or of sequences [B, T]; the encoder runs once."""
        return super().forward(tensordict).exclude("kl_approx", "ESS", "mean_ratio")

    def look(self, tensordict: TensorDictBase) -> dict[str, Tensor]:
        """How far the policy is from the one that played."""
        with torch.no_grad():  # the objective's numbers, which compiled code computes only once
            log_ratio = self._log_weight(tensordict, tensordict.batch_size)[0]
        ratio = log_ratio.exp()
        return {"kl": (ratio - 1 - log_ratio).mean(), "min_ratio": ratio.min()}

    def _log_weight(self, tensordict: TensorDictBase, adv_shape: torch.Size) -> tuple:
        log_weight, dist, *rest = super()._log_weight(tensordict, adv_shape)
        log_weight = log_weight.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
        dist.counted = tensordict.get(keys.VALID, None)
        if dist.counted is not None:
            log_weight = torch.where(dist.counted.unsqueeze(-1), log_weight, 0.0)
        return log_weight, dist, *rest

    def _get_entropy(self, dist: torch.distributions.Distribution, adv_shape: torch.Size) -> Tensor:
        return self.counted_entropy(dist)


class PPO(ActorCritic):
    """Proximal policy optimisation; see :class:`~torchrl_agent.training.algorithm.Algorithm`."""

    name = "ppo"
    config: PPOConfig

    def __init__(self, agent: Agent, config: PPOConfig, rows: int, acceleration: AccelerationConfig) -> None:
        check_ppo(config, rows, sequences=agent.sequential)
        self._may_stop = config.target_kl is not None
        super().__init__(agent, config, rows, acceleration)
        self.running = torch.ones((), device=self.device)
        """1 while this iteration's updates go on, 0 once the KL stopped them."""
        self._epoch = Captured("an epoch's updates", self._update_with_all, self._graphs_on if self._may_stop else None)
        if self._may_stop:
            self.captured = self._epoch

    def make_loss(self) -> PPOLoss:
        """The clipped objective."""
        return PPOLoss(self.agent, self.config)

    def _updates(self, data: TensorDict) -> TensorDict:
        self.running.fill_(1.0)
        history = []
        for _ in range(self.config.num_epochs):
            history.append(self._epoch(data).clone())
            if self._may_stop and not bool(self.running):
                break
        return torch.cat(history)

    def _update_with_all(self, data: TensorDict) -> TensorDict:
        """One epoch."""
        size = self.config.minibatch_size // math.prod(data.shape[1:])
        return torch.stack([self._update_minibatch(minibatch) for minibatch in self._minibatches(data, size)])

    def _wanted(self, metrics: dict[str, Tensor]) -> Tensor | bool:
        if self.config.target_kl is not None:
            self.running.mul_(metrics["kl"] <= 1.5 * self.config.target_kl)
        return self.running > 0


def check_ppo(config: PPOConfig, rows: int, sequences: bool = False) -> None:
    """Raise ValueError naming the first hyper-parameter that cannot work."""
    check_config(config, "ppo")
    check_positive(config, "ppo", "minibatch_size", "num_epochs", "clip_epsilon")
    check_share(config, "ppo", "lmbda")
    frames = config.rollout_steps * rows
    if frames % config.minibatch_size:
        raise ValueError(
            f"ppo.minibatch_size={config.minibatch_size} does not divide the {frames} frames of a rollout "
            f"({config.rollout_steps} steps x {rows} worlds or agents): choose a divisor of {frames}."
        )
    if sequences and config.minibatch_size % config.rollout_steps:
        raise ValueError(
            f"ppo.minibatch_size={config.minibatch_size} is no multiple of ppo.rollout_steps={config.rollout_steps}: "
            "an agent with memory learns from whole sequences."
        )
