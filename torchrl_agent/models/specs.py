"""What a world shows to its agents and lets them do, read from its TorchRL specs."""

from __future__ import annotations

import torch
from torchrl.data import Categorical, Composite, MultiCategorical
from torchrl.envs import EnvBase

from torchrl_agent import keys


def agent_group(env: EnvBase) -> str | None:
    """Key under which the tensors of a world's agents are found; None in a world of one agent with flat keys."""
    return env.action_key[0] if isinstance(env.action_key, tuple) else None


def group_spec(env: EnvBase) -> Composite:
    """What agents see: the whole observation, or that of their group, [N, A]."""
    group = agent_group(env)
    return env.observation_spec if group is None else env.observation_spec[group]


def observation_shapes(env: EnvBase) -> dict[str, torch.Size]:
    """Shapes of what one agent observes by key, in the order of the world's spec: its float entries, except episode
    statistics, potentials and the agent's own memory.

    Raises:
        ValueError: there are none.
    """
    group = group_spec(env)
    other = (keys.POTENTIAL, *keys.MEMORY, *keys.TORCHRL_STATISTICS.values())
    shapes = {
        key: spec.shape[len(group.shape) :]
        for key, spec in group.items()
        if key not in other and not isinstance(spec, Composite) and spec.dtype.is_floating_point
    }
    if not shapes:
        raise ValueError(
            "the world has no float observation: its observation_spec needs a float key of shape [worlds, size]."
        )
    return shapes


def action_heads(env: EnvBase) -> list[int]:
    """Number of choices of each discrete action that an agent takes at once.

    Raises:
        ValueError: the actions are not discrete.
    """
    spec = env.full_action_spec[env.action_key]
    if isinstance(spec, MultiCategorical):
        return [int(size) for size in spec.nvec.reshape(-1, spec.shape[-1])[0]]
    if not isinstance(spec, Categorical):
        raise ValueError(
            f"actions of kind {type(spec).__name__} are not supported: the policy is categorical "
            "(a Gymnasium world with discrete actions needs categorical_action_encoding: true)."
        )
    return [int(spec.space.n)]
