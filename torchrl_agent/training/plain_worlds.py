"""Conversion of TorchRL's worlds for an agent: observations as vectors and images in float32 or bytes, actions as
choices and numbers.

Our own worlds, and Gymnasium's as ``envs/libs/gymnasium.py`` converts them, have this form already; these transforms
bring the others into it, and leave entries that need no change as they are.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.data import (
    Binary,
    Bounded,
    Categorical,
    Composite,
    MultiCategorical,
    MultiOneHot,
    NonTensor,
    OneHot,
    TensorSpec,
    Unbounded,
)
from torchrl.envs import Compose, DTypeCastTransform, EnvBase, ExcludeTransform, Transform, TransformedEnv
from typing_extensions import override

from torchrl_agent.core import keys
from torchrl_agent.core.abilities import abilities
from torchrl_agent.modules.specs import agent_group, group_spec

logger = logging.getLogger(__name__)

MOST_CATEGORIES = 4096
"""Largest number of categories of a whole number that becomes a one-hot code; with more it is read as a number."""
Convert = Callable[[Tensor], Tensor]


def plain_world(env: EnvBase) -> EnvBase:
    """Return a world that an agent can act in: as it is, or with :class:`PlainObservations` and :class:`PlainAction`,
    and rewards in float32.

    Raises:
        ValueError: the world has several groups of agents, or several rewards.
    """
    if abilities(env).branchless:
        return env
    group = agent_group(env)
    if len(env.reward_keys) != 1:
        names = ", ".join(map(str, env.reward_keys))
        raise ValueError(f"the world has several rewards ({names}) but one policy is learned: give it one per agent.")
    infos = {name for reader in abilities(env).info_dict_reader for name in reader.info_spec.keys()}
    reported = sorted(infos & set(env.observation_spec.keys()))
    if reported:
        logger.info("entries of info are no observations and are left out: %s.", ", ".join(reported))
        env = TransformedEnv(env, ExcludeTransform(*reported), auto_unwrap=True)
    seen, action = PlainObservations(env, group), PlainAction(env)
    parts: list[Transform] = [*([seen] if seen.seen else []), *([action] if action.needed else [])]
    if env.full_reward_spec[env.reward_key].dtype != torch.float32:
        parts.append(DTypeCastTransform(env.full_reward_spec[env.reward_key].dtype, torch.float32, [env.reward_key]))
    return TransformedEnv(env, Compose(*parts), auto_unwrap=True) if parts else env


@dataclass(frozen=True)
class _Seen:
    """An entry of an observation to convert, and the key of the result."""

    source: NestedKey
    name: str
    convert: Convert
    spec: TensorSpec


class PlainObservations(Transform):
    """Converts numbers of other types and shapes to float32 vectors, categories to one-hot codes, images to channels
    first, and nested entries to names such as ``sensors_lidar``. Entries that need no change keep their key; the
    converted ones are added as ``NAME_seen``.

    Args:
        env: the world of the observations.
        group: key of its agents' tensordict in a world of several agents.
    """

    def __init__(self, env: EnvBase, group: str | None) -> None:
        self.group = group
        self.seen = list(_to_show(env, group))
        super().__init__(in_keys=[each.source for each in self.seen], out_keys=[self._key(each) for each in self.seen])

    def _key(self, seen: _Seen) -> NestedKey:
        return seen.name if self.group is None else (self.group, seen.name)

    @override
    def _call(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        for seen in self.seen:
            next_tensordict.set(self._key(seen), seen.convert(next_tensordict.get(seen.source)))
        return next_tensordict

    @override
    def _reset(self, tensordict: TensorDictBase, tensordict_reset: TensorDictBase) -> TensorDictBase:
        return self._call(tensordict_reset)

    @override
    def transform_observation_spec(self, observation_spec: Composite) -> Composite:
        """Add the converted entries to the spec."""
        for seen in self.seen:
            observation_spec[self._key(seen)] = seen.spec.clone()
        return observation_spec


def _to_show(env: EnvBase, group: str | None) -> Iterator[_Seen]:
    """Entries that an agent cannot read as they are; entries that are no tensors are left out with a warning."""
    inside = group_spec(env)
    lead, device = tuple(inside.shape), env.device
    own_state = set(env.full_state_spec.keys())
    for path, spec in _leaves(inside, own_state):
        name = "_".join(path)
        if isinstance(spec, NonTensor):
            logger.warning("the observation %s is no tensor and is left out.", name)
            continue
        shape = tuple(spec.shape[len(lead) :])
        plain, convert = _plain(spec, shape, len(lead))
        if convert is None and len(path) == 1:
            continue
        source = path if group is None else (group, *path)
        title = f"{name}_seen" if len(path) == 1 else name
        kind = torch.uint8 if spec.dtype == torch.uint8 else torch.float32
        made = Unbounded((*lead, *plain), device=device, dtype=kind)
        yield _Seen(source if len(source) > 1 else source[0], title, convert or (lambda value: value), made)


NOT_SEEN = (
    *(
        keys.ACTION_MASK,
        keys.ALIVE,
        keys.TRUNCATED,
        keys.POTENTIAL,
        keys.DRIVES,
        keys.CHARACTER,
        keys.STATE,
        keys.PRIVILEGED,
    ),
    *("others_number", "info", keys.EPISODE, *keys.MEMORY, *keys.TORCHRL_STATISTICS.values()),
    keys.COUNTED_LENGTH,
)
"""Entries that are no observations."""


def _leaves(spec: Composite, own_state: set[str], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, inner in spec.items():
        if not path and name in NOT_SEEN:
            continue
        if isinstance(inner, Composite):
            if path or name not in own_state:  # of a functional world
                yield from _leaves(inner, own_state, (*path, name))
        elif inner is not None:
            yield (*path, name), inner


def _plain(spec: TensorSpec, shape: tuple[int, ...], lead: int) -> tuple[tuple[int, ...], Convert | None]:
    """Shape of the converted entry, and the function that converts it; None where no conversion is needed."""
    from envs.toolkit.pictures import picture_axes  # here, as a folder may hide the worlds (trust/hidden.py)

    if isinstance(spec, Categorical) and not isinstance(spec, OneHot) and spec.dtype != torch.bool:
        categories = int(spec.space.n)
        if categories <= MOST_CATEGORIES:
            return (math.prod(shape) * categories,), partial(_codes, lead, categories)
    if isinstance(spec, MultiCategorical):
        sizes = [int(size) for size in spec.nvec.reshape(-1, spec.shape[-1])[0]]
        return (sum(sizes),), partial(_hot, sizes, torch.float32)
    axes = picture_axes(shape)
    if axes is not None:
        still = axes == (0, 1, 2) and spec.dtype in (torch.float32, torch.uint8)
        return tuple(shape[axis] for axis in axes), None if still else partial(_picture, lead, axes)
    if len(shape) == 1 and spec.dtype in (torch.float32, torch.uint8):
        return shape, None
    return (math.prod(shape),), partial(_vector, lead)


def _codes(lead: int, categories: int, value: Tensor) -> Tensor:
    return F.one_hot(value.long(), categories).float().reshape(*value.shape[:lead], -1)


def _picture(lead: int, axes: tuple[int, ...], value: Tensor) -> Tensor:
    value = value if value.dtype == torch.uint8 else value.float()
    return value.permute(*range(lead), *(lead + axis for axis in axes))


def _vector(lead: int, value: Tensor) -> Tensor:
    value = value if value.dtype == torch.uint8 else value.float()
    return value.reshape(*value.shape[:lead], -1)


# --- actions ---------------------------------------------------------------------------------------------------------


class PlainAction(Transform):
    """Converts actions: takes choices as numbers where the world takes one-hot or binary codes, and float32 vectors
    where it takes numbers of other types and shapes.

    Args:
        env: the world of the actions.
    """

    def __init__(self, env: EnvBase) -> None:
        key = env.action_key
        self.spec, self.convert = _plain_action(env.full_action_spec[key], tuple(group_spec(env).shape))
        self.key = key
        super().__init__(in_keys_inv=[key], out_keys_inv=[key])

    @property
    def needed(self) -> bool:
        """True if the action needs a conversion."""
        return self.convert is not None

    @override
    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        assert self.convert is not None
        return tensordict.set(self.key, self.convert(tensordict.get(self.key)))

    @override
    def transform_input_spec(self, input_spec: Composite) -> Composite:
        """Replace the action's spec by the converted one."""
        key = self.key if isinstance(self.key, tuple) else (self.key,)
        place = ("full_action_spec", *key)
        input_spec[place] = self.spec.clone()
        return input_spec


