"""One world as a Gymnasium environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from envs.adapters.gymnasium_actions import whole_numbers
from envs.adapters.gymnasium_vector import GymnasiumVectorEnv
from envs.base.world import World


class GymnasiumEnv(gymnasium.Env):
    """Gymnasium environment around a :class:`World` of one row and one agent; many rows are faster
    (:class:`GymnasiumVectorEnv`).

    When an episode has ended, ``info`` holds its statistics by name (``return``, ``length``, ...). A world that masks
    actions gives ``action_mask``, bool [actions], in every ``info``.

    Args:
        world: the world, of ``num_envs=1``.
        render_mode: ``rgb_array``, or None if nothing will be drawn.

    Raises:
        ValueError: the world has several rows or agents, cannot be shown, or the mode is unknown.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    def __init__(self, world: World, render_mode: str | None = "rgb_array") -> None:
        check_render_mode(render_mode)
        if world.num_envs != 1:
            raise ValueError(f"there are {world.num_envs} worlds: one environment needs num_envs=1.")
        self._vector = GymnasiumVectorEnv(world, AutoresetMode.DISABLED)
        self.world, self.render_mode = world, render_mode
        self.observation_space = self._vector.single_observation_space
        self.action_space = self._vector.single_action_space
        self._running = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin a new episode; with a seed, the same one every time. ``options`` are not supported."""
        observations, infos = self._vector.reset(seed=seed, options=options)
        super().reset(seed=None if seed is None else int(seed))
        self._running = True
        return _first(observations), _first(infos)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one step with an integer action of Python, numpy or torch.

        Raises:
            ValueError: the action is invalid, or no episode is running.
        """
        if not self._running:
            raise ValueError("no episode is running: call reset before step, and again when an episode has ended.")
        actions = whole_numbers(action, (), int(self.action_space.n)).reshape(1)
        observations, reward, terminated, truncated, infos = self._vector.step(actions)
        if "final_info" in infos:
            self._running = False
            infos = {name: value for name, value in infos["final_info"].items() if name != "episode"}
        return _first(observations), float(reward[0]), bool(terminated[0]), bool(truncated[0]), _first(infos)

    def render(self) -> NDArray[np.uint8] | None:
        """Return a picture, uint8 [height, width, 3]; after the last step it shows the end of the episode. None if no
        render mode was chosen.
        """
        return None if self.render_mode is None else self.world.render()

    def close(self) -> None:
        """Close the world; may be repeated."""
        self._vector.close()


def check_render_mode(render_mode: str | None) -> None:
    """Raise ValueError if the mode is neither None nor ``rgb_array``."""
    if render_mode not in (None, "rgb_array"):
        raise ValueError(f"render_mode is {render_mode!r}: use 'rgb_array', or None to draw nothing.")


def _first(values: Any) -> Any:
    """Return the only row of an array, or of each array in a dict; Gymnasium's masks (``_name``) are left out."""
    if isinstance(values, dict):
        return {name: value[0] for name, value in values.items() if not name.startswith("_")}
    return values[0]
