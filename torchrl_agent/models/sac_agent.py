"""Agents for SAC: a policy, two action values that evaluate its actions, and the temperature of its entropy."""

from __future__ import annotations

import math
from typing import Any

import torch
from tensordict.nn import (
    NormalParamExtractor,
    ProbabilisticTensorDictSequential,
    TensorDictModule,
    TensorDictModuleBase,
)
from tensordict.utils import NestedKey
from torch import Tensor, nn
from torchrl.envs import EnvBase
from torchrl.modules import TanhNormal
from typing_extensions import override

from torchrl_agent.core import keys
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.config import ModelConfig, critic_sizes
from torchrl_agent.models.heads import action_choice, make_actor_head
from torchrl_agent.models.twin_values import ActionRange, PolicyValue, TwinValues, check_values
from torchrl_agent.modules.networks import mlp
from torchrl_agent.modules.specs import action_bounds, action_heads

DEVIATIONS = ("softplus", "exp")
"""Functions that make an output of a policy a standard deviation."""
DISCRETE_ENTROPY = 0.1
"""Default target entropy of a policy of discrete actions, as a fraction of the largest possible one."""


class SACAgent(Agent):
    """An :class:`Agent` with action values besides its policy; ``state_value`` is their value of its actions.

    Continuous actions are drawn from a normal distribution squashed by a tanh into their bounds, whose mean and
    deviation both depend on the observation (Haarnoja et al. 2018, appendix C).

    Attributes:
        action_values: :class:`TwinValues`.
        log_alpha: logarithm of the temperature.
        action_range: :class:`ActionRange` of continuous actions, None for discrete ones.
        default_entropy: target entropy of the policy unless another is configured, in nats; of continuous actions in
            units of half their range.

    Raises:
        ValueError: several discrete actions at once, unbounded ones, a centralized critic, a memory, or modules with
            losses of their own.
    """

    def __init__(
        self,
        env: EnvBase,
        config: ModelConfig,
        gamma: float = 0.99,
        initial_temperature: float = 1.0,
        deviation: str = "softplus",
    ) -> None:
        self.deviation = deviation
        super().__init__(env, config, gamma)
        self.log_alpha = nn.Parameter(torch.tensor(math.log(initial_temperature), device=env.device))

    @override
    def _make_heads(
        self, env: EnvBase, config: ModelConfig, width: int, entry: NestedKey, hidden: list[int]
    ) -> tuple[ProbabilisticTensorDictSequential, TensorDictModuleBase]:
        bounds = action_bounds(env)
        check_values("sac", env, config, self.sequential)
        self.action_range = None if bounds is None else ActionRange(*bounds)
        if bounds is None:
            (num_actions,) = action_heads(env)
            actor = make_actor_head(env, entry, width, hidden, config)
            self.action_values = TwinValues(width, num_actions, critic_sizes(config, hidden), config.activation)
            self.default_entropy = DISCRETE_ENTROPY * math.log(num_actions)
        else:
            size = len(bounds[0])
            actor = squashed_head(bounds, entry, width, hidden, config.activation, self.deviation)
            self.action_values = TwinValues(width + size, 1, critic_sizes(config, hidden), config.activation)
            self.default_entropy = -float(size)
        return actor, PolicyValue(actor, self.action_values, self.action_range)

    @override
    def parts(self) -> list[list[nn.Parameter]]:
        """Parameters whose gradients are clipped separately: the policy's, the temperature, all others."""
        return self._and_others([list(self.actor_head.parameters()), [self.log_alpha]])

    @override
    def module_names(self) -> dict[nn.Parameter, str]:
        """Names of modules by parameter, with the temperature under its own name."""
        return {**super().module_names(), self.log_alpha: "temperature"}


def squashed_head(
    bounds: tuple[Tensor, Tensor], entry: NestedKey, width: int, hidden: list[int], activation: str, deviation: str
) -> ProbabilisticTensorDictSequential:
    """Make the head that writes ``loc`` and ``scale`` before squashing, ``action`` and ``action_log_prob``."""
    low, high = bounds
    extract = NormalParamExtractor() if deviation == "softplus" else LogDeviation()
    network = nn.Sequential(mlp(width, 2 * len(low), hidden, activation, 0.01), extract)
    options: dict[str, Any] = {"low": low, "high": high, "tanh_loc": False}
    choice = action_choice([keys.LOC, keys.SCALE], TanhNormal, options)
    return ProbabilisticTensorDictSequential(TensorDictModule(network, [entry], [keys.LOC, keys.SCALE]), choice)


class LogDeviation(nn.Module):
    """Splits the output of a network [..., 2 D] into mean and standard deviation [..., D] each, whose logarithm it is,
    within the limits of Haarnoja et al. 2018's own code.
    """

    def forward(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """``loc`` and ``scale``."""
        loc, log_std = output.chunk(2, -1)
        return loc, log_std.clamp(-20.0, 2.0).exp()
