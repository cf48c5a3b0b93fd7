"""IMPALA's learner (Espeholt et al. 2018): an actor-critic that learns from frames collected by an older policy,
corrected by V-trace.

The collector acts with a frozen copy of the agent that is refreshed every few iterations (:class:`LaggedPolicy`). So
learning truly is off-policy, as it is with many actor machines and one learner; with several processes, actors are
processes of their own (``torchrl_agent/training/actor_learner.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from tensordict import TensorDict
from torch import Tensor
from typing_extensions import override

from torchrl_agent.algorithms.actor_critic import ActorCritic, ActorCriticConfig
from torchrl_agent.algorithms.algorithm import check_config
from torchrl_agent.core import keys
from torchrl_agent.core.bounds import count, number, share
from torchrl_agent.losses.policy_gradient import BOOTSTRAP, PAID, AgentLoss, VTraceLoss
from torchrl_agent.models.agent import Agent
from torchrl_agent.optimization.compilation import AccelerationConfig, CompiledFunction
from torchrl_agent.optimization.schedules import LearningRateConfig


@dataclass
class IMPALAConfig(ActorCriticConfig):
    """Hyper-parameters of IMPALA."""

    _target_: str = "torchrl_agent.algorithms.impala.IMPALA"
    rollout_steps: int = count(32)
    """Rollout length: steps of every world per iteration."""
    num_minibatches: int = count(4)
    """Updates per iteration. Each has its fraction of the sequences; must divide the number of worlds times agents."""
    refresh_every: int = count(2)
    """Iterations between refreshes of the acting policy. The one that learns replaces it; 1 is hardly off-policy."""
    learning_rate: LearningRateConfig = field(default_factory=lambda: LearningRateConfig(5e-4))
    lmbda: float = share(1.0)
    """Lambda of the manager's advantages; V-trace has none."""
    rho_clip: float = number(1.0, above=0, infinite=True)
    """Largest importance weight of a temporal difference. It cuts the weight of the policy gradient too."""
    c_clip: float = number(1.0, above=0, infinite=True)
    """Largest importance weight with which differences are traced back."""


class IMPALA(ActorCritic):
    """An actor-critic with V-trace; see :class:`~torchrl_agent.algorithms.algorithm.Algorithm`."""

    name = "impala"
    config_class = IMPALAConfig
    config: IMPALAConfig
    plays_apart = True

    def __init__(
        self, agent: Agent, config: IMPALAConfig, rows: int, acceleration: AccelerationConfig | None = None
    ) -> None:
        check_config(config)
        if rows % config.num_minibatches:
            raise ValueError(
                f"algorithm.num_minibatches={config.num_minibatches} does not divide the {rows} sequences of a "
                f"rollout: choose a divisor of {rows}."
            )
        super().__init__(agent, config, rows, acceleration)
        self.drawn_at_once = rows // config.num_minibatches
        self.lags(config.refresh_every)
        scaler = CompiledFunction("the reward scaler", self.rewards, self.acceleration.advantages_on(self.device))
        self.scaled_rewards, self.accelerated = scaler.call, (scaler, *self.accelerated)

    @override
    def make_loss(self) -> AgentLoss:
        """Return the policy gradient with V-trace."""
        config, agent = self.config, self.agent
        clips = {"rho_clip": config.rho_clip, "c_clip": config.c_clip}
        return AgentLoss(agent, VTraceLoss(self.policy_gradient(), agent.critic_head, gamma=config.gamma, **clips))

    @override
    def improve(self, rollout: TensorDict) -> dict[str, Tensor]:
        """Make the updates, each with its minibatch of sequences."""
        data = self.sequences(rollout)
        return self.conclude(data, self.updater.updates(self.minibatches(data)))

    @torch.no_grad()
    def sequences(self, rollout: TensorDict) -> TensorDict:
        """The rollout as sequences [rows, T] from which the loss computes advantages."""
        bootstrap = self.last_values(rollout.get(keys.NEXT))
        reward, signals = self.scaled_rewards(rollout)
        data = self.recorded(rollout, reward, bootstrap)
        data.update({BOOTSTRAP: bootstrap[..., :1], **dict(zip(PAID, signals, strict=True))})
        return data.transpose(0, 1)
