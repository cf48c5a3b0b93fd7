"""Deep Q-learning (Mnih et al. 2015) in its double (van Hasselt et al. 2016), dueling (Wang et al. 2016), n-step and
prioritised (Schaul et al. 2016) form.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tensordict import TensorDict
from torch import Tensor
from torchrl.envs import EnvBase
from typing_extensions import override

from torchrl_agent.algorithms.off_policy import OffPolicy, OffPolicyConfig
from torchrl_agent.core.bounds import FRAMES, count, share
from torchrl_agent.losses.dqn import ActionValueLoss
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.config import ModelConfig
from torchrl_agent.models.q_agent import QAgent
from torchrl_agent.optimization.schedules import LearningRateConfig


@dataclass
class DQNConfig(OffPolicyConfig):
    """Hyper-parameters of DQN."""

    _target_: str = "torchrl_agent.algorithms.dqn.DQN"
    learning_rate: LearningRateConfig = field(default_factory=lambda: LearningRateConfig(5e-4))
    double: bool = True
    """Double Q-learning. The learning network chooses the next action and the target network values it."""
    dueling: bool = True
    """Dueling network. A value and advantages instead of plain action values."""
    epsilon_initial: float = share(1.0)
    """First epsilon: fraction of random actions."""
    epsilon_final: float = share(0.05)
    """Last epsilon."""
    epsilon_frames: int = count(50_000, FRAMES)
    """Frames over which epsilon falls linearly."""


class DQN(OffPolicy):
    """Deep Q-learning; see :class:`~torchrl_agent.algorithms.algorithm.Algorithm`."""

    name = "dqn"
    config_class = DQNConfig
    config: DQNConfig
    agent: QAgent

    @override
    @classmethod
    def make_agent(cls, env: EnvBase, model: ModelConfig, config: Any) -> Agent:
        """Make an agent with action values."""
        return QAgent(env, model, config.gamma, config.dueling)

    @override
    def make_loss(self) -> ActionValueLoss:
        """Return the temporal-difference loss."""
        return ActionValueLoss(self.agent, gamma=self.config.gamma, double=self.config.double)

    @override
    def learn(self, rollout: TensorDict, learning_rate: float) -> dict[str, Tensor]:
        """Add a rollout [T, rows] to the replay, learn from it, then lower epsilon."""
        diagnostics = super().learn(rollout, learning_rate)
        exploration = self.agent.exploration.epsilon
        diagnostics["epsilon"] = exploration.clone()
        exploration.fill_(epsilon(self.config, self.frames))
        return diagnostics


def epsilon(config: DQNConfig, frames: int) -> float:
    """Fraction of random actions after ``frames`` frames."""
    done = min(1.0, frames / max(1, config.epsilon_frames))
    return config.epsilon_initial + (config.epsilon_final - config.epsilon_initial) * done
