"""Gymnasium ``VectorEnv`` of numpy arrays around a single-agent world."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from tensordict import TensorDictBase

from envs.adapters.gymnasium_actions import whole_numbers
from envs.adapters.gymnasium_spaces import as_array, discrete_actions, joined, observation_boxes, seen_specs
from envs.base.arguments import checked_seed
from envs.base.world import GROUP, World


class GymnasiumVectorEnv(VectorEnv):
    """Gymnasium vector environment around a :class:`World` with discrete actions.

    The autoreset mode, one of Gymnasium's, determines what follows the last step of an episode:

    - ``SAME_STEP``: the step returns the first observation of the next episode.
    - ``NEXT_STEP``: it returns the last observation; the next step of that world takes no action and returns the first
      observation of the next episode, without reward.
    - ``DISABLED``: it returns the last observation, and so does each further step until
      ``reset(options={"reset_mask": mask})``, bool [num_envs].

    The games are the same in all modes. When any world ended, ``infos`` hold, with Gymnasium's masks (``_final_obs``
    and so on, bool [num_envs]):

    - ``final_obs`` (``SAME_STEP`` only): the true last observations, [num_envs, ...]; for several observations per
      world an array of dicts (None where a world goes on), as Gymnasium's own vector environments give them.
    - ``final_info``: the episode's statistics by name, [num_envs] each, and among them ``episode`` with its return
      ``r`` and length ``l``. It stands here, where Gymnasium puts the statistics of a sub-environment's
      ``RecordEpisodeStatistics``, because the vector wrapper of that name refuses infos that hold an ``episode`` of
      their own.

    A world that masks actions adds ``action_mask``, bool [num_envs, actions], to all ``infos`` and ``final_info``.

    Attributes:
        masked: True if the world masks actions.

    Args:
        world: the world; its observation becomes a ``Box``, or a ``Dict`` of them if it has several.
        autoreset_mode: one of Gymnasium's ``AutoresetMode``, or its value (``SameStep``, ``NextStep``, ``Disabled``).

    Raises:
        ValueError: the world does not have one agent with vector or picture observations and one discrete action.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, world: World, autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP) -> None:
        self.world, self.num_envs = world, world.batch_size[0]
        self.autoreset_mode = _checked_mode(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = "rgb_array" if hasattr(world, "draw") else None
        if world.num_agents not in (None, 1):
            raise ValueError(
                f"{type(world).__name__} has {world.num_agents} agents: use envs.adapters.pettingzoo for several, or "
                "num_agents=1."
            )
        self._group = GROUP if world.num_agents else None
        boxes, self.single_action_space = observation_boxes(world), discrete_actions(world)
        if not isinstance(self.single_action_space, gymnasium.spaces.Discrete):
            raise ValueError(f"{type(world).__name__} takes several choices at once: use it in TorchRL.")
        self._keys, self.masked = list(boxes), "action_mask" in seen_specs(world).keys()
        self.single_observation_space = joined(boxes)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._root: TensorDictBase | None = None
        self._ended: NDArray[np.bool_] = np.zeros(self.num_envs, bool)
        """Worlds that have ended and show their last observation, bool [num_envs]."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes in all worlds, or in those of ``options["reset_mask"]`` (bool [num_envs]); with a seed,
        the same ones every time. No other ``options`` are supported.
        """
        mask = _reset_mask(options, self.num_envs)
        if seed is not None:
            seed = checked_seed(seed)
            super().reset(seed=seed)
            self.world.set_seed(seed)
        if mask is None or self._root is None:
            self._root, self._ended = self.world.reset(), np.zeros_like(self._ended)
        else:
            self._root = self._reset_worlds(self._root, mask)
        return self._observation(self._root), self._legal(self._root)

    def step(self, actions: Any) -> tuple[Any, NDArray, NDArray, NDArray, dict[str, Any]]:
        """Step every world with integer actions [num_envs], of numpy or torch."""
        if self._root is None:
            raise ValueError("step was called before reset: call reset first.")
        checked = whole_numbers(actions, (self.num_envs,), int(self.single_action_space.n))
        action = torch.from_numpy(checked).to(self.world.device)
        action = action if self._group is None else action.unsqueeze(1)
        root = self._root.set(self.world.action_key, action)
        same = self.autoreset_mode is AutoresetMode.SAME_STEP
        if same:
            played, self._root = self.world.step_and_maybe_reset(root)
        else:
            played = self.world.step(root)
            self._root = self.world.step_mdp(played)
        ended = played["next"]
        reward = _array(self._mine(ended).get("reward")).astype(np.float64)
        terminated, truncated, done = (_array(ended[key]) for key in ("terminated", "truncated", "done"))
        over = self._ended
        news = done & ~over
        infos = self._final(ended, news, same) if news.any() else {}
        self._ended = np.zeros_like(done) if same else done
        if self.autoreset_mode is AutoresetMode.NEXT_STEP and over.any():
            self._root = self._reset_worlds(self._root, over)
            terminated, truncated = terminated & ~over, truncated & ~over
        infos.update(self._legal(self._root))
        return self._observation(self._root), reward, terminated, truncated, infos

    def _reset_worlds(self, root: TensorDictBase, mask: NDArray[np.bool_]) -> TensorDictBase:
        """Reset the worlds of the mask and return the root tensordict after it."""
        self._ended = self._ended & ~mask
        request = torch.from_numpy(mask).to(self.world.device).unsqueeze(-1)
        return self.world.reset(root.clone(False).set("_reset", request)).exclude("_reset")

    def render(self) -> tuple[NDArray[np.uint8], ...]:
        """Return a picture of every world, uint8 [height, width, 3] each."""
        return tuple(self.world.render(env_index=None))

    def close_extras(self, **kwargs: Any) -> None:
        """Close the world (called once, by ``close``)."""
        if not self.world.is_closed:
            self.world.close()

    def _final(self, ended: TensorDictBase, done: NDArray[np.bool_], observed: bool) -> dict[str, Any]:
        """Return ``infos`` of a step in which worlds ended, with their last observations if ``observed``."""
        statistics = {name: _array(value) for name, value in ended.get("episode", {}).items()}
        names = {"r": "return", "l": "length"}
        episode = {short: statistics[name] for short, name in names.items() if name in statistics}
        info = _masked({**statistics, **self._legal(ended), "episode": _masked(episode, done)}, done)
        if not observed:
            return _masked({"final_info": info}, done)
        final = self._observation(ended)
        if isinstance(final, dict):
            rows = np.full(self.num_envs, None, dtype=object)
            for index in np.flatnonzero(done):
                rows[index] = {key: values[index] for key, values in final.items()}
            final = rows
        return _masked({"final_obs": final, "final_info": info}, done)

    def _mine(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Entries of the agent, [N]."""
        return tensordict if self._group is None else tensordict.get(self._group)[:, 0]

    def _legal(self, tensordict: TensorDictBase) -> dict[str, Any]:
        return {"action_mask": self._mine(tensordict).get("action_mask").cpu().numpy()} if self.masked else {}

    def _observation(self, tensordict: TensorDictBase) -> Any:
        mine = self._mine(tensordict)
        arrays = {key: as_array(mine.get(key)) for key in self._keys}
        return arrays if len(arrays) > 1 else arrays[self._keys[0]]


def _checked_mode(mode: AutoresetMode | str) -> AutoresetMode:
    try:
        return AutoresetMode(mode)
    except ValueError:
        known = ", ".join(known.value for known in AutoresetMode)
        raise ValueError(f"autoreset_mode is {mode!r}: use one of {known}.") from None


def _reset_mask(options: dict[str, Any] | None, num_envs: int) -> NDArray[np.bool_] | None:
    """Return ``options["reset_mask"]``, checked, or None; other options raise ValueError."""
    unknown = [name for name in options or {} if name != "reset_mask"]
    if unknown:
        raise ValueError(f"options hold {', '.join(unknown)}: these worlds take none but reset_mask, leave them out.")
    if not options:
        return None
    mask = np.asarray(options["reset_mask"])
    if mask.shape != (num_envs,) or mask.dtype != np.bool_:
        raise ValueError(f"reset_mask has shape {mask.shape} and type {mask.dtype}: give one bool per world.")
    return mask


def _array(column: torch.Tensor) -> NDArray:
    """Return a column [N, 1] as a numpy array [N]."""
    return column.squeeze(-1).cpu().numpy()


def _masked(values: dict[str, Any], mask: NDArray[np.bool_]) -> dict[str, Any]:
    """Return the values, each with the mask of its valid rows under ``_name``."""
    return {**values, **{f"_{name}": mask.copy() for name in values}}
