"""What a world shows to its agents and lets them do, read from its TorchRL specs."""

from __future__ import annotations

import torch
from torch import Tensor
from torchrl.data import Bounded, Categorical, Composite, MultiCategorical, TensorSpec, Unbounded
from torchrl.envs import EnvBase

from torchrl_agent import keys


def agent_group(env: EnvBase) -> str | None:
    """Key under which the tensors of a world's agents are found; None in a world of one agent with flat keys.

    Raises:
        ValueError: there are several groups.
    """
    if len(env.action_keys) > 1:
        names = ", ".join(str(key[0] if isinstance(key, tuple) else key) for key in env.action_keys)
        raise ValueError(f"the world has several groups of agents ({names}) but one policy is learnt: put them in one.")
    return env.action_key[0] if isinstance(env.action_key, tuple) else None


def group_spec(env: EnvBase) -> Composite:
    """What agents see: the whole observation, or that of their group, [N, A]."""
    group = agent_group(env)
    return env.observation_spec if group is None else env.observation_spec[group]


def observation_shapes(env: EnvBase) -> dict[str, torch.Size]:
    """Shapes of what one agent observes by key, in the order of the world's spec: its float entries and its pictures of
    bytes, except episode statistics, potentials, drives and the agent's own memory.

    Raises:
        ValueError: there are none.
    """
    group = group_spec(env)
    other = (keys.POTENTIAL, keys.DRIVES, keys.CHARACTER, *keys.MEMORY, *keys.TORCHRL_STATISTICS.values())
    shapes = {
        key: spec.shape[len(group.shape) :]
        for key, spec in group.items()
        if key not in other and not isinstance(spec, Composite) and _is_seen(spec)
    }
    if not shapes:
        raise ValueError(
            "the world has no float observation: its observation_spec needs a float key of shape [worlds, size]."
        )
    return shapes


def _is_seen(spec: TensorSpec) -> bool:
    return spec.dtype.is_floating_point or spec.dtype == torch.uint8


def action_masked(env: EnvBase) -> bool:
    """Whether the world says which actions are legal."""
    return keys.ACTION_MASK in group_spec(env).keys()


def action_bounds(env: EnvBase) -> tuple[Tensor, Tensor] | None:
    """Least and largest value of each number of a continuous action, [D] each, infinite where there is no bound; None
    for discrete actions.

    Raises:
        ValueError: the actions are continuous but no vectors.
    """
    spec = env.full_action_spec[env.action_key]
    if not isinstance(spec, (Bounded, Unbounded)) or not spec.dtype.is_floating_point:
        return None
    size = spec.shape[len(group_spec(env).shape) :]
    if len(size) != 1:
        raise ValueError(f"continuous actions have shape {tuple(size)}: the policy gives vectors, [size].")
    if isinstance(spec, Unbounded):
        infinite = torch.full(size, torch.inf, device=spec.device)
        return -infinite, infinite
    return tuple(bound.reshape(-1, *size)[0].float() for bound in (spec.space.low, spec.space.high))


def action_heads(env: EnvBase) -> list[int]:
    """Number of choices of each discrete action that an agent takes at once.

    Raises:
        ValueError: the actions are not discrete.
    """
    spec = env.full_action_spec[env.action_key]
    if isinstance(spec, MultiCategorical):
        return [int(size) for size in spec.nvec.reshape(-1, spec.shape[-1])[0]]
    if action_bounds(env) is not None:
        raise ValueError("continuous actions are not supported by this command or module: it needs discrete ones.")
    if not isinstance(spec, Categorical):
        raise ValueError(
            f"actions of kind {type(spec).__name__} are not supported: the policy is categorical "
            "(a Gymnasium world with discrete actions needs categorical_action_encoding: true)."
        )
    return [int(spec.space.n)]
