"""Gymnasium's spaces in an agent's form: named arrays as observations, one array of choices and numbers as action."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from numpy.typing import NDArray

from envs.toolkit.pictures import picture_axes

ACTION_MASK = "action_mask"
"""Key of the mask of legal actions."""
_RESERVED = """
    action action_log_prob advantage alive belief cell character done drives end_probability episode episode_length
    episode_reward epsilon features final forecast futures goal goal_embedding goal_steps_left head_mask held_goal
    hidden imagination_features is_init loc logits module_factors next observation_normalized others others_hidden
    others_number plan potential priority_weight privileged reward scale shifted_valid social social_embedding state
    state_value step_count steps_to_next_obs td_error terminated truncated value_target
"""
RESERVED = frozenset(_RESERVED.split())
"""Keys with another meaning in a tensordict; an observation part of that name is called ``NAME_seen``."""
MOST_CHOICES = 256
"""Largest range of integer actions that become categories; integers of a wider range are rounded from real numbers."""


# --- observations ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """One array that an agent observes.

    Attributes:
        name: its key.
        path: its path in a nested observation.
        space: its space: float32 [size], or a picture [channels, height, width], float32 or uint8.
        read: function that makes it from the world's value at that path.
    """

    name: str
    path: tuple[str | int, ...]
    space: Box
    read: Callable[[Any], NDArray]

    def find(self, observation: Any) -> NDArray:
        """Return this array from a whole observation."""
        for step in self.path:
            observation = observation[step]
        return self.read(observation)


def observation_parts(space: Space, name: str = "observation") -> tuple[list[Part], list[str]]:
    """Return the parts of an observation space, and the names of texts, which no network reads and which are left out.

    Numbers of any type and shape become vectors; categorical values (``Discrete``, ``MultiDiscrete``) become one-hot
    codes; pictures stay pictures, with their channels first (see :func:`~envs.toolkit.pictures.picture_axes`).

    Args:
        space: any space but ``Graph``, ``Sequence`` and ``OneOf``.
        name: name of an observation that is a single array; parts of others are called after their keys or indices.

    Raises:
        ValueError: a part has no fixed size, or there is nothing to observe.
    """
    parts, left_out = [], []
    for path, leaf in _leaves(space):
        title = "_".join(map(str, path)) if path else name
        if path and isinstance(path[0], int):
            title = f"{name}_{title}"
        if leaf.dtype is not None and leaf.dtype.kind == "U":  # Text, and missions of MiniGrid
            left_out.append(title)
            continue
        shown, read = _reader(leaf, title)
        if shown.shape != (0,):
            parts.append(Part(f"{title}_seen" if title in RESERVED else title, path, shown, read))
    if not parts:
        raise ValueError(f"the observations are {space}: there is nothing in it that a network could read.")
    return parts, left_out


def _leaves(space: Space, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Space]]:
    if isinstance(space, Dict):
        for key, inner in space.spaces.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(space, Tuple):
        for number, inner in enumerate(space.spaces):
            yield from _leaves(inner, (*path, number))
    else:
        yield path, space


def _reader(space: Space, title: str) -> tuple[Box, Callable[[Any], NDArray]]:
    if isinstance(space, Discrete):
        return _numbers(int(space.n)), partial(_one_hot, title, [int(space.n)], int(space.start))
    if isinstance(space, MultiDiscrete):
        sizes = [int(size) for size in space.nvec.flat]
        return _numbers(sum(sizes)), partial(_one_hot, title, sizes, space.start.reshape(-1))
    if isinstance(space, MultiBinary):
        size = int(np.prod(space.shape))
        return _numbers(size), partial(_array, title, space.shape, np.float32, None, (size,))
    if not isinstance(space, Box):
        raise ValueError(
            f"{title} is {space}, which has no fixed size: wrap the world in a gymnasium.ObservationWrapper that makes "
            "an array of it."
        )
    kind = np.uint8 if space.dtype == np.uint8 else np.float32
    axes = picture_axes(space.shape, kind is np.uint8 and bool((space.high == 255).all()))
    sides = [space.shape[axis] for axis in axes[-2:]] if axes else []
    shape = (int(np.prod(space.shape)) // math.prod(sides), *sides)
    return _bounded(space, shape, kind, axes), partial(_array, title, space.shape, kind, axes, shape)


def _numbers(size: int) -> Box:
    """Space of zeros and ones."""
    return Box(0, 1, (size,), np.float32)


def _bounded(space: Box, shape: tuple[int, ...], kind: type, axes: tuple[int, ...] | None = None) -> Box:
    """Return the space's bounds in another type and shape."""
    with np.errstate(over="ignore"):  # what float32 cannot hold is no bound
        ends = [np.asarray(end, kind) for end in (space.low, space.high)]
    low, high = (end if axes is None else end.transpose(axes) for end in ends)
    return Box(low.reshape(shape), high.reshape(shape), dtype=kind)


