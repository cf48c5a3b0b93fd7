"""Agents for SAC: a policy, two action values that judge its actions, and the temperature that keeps it undecided."""

from __future__ import annotations

import math
from typing import Any

import torch
from tensordict import TensorDictBase
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

from torchrl_agent import keys
from torchrl_agent.models.actions import action_choice, make_actor_head
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.config import ModelConfig
from torchrl_agent.models.networks import mlp
from torchrl_agent.models.specs import action_bounds, action_heads, mixed_choices

NUM_VALUES = 2
"""Networks of action values; the smaller one counts (Fujimoto et al. 2018, clipped double Q-learning)."""
DISCRETE_ENTROPY = 0.1
"""Entropy that a policy of discrete actions is made to have, as a share of the greatest."""


class SoftAgent(Agent):
    """An :class:`Agent` with action values besides its policy; ``state_value`` is what they say of its actions.

    Continuous actions are drawn from a normal distribution squashed by a tanh into their bounds, whose mean and
    deviation both depend on what is seen (Haarnoja et al. 2018, appendix C).

    Attributes:
        action_values: :class:`TwinValues`.
        log_alpha: logarithm of the temperature.
        action_range: :class:`ActionRange` of continuous actions, None for discrete ones.
        default_entropy: that the temperature makes the policy have unless another is asked for, in nats; of continuous
            actions in units of half their range.

    Raises:
        ValueError: several discrete actions at once, unbounded ones, a centralised critic, a memory, or modules with
            losses of their own.
    """

    def __init__(
        self, env: EnvBase, config: ModelConfig, gamma: float = 0.99, initial_temperature: float = 1.0
    ) -> None:
        super().__init__(env, config, gamma)
        self.log_alpha = nn.Parameter(torch.tensor(math.log(initial_temperature), device=env.device))

    @override
    def _make_heads(
        self, env: EnvBase, config: ModelConfig, width: int, entry: NestedKey, hidden: list[int]
    ) -> tuple[ProbabilisticTensorDictSequential, TensorDictModuleBase]:
        bounds = action_bounds(env)
        _check(env, config, bounds, self.sequential)
        self.action_range = None if bounds is None else ActionRange(*bounds)
        if bounds is None:
            (num_actions,) = action_heads(env)
            actor = make_actor_head(env, entry, width, hidden, config.activation, config.initial_std)
            self.action_values = TwinValues(width, num_actions, hidden, config.activation)
            self.default_entropy = DISCRETE_ENTROPY * math.log(num_actions)
        else:
            size = len(bounds[0])
            actor = squashed_head(bounds, entry, width, hidden, config.activation)
            self.action_values = TwinValues(width + size, 1, hidden, config.activation)
            self.default_entropy = -float(size)
        return actor, PolicyValue(actor, self.action_values, self.action_range)

    @override
    def parts(self) -> list[list[nn.Parameter]]:
        """The policy's gradient is clipped alone, the temperature's too."""
        alone = [list(self.actor_head.parameters()), [self.log_alpha]]
        known = {id(parameter) for part in alone for parameter in part}
        return [*alone, [parameter for parameter in self.parameters() if id(parameter) not in known]]

    @override
    def module_names(self) -> dict[nn.Parameter, str]:
        """The same, the temperature by its own name."""
        return {**super().module_names(), self.log_alpha: "temperature"}


class ActionRange(nn.Module):
    """Continuous actions in units of half their range, -1 to 1, in which SAC values actions and counts entropy: so it
    learns the same whatever the world's unit.

    Args:
        low: least value of each number of an action, [D].
        high: largest, [D].
    """

    def __init__(self, low: Tensor, high: Tensor) -> None:
        super().__init__()
        self.register_buffer("center", (low + high) / 2, persistent=False)
        self.register_buffer("half_range", (high - low) / 2, persistent=False)

    def forward(self, action: Tensor) -> Tensor:
        """Actions [..., D] of the world, in -1 to 1."""
        return (action - self.center) / self.half_range

    def entropy(self, log_prob: Tensor) -> Tensor:
        """Entropy [...] in nats of actions in -1 to 1, estimated from log-densities [...] of the world's actions."""
        return -(log_prob + self.half_range.log().sum())  # a density per unit of the world, times that unit's volume


