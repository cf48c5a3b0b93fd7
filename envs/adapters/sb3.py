"""Stable-Baselines3 ``VecEnv`` of numpy arrays around a single-agent world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from envs.adapters.gymnasium_vector import GymnasiumVectorEnv
from envs.base.world import World

try:
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import VecEnv
except ImportError:
    raise ImportError('Stable-Baselines3 is not installed: pip install "torchrl-agent[sb3]".') from None


MASKS = "action_masks"
"""Method by which sb3-contrib reads action masks."""


class StableBaselinesVecEnv(VecEnv):
    """Stable-Baselines3 vector environment around a :class:`World` with discrete actions.

    A world that ends begins its next episode in the same step. Its info then holds, in the form of Stable-Baselines3's
    own ``DummyVecEnv`` and ``Monitor``:

    - ``terminal_observation``: the true last observation (a dict of them if the world shows several).
    - ``TimeLimit.truncated``: True if the episode was truncated and not terminated.
    - ``episode``: its return ``r`` and length ``l``, and every other statistic of the world by name.

    Infos of worlds that go on are empty. A world that masks actions has ``action_masks``, where sb3-contrib's
    ``MaskablePPO`` looks for them; Stable-Baselines3's own algorithms do not use masks.

    Args:
        world: the world; compile it first (``compile=True`` or ``world.compile()``) for speed.

    Raises:
        ValueError: the world does not have one agent with vector or picture observations and one discrete action.
    """

    def __init__(self, world: World) -> None:
        self.world, self._vector = world, GymnasiumVectorEnv(world)
        every = (self._vector.num_envs, int(self._vector.single_action_space.n))
        self._masks: NDArray[np.bool_] | None = np.ones(every, bool) if self._vector.masked else None
        super().__init__(self._vector.num_envs, self._vector.single_observation_space, self._vector.single_action_space)

    @override
    def reset(self) -> Any:
        """Begin new episodes in all worlds; after ``seed(number)`` the same ones every time."""
        observation, found = self._vector.reset(seed=self._seeds[0], options=self._options[0])
        self._masks = found.get("action_mask")
        self._reset_seeds()
        self._reset_options()
        return observation

    @override
    def step_async(self, actions: NDArray) -> None:
        """Store the actions [num_envs] for :meth:`step_wait`."""
        self._actions = actions

    @override
    def step_wait(self) -> tuple[Any, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Step every world; return observations, rewards, dones and infos."""
        observation, reward, terminated, truncated, found = self._vector.step(self._actions)
        self._masks = found.get("action_mask")
        done = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for row in np.flatnonzero(done).tolist():
            infos[row] = {
                "terminal_observation": found["final_obs"][row],
                "TimeLimit.truncated": bool(truncated[row] and not terminated[row]),
                "episode": _episode(found["final_info"], row),
            }
        return observation, reward.astype(np.float32), done, infos

    @override
    def close(self) -> None:
        """Close the world."""
        self._vector.close()

    @override
    def get_images(self) -> Sequence[NDArray[np.uint8]]:
        """Return a picture of every world, uint8 [height, width, 3] each."""
        return self._vector.render()

    @override
    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of the batch, once per world as they share one object; ``action_masks`` are per world."""
        rows = self._get_indices(indices)
        if attr_name == MASKS and self._masks is not None:
            return [self._masks[row] for row in rows]
        return [getattr(self._vector, attr_name) for _ in rows]

    @override
    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of the batch, hence of every world."""
        setattr(self._vector, attr_name, value)

    @override
    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of the batch once; return its result once per world (``action_masks``: each world's own)."""
        if method_name == MASKS:
            return self.get_attr(MASKS, indices)
        result = getattr(self._vector, method_name)(*method_args, **method_kwargs)
        return [result for _ in self._get_indices(indices)]

    @override
    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Return True for ``Monitor``, whose ``episode`` infos are present, so that ``evaluate_policy`` uses them."""
        return [wrapper_class is Monitor for _ in self._get_indices(indices)]


def _episode(final: dict[str, Any], row: int) -> dict[str, float]:
    """Statistics of the episode that ended in a row, by Monitor's short names and by the world's own names."""
    statistics = {**final["episode"], **final}
    return {
        name: float(value[row])
        for name, value in statistics.items()
        if not name.startswith("_") and name not in ("episode", "action_mask")
    }