def _array(
    title: str, shape: tuple[int, ...], kind: type, axes: tuple[int, ...] | None, out: tuple[int, ...], value: Any
) -> NDArray:
    """Convert a value of a space's shape to another type, order of axes and shape."""
    array = np.asarray(value)
    if array.shape != shape:
        raise ValueError(f"{title} has shape {array.shape}, its space {shape}: make them agree")
    if array.dtype != kind:
        if kind is np.uint8 or array.dtype.kind not in "fiub":
            raise ValueError(f"{title} has type {array.dtype}, its space {np.dtype(kind)}: make them agree")
        array = array.astype(kind)
    return (array if axes is None else array.transpose(axes)).reshape(out)


def _one_hot(title: str, sizes: list[int], start: int | NDArray, value: Any) -> NDArray:
    chosen = np.asarray(value).reshape(-1) - start
    if chosen.shape != (len(sizes),) or (chosen < 0).any() or (chosen >= sizes).any():
        raise ValueError(f"{title} is {value}, which is not in its space: make them agree")
    codes: NDArray = np.zeros(sum(sizes), np.float32)
    codes[chosen.astype(np.int64) + np.cumsum([0, *sizes[:-1]])] = 1
    return codes


# --- actions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Action:
    """One part of an action: its categorical choices, or its numbers with their bounds."""

    title: str
    sizes: list[int]
    low: NDArray
    high: NDArray
    build: Callable[[NDArray], Any]

    @property
    def length(self) -> int:
        """Number of its entries in the array."""
        return len(self.sizes) + len(self.low)


class Actions:
    """Action space as one array: categorical choices, each from 0 on, before numbers.

    ``Discrete``, ``MultiDiscrete``, ``MultiBinary`` and integers of up to 256 values are choices; other boxes are
    numbers. A number with a single possible value is not part of the agent's action.

    Args:
        space: any of these, or a Dict or Tuple of them.

    Attributes:
        sizes: number of choices of each head.
        low: lower bound of each number, float32 [D]; may be minus infinity.
        high: upper bound of each number.

    Raises:
        ValueError: the space is of another kind.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.parts = [_action(leaf, ".".join(map(str, path)) or "the action") for path, leaf in _leaves(space)]
        self.sizes = [size for part in self.parts for size in part.sizes]
        with np.errstate(over="ignore"):  # what float32 cannot hold is no bound
            self.low, self.high = (
                np.concatenate([getattr(part, end) for part in self.parts]).astype(np.float32)
                for end in ("low", "high")
            )
        self.mixed = bool(self.sizes) and len(self.low) > 0
        if not self.sizes and not len(self.low):
            raise ValueError(f"the actions are {space}: there is nothing to choose.")

    @property
    def shown(self) -> Space:
        """Space of the array, for Gymnasium's vector environments."""
        if not len(self.low):
            return Discrete(self.sizes[0]) if isinstance(self.space, Discrete) else MultiDiscrete(self.sizes)
        low = np.concatenate([np.zeros(len(self.sizes), np.float32), self.low])
        return Box(low, np.concatenate([np.asarray(self.sizes, np.float32) - 1, self.high]), dtype=np.float32)

    def value(self, action: NDArray) -> Any:
        """Convert an agent's array [heads + D] to the world's own action; for a single ``Discrete``, a number."""
        rest: NDArray = np.reshape(action, -1)
        if len(self.parts) == 1 and not isinstance(self.space, (Dict, Tuple)):
            return self.parts[0].build(rest)
        choices, numbers = rest[: len(self.sizes)], rest[len(self.sizes) :]
        values = []
        for part in self.parts:
            values.append(part.build((choices if part.sizes else numbers)[: part.length]))
            choices, numbers = choices[len(part.sizes) :], numbers[len(part.low) :]
        return _nested(self.space, iter(values))

    def mask(self, value: Any) -> NDArray:
        """Flatten a mask in the form of the space, or flat already, to legal choices, bool [sum of sizes].

        Raises:
            ValueError: it has another size.
        """
        flat = np.concatenate([np.asarray(each).reshape(-1) for each in _flat(self.space, value)]).astype(bool)
        if len(flat) != sum(self.sizes):
            raise ValueError(
                f"{ACTION_MASK} has {len(flat)} entries for {sum(self.sizes)} choices: give one for each choice of "
                "each head, head behind head"
            )
        return flat

    def sample(self, generator: np.random.Generator, mask: NDArray | None = None) -> NDArray:
        """Sample a random array, legal by a mask; numbers without a bound are near the other bound, or near 0."""
        legal = np.ones(sum(self.sizes), bool) if mask is None else mask
        heads = np.split(legal, np.cumsum(self.sizes)[:-1]) if self.sizes else []
        choices = [generator.choice(np.flatnonzero(head)) for head in heads]
        low = np.where(np.isfinite(self.low), self.low, np.where(np.isfinite(self.high), self.high - 1, -1))
        high = np.where(np.isfinite(self.high), self.high, low + 2)
        share = generator.random(len(low))
        return np.concatenate([np.asarray(choices), low * (1 - share) + high * share])

    def check_mask(self, mask: NDArray) -> None:
        """Raise ValueError if a head has no legal choice."""
        for number, part in enumerate(np.split(mask, np.cumsum(self.sizes)[:-1])):
            if not part.any():
                which = f" of head {number}" if len(self.sizes) > 1 else ""
                raise ValueError(f"{ACTION_MASK} forbids every choice{which}: allow one, or end the episode before")


