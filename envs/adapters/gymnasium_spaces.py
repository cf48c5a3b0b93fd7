"""Gymnasium's spaces for the specs of a world."""

from __future__ import annotations

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torchrl.data import Bounded, Categorical, Composite, MultiCategorical, TensorSpec

from envs.base.world import GROUP, World

_OTHER = ("episode", "state", "alive", "action_mask", "potential", "privileged", "drives", "character")
"""Keys of an agent's group or of the world that are not part of one agent's observation."""


def seen_specs(world: World) -> Composite:
    """Specs of the agents' observations, [N, ...], or [N, A, ...] with several agents."""
    return world.observation_spec if world.num_agents is None else world.observation_spec[GROUP]


def observation_boxes(world: World) -> dict[str, gymnasium.spaces.Box]:
    """Boxes of one agent's observations by key: vectors and pictures, numbers or bytes. Pictures of bytes are [height,
    width, channels] here, as Gymnasium's wrappers expect them (see :func:`as_array`).

    Raises:
        ValueError: the world has no such observation.
    """
    seen = seen_specs(world)
    boxes = {key: _box(spec, seen.ndim) for key, spec in seen.items() if key not in _OTHER and _is_array(spec)}
    if not boxes:
        raise ValueError(
            f"{type(world).__name__} shows no vector or picture, and Gymnasium's spaces can hold nothing else of it: "
            "give its observation_spec one."
        )
    return boxes


def joined(boxes: dict[str, gymnasium.spaces.Box]) -> gymnasium.spaces.Space:
    """Return the only box, or a ``Dict`` of several."""
    return next(iter(boxes.values())) if len(boxes) == 1 else gymnasium.spaces.Dict(boxes)


def discrete_actions(world: World) -> gymnasium.spaces.Space:
    """Action space of one agent: one choice, or several at once.

    Raises:
        ValueError: the actions are continuous.
    """
    spec = world.full_action_spec[world.action_key]
    if isinstance(spec, MultiCategorical):
        return gymnasium.spaces.MultiDiscrete(spec.nvec.reshape(-1, spec.shape[-1])[0].tolist())
    if isinstance(spec, Categorical):
        return gymnasium.spaces.Discrete(int(spec.space.n))
    raise ValueError(f"{type(world).__name__} does not take discrete actions: use it in TorchRL.")


def as_array(observation: torch.Tensor) -> NDArray:
    """Return an observation as a numpy array; pictures of bytes [..., C, H, W] become [..., H, W, C]."""
    array = observation.cpu().numpy()
    is_picture = array.dtype == np.uint8 and array.ndim >= 3
    return np.ascontiguousarray(np.moveaxis(array, -3, -1)) if is_picture else array


def _is_array(spec: TensorSpec) -> bool:
    return not isinstance(spec, Composite) and (spec.dtype.is_floating_point or spec.dtype == torch.uint8)


def _box(spec: TensorSpec, leading: int) -> gymnasium.spaces.Box:
    """Space of one agent's observation; the first ``leading`` axes of the spec are worlds and agents."""
    one = spec.zero()[(0,) * leading]
    low, high = (torch.full_like(one, 0), torch.full_like(one, 255))
    if isinstance(spec, Bounded):
        low, high = (bound[(0,) * leading] for bound in (spec.space.low, spec.space.high))
    elif one.is_floating_point():
        low, high = torch.full_like(one, -torch.inf), torch.full_like(one, torch.inf)
    ends = as_array(low), as_array(high)
    return gymnasium.spaces.Box(*ends, dtype=ends[0].dtype.type)
