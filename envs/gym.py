"""The same worlds for Gymnasium users: a ``VectorEnv`` of numpy arrays around a single-agent world."""

from __future__ import annotations

import numbers
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from tensordict import TensorDictBase
from torchrl.data import Bounded, Categorical, TensorSpec

from envs.gym_actions import whole_numbers
from envs.world import GROUP, World


class GymnasiumVectorEnv(VectorEnv):
    """A :class:`World` with discrete actions as a Gymnasium vector environment that resets in the same step.

    Where any world ended, ``infos`` hold, with Gymnasium's masks (``_final_obs`` and so on, bool [num_envs]):

    - ``final_obs``: the true last observations, [num_envs, ...]; for several observations per world an array of dicts
      (None where a world goes on), as Gymnasium's own vector environments give them.
    - ``final_info``: the episode's statistics by name, [num_envs] each, and among them ``episode`` with its return
      ``r`` and length ``l``. It stands here, where Gymnasium puts what a sub-environment's ``RecordEpisodeStatistics``
      says, because the vector wrapper of that name refuses infos that hold an ``episode`` of their own.

    A world that masks actions adds ``action_mask``, bool [num_envs, actions], to every infos and ``final_info``.

    Attributes:
        masked: the world masks actions.

    Args:
        world: the world; its observation becomes a ``Box``, or a ``Dict`` of them if it has several.

    Raises:
        ValueError: the world is not of one agent with vectors to see and one discrete action.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, world: World) -> None:
        self.world, self.num_envs = world, world.batch_size[0]
        self.render_mode = "rgb_array" if hasattr(world, "draw") else None
        if world.num_agents not in (None, 1):
            raise ValueError(
                f"{type(world).__name__} has {world.num_agents} agents: use envs.pettingzoo for several, or "
                "num_agents=1."
            )
        self._group = GROUP if world.num_agents else None
        seen = world.observation_spec if self._group is None else world.observation_spec[GROUP]
        other = ("episode", "action_mask", "alive", "potential")
        boxes = {key: _box(key, spec, seen.ndim) for key, spec in seen.items() if key not in other}
        action = world.full_action_spec[world.action_key]
        if not isinstance(action, Categorical):
            raise ValueError(f"{type(world).__name__} does not take one discrete action per world: use it in TorchRL.")
        self._keys, self.masked = list(boxes), "action_mask" in seen.keys()
        single = len(boxes) == 1
        self.single_observation_space = boxes[self._keys[0]] if single else gymnasium.spaces.Dict(boxes)
        self.single_action_space = gymnasium.spaces.Discrete(int(action.space.n))
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._root: TensorDictBase | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes everywhere; with a seed, the same ones every time. There are no ``options``."""
        if options:
            raise ValueError(f"options hold {', '.join(options)}: these worlds take none, leave them out.")
        if seed is not None:
            seed = checked_seed(seed)
            super().reset(seed=seed)
            self.world.set_seed(seed)
        self._root = self.world.reset()
        return self._observation(self._root), self._legal(self._root)

    def step(self, actions: Any) -> tuple[Any, NDArray, NDArray, NDArray, dict[str, Any]]:
        """One step of every world with whole numbers [num_envs], numpy's or torch's; where a world ended, the
        observation is the first of its next episode.
        """
        if self._root is None:
            raise ValueError("step was called before reset: call reset first.")
        checked = whole_numbers(actions, (self.num_envs,), int(self.single_action_space.n))
        action = torch.from_numpy(checked).to(self.world.device)
        action = action if self._group is None else action.unsqueeze(1)
        played, self._root = self.world.step_and_maybe_reset(self._root.set(self.world.action_key, action))
        ended = played["next"]
        reward = _array(self._mine(ended).get("reward"))
        terminated, truncated, done = (_array(ended[key]) for key in ("terminated", "truncated", "done"))
        infos = self._final(ended, done) if done.any() else {}
        infos.update(self._legal(self._root))
        return self._observation(self._root), reward.astype(np.float64), terminated, truncated, infos

    def render(self) -> tuple[NDArray[np.uint8], ...]:
        """A picture of every world, uint8 [height, width, 3] each."""
        if not hasattr(self.world, "draw"):
            raise ValueError(f"{type(self.world).__name__} cannot be drawn: it has no draw method.")
        return tuple(self.world.draw(index) for index in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Close the world (called once, by ``close``)."""
        if not self.world.is_closed:
            self.world.close()

    def _final(self, ended: TensorDictBase, done: NDArray[np.bool_]) -> dict[str, Any]:
        """``infos`` of a step in which worlds ended."""
        statistics = {name: _array(value) for name, value in ended.get("episode", {}).items()}
        names = {"r": "return", "l": "length"}
        episode = {short: statistics[name] for short, name in names.items() if name in statistics}
        info = _masked({**statistics, **self._legal(ended), "episode": _masked(episode, done)}, done)
        final = self._observation(ended)
        if isinstance(final, dict):
            rows = np.full(self.num_envs, None, dtype=object)
            for index in np.flatnonzero(done):
                rows[index] = {key: values[index] for key, values in final.items()}
            final = rows
        return _masked({"final_obs": final, "final_info": info}, done)

    def _mine(self, tensordict: TensorDictBase) -> TensorDictBase:
        """What belongs to the agent, [N]."""
        return tensordict if self._group is None else tensordict.get(self._group)[:, 0]

    def _legal(self, tensordict: TensorDictBase) -> dict[str, Any]:
        return {"action_mask": self._mine(tensordict).get("action_mask").cpu().numpy()} if self.masked else {}

    def _observation(self, tensordict: TensorDictBase) -> Any:
        mine = self._mine(tensordict)
        arrays = {key: mine.get(key).cpu().numpy() for key in self._keys}
        return arrays if len(arrays) > 1 else arrays[self._keys[0]]


def checked_seed(seed: Any) -> int:
    """``seed`` if it is one whole number from 0."""
    if isinstance(seed, bool) or not isinstance(seed, numbers.Integral) or seed < 0:
        raise ValueError(f"seed is {seed!r}: give one whole number from 0, from which each row's is made.")
    return int(seed)


def _array(column: torch.Tensor) -> NDArray:
    """A column [N, 1] as numpy [N]."""
    return column.squeeze(-1).cpu().numpy()


def _masked(values: dict[str, Any], mask: NDArray[np.bool_]) -> dict[str, Any]:
    """Values, each with the mask of the rows in which it means something under ``_name``."""
    return {**values, **{f"_{name}": mask.copy() for name in values}}


def _box(key: str, spec: TensorSpec, leading: int) -> gymnasium.spaces.Box:
    """The space of one world's observation; ``leading`` axes of the spec count worlds and agents."""
    if not isinstance(spec, Bounded):
        raise ValueError(f"observation {key} is no bounded vector: only worlds of one agent with vectors to see fit.")
    low, high = (bound[(0,) * leading].cpu().numpy() for bound in (spec.space.low, spec.space.high))
    return gymnasium.spaces.Box(low, high, dtype=low.dtype.type)
