"""Action values that evaluate a policy: two networks whose smaller value counts, for SAC and TD3."""

from __future__ import annotations

from itertools import islice

import torch
from tensordict import TensorDictBase
from tensordict.nn import ProbabilisticTensorDictSequential, TensorDictModuleBase
from torch import Tensor, nn
from torchrl.envs import EnvBase

from torchrl_agent.core import keys
from torchrl_agent.models.config import ModelConfig
from torchrl_agent.modules.networks import mlp
from torchrl_agent.modules.specs import action_bounds, action_heads, mixed_choices

NUM_VALUES = 2
"""Number of networks of action values; the smaller value counts (Fujimoto et al. 2018, clipped double Q-learning)."""


class ActionRange(nn.Module):
    """Continuous actions in units of half their range, -1 to 1, in which SAC values actions and counts entropy: so
    learning does not depend on the world's unit.

    Args:
        low: least value of each number of an action, [D].
        high: largest, [D].
    """

    def __init__(self, low: Tensor, high: Tensor) -> None:
        super().__init__()
        self.register_buffer("center", (low + high) / 2, persistent=False)
        self.register_buffer("half_range", (high - low) / 2, persistent=False)

    def forward(self, action: Tensor) -> Tensor:
        """Scale actions [..., D] of the world to -1 to 1."""
        return (action - self.center) / self.half_range

    def entropy(self, log_prob: Tensor) -> Tensor:
        """Entropy [...] in nats of actions in -1 to 1, estimated from log-densities [...] of the world's actions."""
        return -(log_prob + self.half_range.log().sum())  # a density per unit of the world, times that unit's volume


class TwinValues(nn.Module):
    """Two independent networks of action values.

    Args:
        width: size of their input, a continuous action included.
        out: number of discrete actions, or 1.
    """

    def __init__(self, width: int, out: int, hidden: list[int], activation: str) -> None:
        super().__init__()
        self.networks = nn.ModuleList([mlp(width, out, hidden, activation, 1.0) for _ in range(NUM_VALUES)])

    def forward(self, features: Tensor, action: Tensor | None = None, count: int = NUM_VALUES) -> Tensor:
        """Values of the first ``count`` networks: [count, ..., A] of all discrete actions, or [count, ..., 1] of a
        continuous ``action`` [..., D] in -1 to 1.
        """
        seen = features if action is None else torch.cat((features, action.to(features.dtype)), -1)
        return torch.stack([network(seen) for network in islice(self.networks, count)]).float()


class PolicyValue(TensorDictModuleBase):
    """State value: the smaller action value, in the mean over the policy's discrete actions, or of its most
    likely (deterministic) continuous one.
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


def check_values(algorithm: str, env: EnvBase, config: ModelConfig, sequential: bool) -> None:
    """Raise ValueError for worlds and networks whose action values cannot be learned from a replay.

    Args:
        algorithm: its short name, for the message.
        sequential: True if the agent has a memory or modules that predict.
    """
    bounds = action_bounds(env)
    others = "algorithm=ppo, a2c or impala"
    if bounds is None and (count := len(action_heads(env))) != 1:
        raise ValueError(
            f"algorithm={algorithm} values one discrete action at a time but this world takes {count} at once: use "
            f"{others}."
        )
    if mixed_choices(env):
        raise ValueError(
            f"algorithm={algorithm} takes choices or numbers but this world takes both at once: use {others}."
        )
    if bounds is not None and not all(bool(bound.isfinite().all()) for bound in bounds):
        raise ValueError(
            f"algorithm={algorithm} squashes actions into their bounds but this world's have none: use {others}."
        )
    if config.centralized_critic:
        raise ValueError(
            f"algorithm={algorithm} values actions by what the actor sees, so no critic can see more: use "
            f"model.centralized_critic=false, or {others}."
        )
    if sequential:
        raise ValueError(
            f"algorithm={algorithm} replays single frames, so its agent can have no memory and no modules that "
            f"predict: use policy=mlp or policy=cnn, or {others}."
        )
