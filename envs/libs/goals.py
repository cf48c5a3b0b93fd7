"""Goals of Gymnasium's worlds: reward and termination under another goal, for hindsight experience replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Dict, MultiBinary
from numpy.typing import NDArray
from torch import Tensor

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"


class GoalOutcome:
    """Rewards and terminations by ``compute_reward`` and ``compute_terminated`` of a world of Gymnasium-Robotics'
    ``GoalEnv`` kind, with arrays of many goals at once where the methods take them, else goal by goal.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        self.compute_reward = env.get_wrapper_attr("compute_reward")
        self.compute_terminated = _method(env, "compute_terminated")
        space = env.observation_space
        assert isinstance(space, Dict)
        self.spaces = space[ACHIEVED], space[DESIRED]

    def __call__(self, achieved: Tensor, desired: Tensor) -> tuple[Tensor, Tensor]:
        """Return rewards [B, 1] and termination flags, bool [B, 1], for goals [B, G] as agents observe them.

        Raises:
            ValueError: the world's methods fail or return values of another form.
        """
        goals = [
            value.cpu().numpy().astype(space.dtype).reshape(-1, *space.shape)
            for value, space in zip((achieved, desired), self.spaces, strict=True)
        ]
        rewards = _each(self.compute_reward, *goals)
        ends = np.zeros(len(rewards)) if self.compute_terminated is None else _each(self.compute_terminated, *goals)
        reward = torch.as_tensor(rewards.astype(np.float32), device=achieved.device).unsqueeze(-1)
        return reward, torch.as_tensor(ends.astype(bool), device=achieved.device).unsqueeze(-1)


def goal_outcome(env: gymnasium.Env) -> GoalOutcome | None:
    """Return the :class:`GoalOutcome` of a world; None if it has no goals."""
    space = env.observation_space
    has_goals = isinstance(space, Dict) and {ACHIEVED, DESIRED} <= set(space.spaces)
    if not has_goals or _method(env, "compute_reward") is None:
        return None
    readable = all(isinstance(space[name], (Box, MultiBinary)) for name in (ACHIEVED, DESIRED))
    return GoalOutcome(env) if readable else None


def _method(env: gymnasium.Env, name: str) -> Callable[..., Any] | None:
    try:
        return env.get_wrapper_attr(name)
    except AttributeError:
        return None


def _each(function: Callable[..., Any], achieved: NDArray, desired: NDArray) -> NDArray:
    """Evaluate a function of two goals and an ``info``, [B]."""
    try:
        found = np.asarray(function(achieved, desired, {}))
        if found.shape != (len(achieved),):
            found = np.asarray([function(*pair, {}) for pair in zip(achieved, desired, strict=True)], np.float64)
    except Exception as error:  # methods of other libraries may raise anything
        raise ValueError(
            f"{getattr(function, '__name__', function)} of the world failed ({type(error).__name__}: {error}): let it "
            "take goals and an empty info."
        ) from error
    return found.reshape(len(achieved))
