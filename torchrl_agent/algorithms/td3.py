"""Twin delayed deterministic policy gradients, TD3 (Fujimoto et al. 2018), for continuous actions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tensordict import TensorDict
from torch import Tensor
from torchrl.envs import EnvBase
from typing_extensions import override

from torchrl_agent.algorithms.off_policy import OffPolicy, OffPolicyConfig
from torchrl_agent.core.bounds import count, number
from torchrl_agent.losses.td3 import DeterministicActorCriticLoss
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.config import ModelConfig
from torchrl_agent.models.td3_agent import TD3Agent
from torchrl_agent.optimization.compilation import AccelerationConfig
from torchrl_agent.optimization.schedules import LearningRateConfig


@dataclass
class TD3Config(OffPolicyConfig):
    """Hyper-parameters of TD3."""

    _target_: str = "torchrl_agent.algorithms.td3.TD3"
    learning_rate: LearningRateConfig = field(default_factory=lambda: LearningRateConfig(3e-4))
    num_steps: int = count(1)
    policy_delay: int = count(2)
    """Policy delay (d): value updates per policy update. The target network then follows."""
    exploration_noise: float = number(0.1, least=0)
    """Deviation of the noise on actions. In halves of their range; 1 until ``learning_starts``."""
    target_noise: float = number(0.2, least=0)
    """Deviation of the noise on target actions. Likewise (target policy smoothing)."""
    noise_clip: float = number(0.5, least=0)
    """Largest noise on target actions."""


class TD3(OffPolicy):
    """Twin delayed deterministic policy gradients; see :class:`~torchrl_agent.algorithms.algorithm.Algorithm`."""

    name = "td3"
    config_class = TD3Config
    config: TD3Config
    agent: TD3Agent
    loss: DeterministicActorCriticLoss

    def __init__(
        self, agent: TD3Agent, config: TD3Config, rows: int, acceleration: AccelerationConfig | None = None
    ) -> None:
        super().__init__(agent, config, rows, acceleration)
        self.updates_at_once = config.policy_delay

    @override
    @classmethod
    def make_agent(cls, env: EnvBase, model: ModelConfig, config: Any) -> Agent:
        """Make an agent with a deterministic policy and action values."""
        return TD3Agent(env, model, config.gamma)

    @override
    def make_loss(self) -> DeterministicActorCriticLoss:
        """Return the losses of policy and action values."""
        config = self.config
        return DeterministicActorCriticLoss(
            self.agent, gamma=config.gamma, target_noise=config.target_noise, noise_clip=config.noise_clip
        )

    @override
    def learn(self, rollout: TensorDict, learning_rate: float) -> dict[str, Tensor]:
        """Add a rollout [T, rows] to the replay, learn from it, then set the exploration noise."""
        diagnostics = super().learn(rollout, learning_rate)
        explores = self.config.exploration_noise if self.has_begun else 1.0
        self.agent.deterministic_policy.noise.fill_(explores)
        return diagnostics

    @override
    def _learn(self) -> dict[str, Tensor]:
        """Update the action values alone with all batches but the last, and the policy too with the last one."""
        self.loss.moves_policy = False
        alone = [super(TD3, self)._learn() for _ in range(self.updates_at_once - 1)]
        self.loss.moves_policy = True
        metrics = super()._learn()
        return {**metrics, "skipped": sum((each["skipped"] for each in alone), metrics["skipped"])}
