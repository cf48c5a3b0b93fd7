"""Advantage actor-critic (Mnih et al. 2016, in its synchronous form): each frame of a rollout is used once."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from typing_extensions import override

from torchrl_agent.algorithms.actor_critic import ActorCriticConfig, OnPolicyActorCritic
from torchrl_agent.algorithms.algorithm import check_config
from torchrl_agent.core.bounds import choice, count, number
from torchrl_agent.losses.policy_gradient import AgentLoss
from torchrl_agent.models.agent import Agent
from torchrl_agent.optimization.compilation import AccelerationConfig
from torchrl_agent.optimization.schedules import LearningRateConfig

OPTIMIZERS = ("adam", "rmsprop")


@dataclass
class A2CConfig(ActorCriticConfig):
    """Hyper-parameters of A2C."""

    _target_: str = "torchrl_agent.algorithms.a2c.A2C"
    rollout_steps: int = count(8)
    """Rollout length: steps of every world per iteration."""
    num_minibatches: int = count(1)
    """Updates per iteration. Each has its fraction of the frames (of the sequences, for an agent with memory)."""
    learning_rate: LearningRateConfig = field(default_factory=lambda: LearningRateConfig(1e-3))
    optimizer: str = choice("adam", OPTIMIZERS)
    """Optimizer. rmsprop is the paper's."""
    rmsprop_decay: float = number(0.99, least=0, below=1)
    """Smoothing constant (alpha) of RMSprop's mean of squared gradients."""


class A2C(OnPolicyActorCritic):
    """Advantage actor-critic; see :class:`~torchrl_agent.algorithms.algorithm.Algorithm`."""

    name = "a2c"
    config_class = A2CConfig
    config: A2CConfig

    def __init__(
        self, agent: Agent, config: A2CConfig, rows: int, acceleration: AccelerationConfig | None = None
    ) -> None:
        check_config(config)
        units = rows if agent.sequential else rows * config.rollout_steps
        if units % config.num_minibatches:
            raise ValueError(
                f"algorithm.num_minibatches={config.num_minibatches} does not divide the {units} "
                f"{'sequences' if agent.sequential else 'frames'} of a rollout: choose a divisor of {units}."
            )
        super().__init__(agent, config, rows, acceleration)
        if config.num_minibatches > 1 or agent.auxiliary_fraction < 1:  # modules train on the first frames of a draw
            self.drawn_at_once = units // config.num_minibatches

    @override
    def make_loss(self) -> AgentLoss:
        """Return the policy gradient with a critic."""
        return AgentLoss(self.agent, self.policy_gradient())

    @override
    def make_optimizer(self, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """Return Adam, or RMSprop with the epsilon outside the square root, as in PyTorch."""
        if self.config.optimizer == "adam":
            return super().make_optimizer(parameters)
        if self.config.weight_decay:
            raise ValueError(
                f"algorithm.weight_decay={self.config.weight_decay:g} is Adam's, but algorithm.optimizer is rmsprop: "
                "use algorithm.optimizer=adam, or leave the decay out."
            )
        on_cuda, rate = self.device.type == "cuda", self.config.learning_rate.initial
        return torch.optim.RMSprop(
            parameters,
            torch.tensor(rate, device=self.device) if on_cuda else rate,
            self.config.rmsprop_decay,
            self.config.adam_epsilon,
            foreach=True,
            capturable=on_cuda,
        )
