"""Wrapper that flattens one world of Gymnasium: arrays as observations, an array as action, an action mask and the
world's own statistics.
"""

from __future__ import annotations

import numbers
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.spaces import Dict as DictSpace
from numpy.typing import NDArray

from envs.libs.spaces import ACTION_MASK, Actions, observation_parts

EPISODE_INFO = "episode_info"
"""Key of the world's own statistics among its observations."""
MASK_METHODS = ("action_masks", "get_action_mask", "valid_action_mask", "action_mask")
"""Methods by which worlds give their action mask, sb3-contrib's first."""
AT_THE_END = ("is_success", "success")
"""Statistics whose value at the end of the episode counts."""
NO_FIGURES = (ACTION_MASK, "TimeLimit.truncated", "episode", "prob")


class PlainWorld(gymnasium.Wrapper):
    """Wrapper that shows the parts of the world's observation (see :func:`~envs.libs.spaces.observation_parts`), one
    alone or several as a dict.

    Args:
        world_name: name of the world in error messages.
        name: key of an observation of one part.
        shown: indices of the vector ``observation``'s components that are shown; None for all.
        mask_source: source of the action mask: ``observation``, ``info`` or a method's name; None to find out.
        info: paths in ``info`` of the statistics to report; None to find out by :meth:`try_out`.

    Raises:
        ValueError: a part of its spaces has no fixed size, or ``shown`` does not fit a vector.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        world_name: str,
        name: str,
        shown: list[int] | None,
        mask_source: str | None,
        info: Sequence[tuple[str, ...]] | None,
    ) -> None:
        super().__init__(env)
        self.world_name, self.mask_source, self.figures = world_name, mask_source, list(info or ())
        try:
            self.actions = Actions(env.action_space)
            space = env.observation_space
            if isinstance(space, DictSpace) and ACTION_MASK in space.spaces:
                self.mask_source = "observation"
                space = DictSpace({key: inner for key, inner in space.spaces.items() if key != ACTION_MASK})
            self.parts, self.left_out = observation_parts(space, name)
        except ValueError as error:
            raise ValueError(f"{world_name}: {error}") from None
        if shown is not None:
            self._hide(shown)
        self.action_space = self.actions.shown
        spaces = {part.name: part.space for part in self.parts}
        if self.mask_source is not None:
            spaces[ACTION_MASK] = Box(0, 1, (sum(self.actions.sizes),), np.int8)
        if self.figures:
            spaces[EPISODE_INFO] = Box(-np.inf, np.inf, (len(self.figures),), np.float32)
        self.plain = len(spaces) == 1
        self.observation_space = self.parts[0].space if self.plain else DictSpace(spaces)
        self.sums, self.steps = np.zeros(len(self.figures)), 0

    def _hide(self, shown: list[int]) -> None:
        """Restrict the observation to some components of the vector."""
        part, space = self.parts[0], self.parts[0].space
        if len(self.parts) > 1 or len(space.shape) != 1 or not set(shown) <= set(range(space.shape[0])):
            raise ValueError(f"shown is {shown} but the observation is {space}: give indices of a vector.")
        fewer = Box(space.low[shown], space.high[shown], dtype=space.dtype)
        self.parts = [replace(part, space=fewer, read=partial(_some, part.read, shown))]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the world and return the episode's first observation."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.sums[:], self.steps = 0, 0
        return self._seen(observation, info, over=False), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the world with an agent's action."""
        observation, reward, terminated, truncated, info = self.env.step(self.actions.value(action))
        if self.figures:
            self._count(info)
        over = bool(terminated) or bool(truncated)
        return self._seen(observation, info, over), float(reward), bool(terminated), bool(truncated), {}

    def _seen(self, observation: Any, info: dict[str, Any], over: bool) -> Any:
        if self.plain:
            return self.parts[0].find(observation)
        seen = {part.name: part.find(observation) for part in self.parts}
        if self.mask_source is not None:
            seen[ACTION_MASK] = self._mask(observation, info, over).astype(np.int8)
        if self.figures:
            seen[EPISODE_INFO] = self._episode_info()
        return seen

    def _mask(self, observation: Any, info: dict[str, Any], over: bool) -> NDArray:
        if self.mask_source == "observation":
            value = observation[ACTION_MASK]
        elif self.mask_source == "info":
            if ACTION_MASK not in info:
                raise ValueError(f"{ACTION_MASK} is missing in an info that had it before: give it in every step")
            value = info[ACTION_MASK]
        else:
            value = self.env.get_wrapper_attr(self.mask_source)()
        mask = self.actions.mask(value)
        if not over:
            self.actions.check_mask(mask)
        return mask

    def _count(self, info: dict[str, Any]) -> None:
        self.steps += 1
        for index, (first, *inner) in enumerate(self.figures):
            value = info.get(first, 0.0)
            value = value.get(inner[0], 0.0) if inner and isinstance(value, dict) else value
            self.sums[index] = value if first in AT_THE_END else self.sums[index] + value

    def _episode_info(self) -> NDArray:
        at_the_end = [path[0] in AT_THE_END for path in self.figures]
        return np.where(at_the_end, self.sums, self.sums / max(1, self.steps)).astype(np.float32)

    def try_out(self, steps: int, seconds: float) -> tuple[float, list[tuple[str, ...]]]:
        """Take random steps, and find the source of the action mask.

        Returns:
            Seconds of a step, without the longest twentieth, as a busy machine interrupts some, and the paths of the
            statistics in its ``info``.

        Raises:
            ValueError: a reset or step fails.
        """
        generator = np.random.default_rng(0)
        observation, info = self.env.reset(seed=0)
        if self.mask_source is None and self.actions.sizes:
            self.mask_source = "info" if ACTION_MASK in info else self._mask_method()
        figures: dict[tuple[str, ...], None] = {}
        times = [time.perf_counter()]
        while len(times) <= steps and times[-1] - times[0] < seconds:
            mask = None if self.mask_source is None else self._mask(observation, info, over=False)
            action = self.actions.value(self.actions.sample(generator, mask))
            observation, _, terminated, truncated, info = self.env.step(action)
            figures |= dict.fromkeys(_figures(info))
            if terminated or truncated:
                observation, info = self.env.reset()
            times.append(time.perf_counter())
        kept = np.sort(np.diff(times))[: max(1, len(times) - 1 - -(-len(times) // 20))]
        return float(kept.mean()), list(figures)

    def _mask_method(self) -> str | None:
        for name in MASK_METHODS:
            try:
                method = self.env.get_wrapper_attr(name)
            except AttributeError:
                continue
            if callable(method):
                return name
        return None


def _some(read: Callable[[Any], NDArray], shown: list[int], value: Any) -> NDArray:
    return read(value)[shown]


def _figures(info: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of the numbers in ``info`` to report, including those in one level of nested dicts."""
    for name, value in info.items():
        if isinstance(value, dict) and not path and name not in NO_FIGURES:
            yield from _figures(value, (name,))
        elif name not in NO_FIGURES and isinstance(value, (numbers.Real, np.bool_)) and np.isfinite(value):
            yield (*path, name)
