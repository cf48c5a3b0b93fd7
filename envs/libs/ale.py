"""Vector environment of the Arcade Learning Environment, whose games run in threads, with resets by TorchRL."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray


class AleVector:
    """Gymnasium's vector interface without automatic resets.

    ALE 0.12 supports only two autoreset modes; in the one used here a game that ends restarts in the same step. Its
    first observation is kept until the game is reset.

    Args:
        env_name: Gymnasium's id, such as ``ALE/Pong-v5``.
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
        """First pictures of the games that have ended, present pictures of the others, [N, 4, 84, 84]."""

    def reset(self, *, seed: list[int] | None = None, options: dict[str, Any] | None = None) -> tuple[NDArray, dict]:
        """Reset all games, or return the first observations of those in ``options["reset_mask"]``.

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
        """Step all games; the observations of games that ended are their last ones."""
        self.begun, reward, terminated, truncated, info = self.env.step(action)
        self.ended = terminated | truncated
        seen = np.where(self.ended[:, None, None, None], info.get("final_obs", self.begun), self.begun)
        return seen, reward, terminated, truncated, {}

    def close(self) -> None:
        """Stop the threads."""
        self.env.close()