class TwinValues(nn.Module):
    """Two independent networks of action values.

    Args:
        width: size of what they read, a continuous action included.
        out: discrete actions, or 1.
        hidden: widths of hidden layers.
        activation: of these.
    """

    def __init__(self, width: int, out: int, hidden: list[int], activation: str) -> None:
        super().__init__()
        self.networks = nn.ModuleList([mlp(width, out, hidden, activation, 1.0) for _ in range(NUM_VALUES)])

    def forward(self, features: Tensor, action: Tensor | None = None) -> Tensor:
        """Values [2, ..., A] of all discrete actions, or [2, ..., 1] of a continuous ``action`` [..., D] in -1 to 1."""
        seen = features if action is None else torch.cat((features, action.to(features.dtype)), -1)
        return torch.stack([network(seen) for network in self.networks]).float()


class PolicyValue(TensorDictModuleBase):
    """State value: the smaller action value, in the mean over the policy's discrete actions, or of its likeliest
    continuous one.
    """

    def __init__(
        self, actor_head: ProbabilisticTensorDictSequential, values: TwinValues, action_range: ActionRange | None
    ) -> None:
        super().__init__()
        self.values, self.action_range = values, action_range
        self.__dict__["actor_head"] = actor_head  # not as a submodule: values do not own the policy
        self.in_keys, self.out_keys = actor_head.in_keys, [keys.VALUE]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        policy = self.actor_head.get_dist(tensordict.copy())
        features = tensordict.get(self.in_keys[0])
        if self.action_range is None:
            value = (policy.probs * self.values(features).amin(0)).sum(-1, keepdim=True)
        else:
            value = self.values(features, self.action_range(policy.deterministic_sample)).amin(0)
        return tensordict.set(keys.VALUE, value)


def squashed_head(
    bounds: tuple[Tensor, Tensor], entry: NestedKey, width: int, hidden: list[int], activation: str
) -> ProbabilisticTensorDictSequential:
    """The head that writes ``loc`` and ``scale`` before squashing, ``action`` and ``action_log_prob``."""
    low, high = bounds
    network = nn.Sequential(mlp(width, 2 * len(low), hidden, activation, 0.01), NormalParamExtractor())
    options: dict[str, Any] = {"low": low, "high": high, "tanh_loc": False}
    choice = action_choice([keys.LOC, keys.SCALE], TanhNormal, options)
    return ProbabilisticTensorDictSequential(TensorDictModule(network, [entry], [keys.LOC, keys.SCALE]), choice)


def _check(env: EnvBase, config: ModelConfig, bounds: tuple[Tensor, Tensor] | None, sequential: bool) -> None:
    """Raise ValueError for what SAC cannot learn."""
    others = "algorithm=ppo, a2c or impala"
    if bounds is None and (count := len(action_heads(env))) != 1:
        raise ValueError(
            f"algorithm=sac values one discrete action at a time but this world takes {count} at once: use {others}."
        )
    if mixed_choices(env):
        raise ValueError(f"algorithm=sac takes choices or numbers but this world takes both at once: use {others}.")
    if bounds is not None and not all(bool(bound.isfinite().all()) for bound in bounds):
        raise ValueError(f"algorithm=sac squashes actions into their bounds but this world's have none: use {others}.")
    if config.centralised_critic:
        raise ValueError(
            "algorithm=sac values actions by what the actor sees, so no critic can see more: use "
            f"model.centralised_critic=false, or {others}."
        )
    if sequential:
        raise ValueError(
            "algorithm=sac replays single frames, so its agent can have no memory and no modules that foresee: "
            f"use policy=mlp or policy=cnn, or {others}."
        )