def _action(space: Space, title: str) -> _Action:
    none: NDArray = np.zeros(0, np.float32)
    if isinstance(space, Discrete):
        return _Action(title, [int(space.n)], none, none, partial(_discrete, int(space.start)))
    if isinstance(space, MultiDiscrete):
        sizes = [int(size) for size in space.nvec.flat]
        return _Action(title, sizes, none, none, partial(_whole, space.start, space.dtype))
    if isinstance(space, MultiBinary):
        zeros = np.zeros(space.shape, np.int64)
        return _Action(title, [2] * zeros.size, none, none, partial(_whole, zeros, space.dtype))
    if not isinstance(space, Box):
        raise ValueError(
            f"{title} is {space}, which has no fixed size: wrap the world in a gymnasium.ActionWrapper whose actions "
            "are arrays or choices."
        )
    whole = space.dtype.kind in "iub"
    low, high = (np.asarray(end, np.float64) for end in (space.low, space.high))
    if whole and (high - low < MOST_CHOICES).all():
        sizes = [int(size) for size in (high - low + 1).flat]
        return _Action(title, sizes, none, none, partial(_whole, space.low.astype(np.int64), space.dtype))
    free = (low < high).reshape(-1)
    return _Action(title, [], low.reshape(-1)[free], high.reshape(-1)[free], partial(_box, space, free, whole))


def _discrete(start: int, choices: NDArray) -> np.int64:
    return np.int64(choices[0]) + start


def _whole(lowest: NDArray, kind: np.dtype, choices: NDArray) -> NDArray:
    return (choices.astype(np.int64).reshape(lowest.shape) + lowest).astype(kind)


def _box(space: Box, free: NDArray, whole: bool, numbers: NDArray) -> NDArray:
    value = space.low.reshape(-1).astype(np.float64)
    value[free] = np.rint(numbers) if whole else numbers
    return np.clip(value.reshape(space.shape).astype(space.dtype), space.low, space.high)


def _nested(space: Space, values: Iterator[Any]) -> Any:
    if isinstance(space, Dict):
        return {key: _nested(inner, values) for key, inner in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_nested(inner, values) for inner in space.spaces)
    return next(values)


def _flat(space: Space, value: Any) -> Iterator[Any]:
    """Yield the arrays in a mask, in the order of the space's parts."""
    if isinstance(space, Dict) and isinstance(value, dict):
        for key, inner in space.spaces.items():
            yield from _flat(inner, value[key])
    elif isinstance(value, (tuple, list)) and all(isinstance(each, np.ndarray) for each in value):
        yield from value
    elif isinstance(space, Tuple) and isinstance(value, tuple):
        for inner, each in zip(space.spaces, value, strict=True):
            yield from _flat(inner, each)
    else:
        yield value
