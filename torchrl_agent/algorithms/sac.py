"""Soft actor-critic (Haarnoja et al. 2018), for continuous actions or discrete ones (Christodoulou 2019)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torchrl.envs import EnvBase
from typing_extensions import override

from torchrl_agent.algorithms.algorithm import check_config
from torchrl_agent.algorithms.off_policy import OffPolicy, OffPolicyConfig
from torchrl_agent.core.bounds import any_number, choice, count, number
from torchrl_agent.losses.sac import SoftActorCriticLoss
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.config import ModelConfig
from torchrl_agent.models.sac_agent import DEVIATIONS, SACAgent
from torchrl_agent.optimization.schedules import LearningRateConfig


@dataclass
class SACConfig(OffPolicyConfig):
    """Hyper-parameters of SAC."""

    _target_: str = "torchrl_agent.algorithms.sac.SAC"
    learning_rate: LearningRateConfig = field(default_factory=lambda: LearningRateConfig(3e-4))
    num_steps: int = count(1)
    initial_temperature: float = number(1.0, above=0)
    """First alpha: worth of a nat of entropy. In scaled rewards; it is learned."""
    deviation: str = choice("softplus", DEVIATIONS)
    """Function that makes a policy's output a standard deviation. Of continuous actions."""
    target_entropy: float | None = any_number(None)
    """Entropy that the temperature aims at, in nats. Of continuous actions in -1 to 1, whatever their range; None is
    the agent's ``default_entropy``: minus the size of a continuous action (Haarnoja et al. 2018), or a tenth of the
    greatest entropy of discrete ones."""


class SAC(OffPolicy):
    """Soft actor-critic; see :class:`~torchrl_agent.algorithms.algorithm.Algorithm`."""

    name = "sac"
    config_class = SACConfig
    config: SACConfig
    agent: SACAgent
    loss: SoftActorCriticLoss

    @override
    @classmethod
    def make_agent(cls, env: EnvBase, model: ModelConfig, config: Any) -> Agent:
        """Make an agent with a policy and action values."""
        check_config(config)
        return SACAgent(env, model, config.gamma, config.initial_temperature, config.deviation)

    @override
    def make_loss(self) -> SoftActorCriticLoss:
        """Return the losses of action values, policy and temperature."""
        wanted = self.config.target_entropy
        entropy = self.agent.default_entropy if wanted is None else wanted
        return SoftActorCriticLoss(self.agent, gamma=self.config.gamma, target_entropy=entropy)
