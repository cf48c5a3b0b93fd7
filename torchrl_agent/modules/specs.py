"""Observations and actions of a world's agents, read from its TorchRL specs."""

from __future__ import annotations

import torch
from torch import Tensor
from torchrl.data import Bounded, Categorical, Composite, MultiCategorical, OneHot, Unbounded
from torchrl.envs import EnvBase

from torchrl_agent.core import keys
from torchrl_agent.core.abilities import abilities


def agent_group(env: EnvBase) -> str | None:
    """Key under which the tensors of a world's agents are found; None in a world of one agent with flat keys.

    Raises:
        ValueError: there are several groups.
    """
    if len(env.action_keys) > 1:
        names = ", ".join(str(key[0] if isinstance(key, tuple) else key) for key in env.action_keys)
        raise ValueError(
            f"the world has several groups of agents ({names}) but one policy is learned: put them in one."
        )
    return env.action_key[0] if isinstance(env.action_key, tuple) else None


def group_spec(env: EnvBase) -> Composite:
    """Spec of the agents' observations: the whole observation, or that of their group, [N, A]."""
    group = agent_group(env)
    return env.observation_spec if group is None else env.observation_spec[group]


def observation_shapes(env: EnvBase) -> dict[str, torch.Size]:
    """Shapes of what one agent observes by key, in the order of the world's spec: its float entries and its pictures of
    bytes, except episode statistics, potentials, drives and the agent's own memory. An observation that
    ``plain_worlds.py`` shows as ``NAME_seen`` is taken under that name.

    Raises:
        ValueError: the world has none.
    """
    group = group_spec(env)
    counted = (*keys.TORCHRL_STATISTICS.values(), keys.COUNTED_LENGTH)
    other = (keys.POTENTIAL, keys.DRIVES, keys.CHARACTER, *keys.MEMORY, *counted)
    shapes = {
        key: spec.shape[len(group.shape) :]
        for key, spec in group.items()
        if key not in other and f"{key}_seen" not in group.keys() and not isinstance(spec, Composite)
        if spec.dtype is not None and (spec.dtype.is_floating_point or spec.dtype == torch.uint8)
    }
    if not shapes:
        raise ValueError(
            "the world has no float observation: its observation_spec needs a float key of shape [worlds, size]."
        )
    return shapes


def action_masked(env: EnvBase) -> bool:
    """True if the world has a mask of legal actions."""
    return keys.ACTION_MASK in group_spec(env).keys()


def heads_masked(env: EnvBase) -> bool:
    """True if the world shows which values the last head of an action leaves to the others (``keys.HEAD_MASK``).

    Raises:
        ValueError: its shape is not that of the heads, or there is no ``action_mask`` beside it.
    """
    spec = group_spec(env)
    if keys.HEAD_MASK not in spec.keys():
        return False
    *others, last = action_heads(env)
    shape, expected = spec[keys.HEAD_MASK].shape[len(spec.shape) :], (last, sum(others))
    if shape != expected or not others or not action_masked(env):
        raise ValueError(
            f"the world's head_mask has shape {tuple(shape)}: show {expected}, the values of the last head by those of "
            "all others, and the last head's own legality in action_mask."
        )
    return True


def action_bounds(env: EnvBase) -> tuple[Tensor, Tensor] | None:
    """Least and largest value of each number of a continuous action, [D] each, infinite where there is no bound; None
    for discrete actions.

    Actions are float32, so bounds of float64 are rounded inwards: no action lies beyond them. A bound too large for
    arithmetic in float32 counts as none.

    Raises:
        ValueError: the actions are continuous but no vectors, or one of their numbers can take only one value.
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
    low, high = (
        _inwards(bound.reshape(-1, *size)[0], way) for bound, way in ((spec.space.low, 1), (spec.space.high, -1))
    )
    for index, (least, most) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        if least >= most:
            raise ValueError(
                f"number {index} of the world's actions can only be {least:g}: leave out of the actions what cannot be "
                "chosen."
            )
    return low, high


NO_BOUND = torch.finfo(torch.float32).max / 4
"""Ranges beyond this overflow in float32; Gymnasium's worlds give its largest number for "no bound"."""


def _inwards(bound: Tensor, way: int) -> Tensor:
    """A bound in float32, rounded upwards (``way`` 1) or downwards (-1)."""
    rounded = bound.float()
    beyond = (rounded.double() < bound) if way > 0 else (rounded.double() > bound)
    rounded = torch.where(beyond, torch.nextafter(rounded, rounded.new_tensor(way * torch.inf)), rounded)
    return torch.where(rounded.abs() > NO_BOUND, rounded.sign() * torch.inf, rounded)


def mixed_choices(env: EnvBase) -> tuple[int, ...]:
    """Sizes of the choices that come before the numbers in actions of both kinds; empty where they are of one kind."""
    return tuple(abilities(env).action_choices)


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
        hint = (
            "give TorchRL's GymEnv categorical_action_encoding: true" if isinstance(spec, OneHot) else "wrap the world"
        )
        raise ValueError(
            f"actions of kind {type(spec).__name__} are not supported: an agent chooses one action (Categorical) or "
            f"several (MultiCategorical), or gives a vector of floats; {hint}."
        )
    return [int(spec.space.n)]
