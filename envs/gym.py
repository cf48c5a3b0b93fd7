"""The same worlds for Gymnasium users: a ``VectorEnv`` of numpy arrays around a single-agent world."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from envs.world import World


class GymnasiumVectorEnv(VectorEnv):
    """A :class:`World` with discrete actions as a Gymnasium vector environment that resets in the same step.

    ``infos`` hold, where any world ended: ``final_obs`` and ``_final_obs`` (the true last observations), ``final_info``
    and
    ``_final_info`` (the episode's statistics by name, arrays [num_envs]).

    Args:
        world: the world; its observations become a ``Box``, or a ``Dict`` of them if it has several.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": ["rgb_array"]}  # noqa: RUF012
    render_mode = "rgb_array"

    def __init__(self, world: World) -> None:
        self.world, self.num_envs = world, world.num_envs
        specs = {key: spec for key, spec in world.observation_spec.items() if key != "episode"}
        boxes = {key: _box(spec) for key, spec in specs.items()}
        self._keys = list(boxes)
        single = len(boxes) == 1
        self.single_observation_space = boxes[self._keys[0]] if single else gymnasium.spaces.Dict(boxes)
        self.single_action_space = gymnasium.spaces.Discrete(int(world.action_spec.space.n))
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._root = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes everywhere; with a seed, the same ones every time."""
        if seed is not None:
            if not isinstance(seed, int):
                raise ValueError(
                    f"seed is {seed!r}: these worlds take one whole number, from which each row's is made."
                )
            self.world.set_seed(seed)
        self._root = self.world.reset()
        return self._observation(self._root), {}

    def step(self, actions: NDArray[np.integer]) -> tuple[Any, NDArray, NDArray, NDArray, dict[str, Any]]:
        """One step of every world."""
        if self._root is None:
            raise ValueError("step was called before reset: call reset first.")
        played, self._root = self.world.step_and_maybe_reset(self._root.set("action", self._checked(actions)))
        following = played["next"]
        reward, terminated, truncated, done = (
            following[key].squeeze(-1).cpu().numpy() for key in ("reward", "terminated", "truncated", "done")
        )
        infos: dict[str, Any] = {}
        if done.any():
            statistics = {name: value.squeeze(-1).cpu().numpy() for name, value in following["episode"].items()}
            infos = {
                "final_obs": self._observation(following),
                "_final_obs": done,
                "final_info": statistics,
                "_final_info": done,
            }
        return self._observation(self._root), reward.astype(np.float64), terminated, truncated, infos

    def render(self) -> tuple[NDArray[np.uint8], ...]:
        """A picture of every world."""
        if not hasattr(self.world, "draw"):
            raise ValueError(f"{type(self.world).__name__} cannot be drawn: it has no draw method.")
        return tuple(self.world.draw(index) for index in range(self.num_envs))

    def _observation(self, tensordict: Any) -> Any:
        arrays = {key: tensordict[key].cpu().numpy() for key in self._keys}
        return arrays if len(arrays) > 1 else arrays[self._keys[0]]

    def _checked(self, actions: Any) -> torch.Tensor:
        array = np.asarray(actions)
        number = int(self.single_action_space.n)
        if array.shape != (self.num_envs,) or not np.issubdtype(array.dtype, np.integer):
            raise ValueError(
                f"actions have shape {array.shape} and type {array.dtype}: give {self.num_envs} whole numbers, one "
                "per world."
            )
        if array.min() < 0 or array.max() >= number:
            raise ValueError(
                f"actions reach from {array.min()} to {array.max()}: they must lie within 0 and {number - 1}."
            )
        return torch.as_tensor(array, dtype=torch.int64, device=self.world.device)


def _box(spec: Any) -> gymnasium.spaces.Box:
    low, high = spec.space.low[0].cpu().numpy(), spec.space.high[0].cpu().numpy()
    return gymnasium.spaces.Box(low, high, dtype=np.float32)