def _plain_action(spec: TensorSpec, lead: tuple[int, ...]) -> tuple[TensorSpec, Convert | None]:
    device, shape = spec.device, tuple(spec.shape[len(lead) :])
    if isinstance(spec, MultiOneHot):
        sizes = [int(space.n) for space in spec.space]
        return MultiCategorical(sizes, (*lead, len(sizes)), device=device), partial(_hot, sizes, spec.dtype)
    if isinstance(spec, OneHot):
        size = int(spec.space.n)
        return Categorical(size, lead, device=device), partial(_one_hot, size, spec.dtype)
    if isinstance(spec, Binary):
        size = math.prod(shape)
        return MultiCategorical([2] * size, (*lead, size), device=device), partial(_reshaped, spec)
    if isinstance(spec, (Categorical, MultiCategorical)) or not isinstance(spec, (Bounded, Unbounded)):
        return spec, None
    if len(shape) == 1 and spec.dtype == torch.float32:
        return spec, None
    flat = (*lead, math.prod(shape))
    if isinstance(spec, Unbounded):
        return Unbounded(flat, device=device), partial(_reshaped, spec)
    low, high = (end.float().reshape(flat) for end in (spec.space.low, spec.space.high))
    return Bounded(low, high, flat, device=device, dtype=torch.float32), partial(_within, spec)


def _one_hot(size: int, kind: torch.dtype, action: Tensor) -> Tensor:
    return F.one_hot(action, size).to(kind)


def _hot(sizes: list[int], kind: torch.dtype, action: Tensor) -> Tensor:
    return torch.cat([F.one_hot(part, size) for part, size in zip(action.unbind(-1), sizes, strict=True)], -1).to(kind)


def _reshaped(spec: TensorSpec, action: Tensor) -> Tensor:
    return action.reshape(spec.shape).to(spec.dtype)


def _within(spec: Bounded, action: Tensor) -> Tensor:
    """Convert to the world's type and shape, within its bounds, which float32 may round over; integers are rounded."""
    action = action.reshape(spec.shape)
    action = (action if spec.dtype.is_floating_point else action.round()).to(spec.dtype)
    return action.clamp(spec.space.low, spec.space.high)
