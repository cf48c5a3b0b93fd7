"""Agents for TD3: a deterministic policy, exploration noise, and two action values that evaluate the policy."""

from __future__ import annotations

import torch
from tensordict.nn import ProbabilisticTensorDictSequential, TensorDictModule, TensorDictModuleBase
from tensordict.utils import NestedKey
from torch import Tensor, nn
from torchrl.envs import EnvBase
from typing_extensions import override

from torchrl_agent.core import keys
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.config import ModelConfig, critic_sizes
from torchrl_agent.models.heads import action_choice
from torchrl_agent.models.twin_values import ActionRange, PolicyValue, TwinValues, check_values
from torchrl_agent.modules.distributions import ClippedNormal
from torchrl_agent.modules.networks import mlp
from torchrl_agent.modules.specs import action_bounds


class TD3Agent(Agent):
    """An :class:`Agent` with a deterministic policy, which gives one action for an observation, and action values.

    It explores by normal noise around that action, clipped to the bounds (Fujimoto et al. 2018).

    Attributes:
        action_values: :class:`TwinValues`.
        action_range: :class:`ActionRange`.
        deterministic_policy: :class:`DeterministicPolicy`, which holds the deviation of the noise.

    Raises:
        ValueError: discrete actions, unbounded ones, a centralized critic, a memory, or modules with losses of their
            own.
    """

    @override
    def _make_heads(
        self, env: EnvBase, config: ModelConfig, width: int, entry: NestedKey, hidden: list[int]
    ) -> tuple[ProbabilisticTensorDictSequential, TensorDictModuleBase]:
        bounds = action_bounds(env)
        if bounds is None:
            raise ValueError(
                "algorithm=td3 learns continuous actions but this world's are discrete: use algorithm=dqn, sac, ppo, "
                "a2c or impala."
            )
        check_values("td3", env, config, self.sequential)
        self.action_range = ActionRange(*bounds)
        size = len(bounds[0])
        network = mlp(width, size, hidden, config.activation, 0.01)
        self.deterministic_policy = DeterministicPolicy(network, self.action_range)
        low, high = bounds
        actor = ProbabilisticTensorDictSequential(
            TensorDictModule(self.deterministic_policy, [entry], [keys.LOC, keys.SCALE]),
            action_choice([keys.LOC, keys.SCALE], ClippedNormal, {"low": low, "high": high}),
        )
        self.action_values = TwinValues(width + size, 1, critic_sizes(config, hidden), config.activation)
        return actor, PolicyValue(actor, self.action_values, self.action_range)

    @override
    def parts(self) -> list[list[nn.Parameter]]:
        """Parameters whose gradients are clipped separately: the policy's, and all others."""
        return self._and_others([list(self.actor_head.parameters())])


class DeterministicPolicy(nn.Module):
    """An action squashed by a tanh into its bounds, and the standard deviation of the exploration noise.

    Args:
        network: maps [..., F] to [..., D].

    Attributes:
        noise: standard deviation, [] in units of half the range; a tensor on the device, so that a schedule triggers no
            recompilation.
    """

    def __init__(self, network: nn.Module, action_range: ActionRange) -> None:
        super().__init__()
        self.network = network
        self.__dict__["action_range"] = action_range  # the agent's
        self.register_buffer("noise", torch.ones(()))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """``loc`` and ``scale``, [..., D] each, in the world's units."""
        center, half_range = self.action_range.center, self.action_range.half_range
        loc = center + half_range * self.network(features).float().tanh()
        return loc, (self.noise * half_range).expand_as(loc)
