"""The Arcade Learning Environment's own vector environment, whose games run in threads, for TorchRL to reset."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray


class AleVector:
    """Gymnasium's vector interface without automatic resets.

    ALE 0.12 knows two ways to reset itself only: a game that ends begins anew in the same step. What it begins with is
    kept until somebody resets it.

    Args:
        env_name: Gymnasium's id, such as ``ALE/Pong-v5``.
        num_envs: number of games.
    """

    def __init__(self, env_name: str, num_envs: int) -> None:
        own = gymnasium.spec(env_name).kwargs
        self.env = AtariVectorEnv(
            own["game"],
            num_envs,
            repeat_action_probability=own.get("repeat_action_probability", 0.0),
            use_fire_reset=False,  # as Gymnasium's AtariPreprocessing, with which films are made
            reward_clipping=False,
            autoreset_mode=AutoresetMode.SAME_STEP,
        )
        self.ended: NDArray = np.zeros(num_envs, bool)
        self.begun: NDArray = np.zeros(0)
        """First pictures of the games that have ended, [N, 4, 84, 84]; of others the present ones."""

    def reset(self, *, seed: list[int] | None = None, options: dict[str, Any] | None = None) -> tuple[NDArray, dict]:
        """Begin all games, or show how those of ``options["reset_mask"]`` have begun.

        Raises:
            ValueError: one of these has not ended.
        """
        if options is None:
            self.begun, _ = self.env.reset(seed=None if seed is None else np.asarray(seed))
        elif (options["reset_mask"] & ~self.ended).any():
            raise ValueError("ALE's games can be reset one by one only where they have ended: use processes=false")
        self.ended[:] = False
        return self.begun, {}

    def step(self, action: NDArray) -> tuple[NDArray, NDArray, NDArray, NDArray, dict]:
        """Step of all games, to the last picture of each."""
        self.begun, reward, terminated, truncated, info = self.env.step(action)
        self.ended = terminated | truncated
        seen = np.where(self.ended[:, None, None, None], info.get("final_obs", self.begun), self.begun)
        return seen, reward, terminated, truncated, {}

    def close(self) -> None:
        """End the threads."""
        self.env.close()
