"""Proximal policy optimization (Schulman et al. 2017): advantages, then epochs of clipped minibatch updates, all on the
device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from tensordict import TensorDict
from torch import Tensor
from typing_extensions import override

from torchrl_agent.algorithms.actor_critic import ActorCriticConfig, OnPolicyActorCritic
from torchrl_agent.algorithms.algorithm import check_config
from torchrl_agent.core import keys, ranks
from torchrl_agent.core.bounds import FRAMES, choice, count, number
from torchrl_agent.losses.per_head import PerHeadPPOLoss
from torchrl_agent.losses.policy_gradient import AgentLoss, PPOLoss
from torchrl_agent.models.agent import Agent
from torchrl_agent.optimization.compilation import AccelerationConfig, CudaGraphFunction
from torchrl_agent.optimization.schedules import ADAPTIVE, MOVING, AdaptiveRate

RATIOS = ("joint", "per_head")


@dataclass
class PPOConfig(ActorCriticConfig):
    """Hyper-parameters of PPO."""

    _target_: str = "torchrl_agent.algorithms.ppo.PPO"
    minibatch_size: int = count(4096, FRAMES)
    """Minibatch size: frames per gradient step. Those of a rollout at most; where it does not divide them, the last
    minibatch of an epoch is filled up with frames that count nothing."""
    num_epochs: int = count(4)
    """Epochs: passes over each rollout."""
    clip_epsilon: float = number(0.2, above=0)
    """Clipping range of the probability ratio."""
    ratio: str = choice("joint", RATIOS)
    """Probability ratio of actions with several heads. ``joint``: that of the whole action; ``per_head``: one for each
    head, clipped on its own, where the head has more than one legal value."""
    final_clip_epsilon: float | None = number(None, least=0)
    """Clipping range at the end of training. None keeps it as it is."""
    clip_schedule: str = choice("linear", MOVING)
    """Schedule of the clipping range. From the first to the final one."""
    clip_value: float | None = number(None, above=0)
    """Value clipping: range of change per iteration. None does not clip."""
    normalize_advantage: bool = True
    """Advantage normalization: mean 0, deviation 1 per minibatch."""
    target_kl: float | None = number(None, above=0)
    """Early stopping of updates beyond 1.5 times this. Of the iteration's, by the approximate KL; None never stops."""
    adaptive_kl: float = number(0.01, above=0)
    """KL of an update that ``learning_rate.schedule=adaptive`` aims at."""


class PPO(OnPolicyActorCritic):
    """Proximal policy optimization: :meth:`improve` of its base class with several passes over a rollout and a clipped
    loss; see :class:`~torchrl_agent.algorithms.algorithm.Algorithm`.
    """

    name = "ppo"
    config_class = PPOConfig
    config: PPOConfig
    adapts_rate = True

    def __init__(
        self, agent: Agent, config: PPOConfig, rows: int, acceleration: AccelerationConfig | None = None
    ) -> None:
        check_ppo(config, rows * ranks.size(), sequences=agent.sequential)
        self.num_epochs = config.num_epochs
        frames_each = config.rollout_steps if agent.sequential else 1
        what = "the number of sequences in algorithm.minibatch_size" if agent.sequential else "algorithm.minibatch_size"
        size = min(config.minibatch_size, config.rollout_steps * rows * ranks.size())
        self.drawn_at_once = ranks.share(size // frames_each, what)
        self.fills_up = config.rollout_steps * rows * ranks.size() % size != 0
        self.normalizes_with_others = config.normalize_advantage and ranks.size() > 1
        if config.ratio == "per_head" and keys.LOGITS not in agent.recorded_keys:
            agent.recorded_keys.append(keys.LOGITS)
        super().__init__(agent, config, rows, acceleration)
        if config.learning_rate.schedule == ADAPTIVE:
            self.updater.adaptive = AdaptiveRate(config.learning_rate.initial, config.adaptive_kl, self.device)
        if config.final_clip_epsilon is not None:
            clips = config.clip_schedule, config.clip_epsilon, config.final_clip_epsilon
            self.annealed.append((self.loss.objective.clip_epsilon, *clips))
        self.running = torch.ones((), device=self.device)
        """1 while this iteration's updates continue, 0 after the KL stopped them."""
        if config.target_kl is not None:  # the host asks after each epoch whether another follows: there graphs end
            self.updater.wanted = self._goes_on
            self.captured = CudaGraphFunction("an epoch's updates", self._epoch, self.graphs_on)
            self.iteration = self.improve

    @override
    def passes(self, data: TensorDict) -> TensorDict:
        """Make the updates of every pass, with a target until the KL ends those of this iteration."""
        if self.config.target_kl is None:
            return super().passes(data)
        self.running.fill_(1.0)
        history = []
        for _ in range(self.num_epochs):
            history.append(self.captured.call(data).clone())
            if not bool(self.running):
                break
        return torch.cat(history)

    def _epoch(self, data: TensorDict) -> TensorDict:
        """Make the updates of one pass over the frames; returns their diagnostics [updates]."""
        return self.updater.updates(self.minibatches(data))

    def _goes_on(self, metrics: dict[str, Tensor]) -> Tensor:
        """True (bool []) if an update shall be made, given its diagnostics; after a False no other
        update follows in this iteration.
        """
        assert self.config.target_kl is not None
        self.running.mul_(metrics["kl"] <= 1.5 * self.config.target_kl)
        return self.running > 0

    @override
    def make_loss(self) -> AgentLoss:
        """Return the clipped objective."""
        config, agent = self.config, self.agent
        kind = partial(PerHeadPPOLoss, names=agent.head_names) if config.ratio == "per_head" else PPOLoss
        objective = kind(
            agent.actor_head,
            agent.critic_head,
            clip_epsilon=config.clip_epsilon,
            clip_value=config.clip_value,
            critic_coeff=config.critic_coeff,
            entropy_coeff=config.entropy_coeff,
            normalize_advantage=config.normalize_advantage and not self.normalizes_with_others,
            normalize_entropy=config.normalize_entropy,
        )
        return AgentLoss(agent, objective)


def check_ppo(config: PPOConfig, rows: int, sequences: bool = False) -> None:
    """Raise ValueError naming the first hyper-parameter that cannot work."""
    check_config(config)
    if config.clip_schedule == "exponential" and config.final_clip_epsilon == 0:
        raise ValueError("an exponential schedule never reaches 0: give algorithm.final_clip_epsilon above 0.")
    frames = config.rollout_steps * rows
    size = min(config.minibatch_size, frames)
    if ranks.size() > 1 and frames % size:
        raise ValueError(
            f"algorithm.minibatch_size={size} does not divide the {frames} frames of a rollout ({config.rollout_steps} "
            f"steps x {rows} worlds or agents), which several processes share: choose a divisor of {frames}."
        )
    if sequences and size % config.rollout_steps:
        raise ValueError(
            f"algorithm.minibatch_size={config.minibatch_size} is no multiple of "
            f"algorithm.rollout_steps={config.rollout_steps}: an agent with memory learns from whole sequences."
        )
