"""Hindsight experience replay (Andrychowicz et al. 2017): frames replayed with a goal that was reached later."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from tensordict import TensorDict
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.envs import EnvBase
from typing_extensions import override

from torchrl_agent.algorithms.replay import Replay
from torchrl_agent.core import keys
from torchrl_agent.core.abilities import abilities
from torchrl_agent.modules.specs import agent_group

Outcome = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""From goals achieved and desired [B, G] to rewards [B, 1] and whether the episode ends there, bool [B, 1]."""


class HindsightReplay(Replay):
    """A replay that relabels a fraction of the frames drawn with a goal that their episode achieved at the same step or
    later (strategy *future*), with the reward and the termination that the world computes for that goal.

    Args:
        size: most frames to keep; rounded down to whole rollouts.
        rollout: frames of a rollout [T, rows], time first.
        exponent: of the priorities; 0 draws uniformly.
        rows: worlds.
        share: fraction of frames that get another goal.

    Attributes:
        outcome: the world's reward for a goal.
    """

    outcome: Outcome

    def __init__(self, size: int, rollout: int, exponent: float, rows: int, share: float) -> None:
        super().__init__(size, rollout, exponent)
        self.rows, self.share = rows, share
        self._ahead: Tensor

    @override
    def add(self, frames: Mapping[NestedKey, Tensor]) -> None:
        """Write a rollout over the oldest one."""
        super().add(frames)
        self._ahead = self._steps_ahead()

    def _steps_ahead(self) -> Tensor:
        """Number of steps from each frame [size] to the last known one of its episode."""
        assert self._frames is not None
        done = self._frames.get((keys.NEXT, keys.DONE)).reshape(-1, self.rows)
        oldest = self.position // self.rows if self.filled == self.size else 0
        time = torch.arange(len(done), device=done.device).unsqueeze(-1)
        ends = torch.where(done.roll(-oldest, 0), time, self.filled // self.rows - 1)
        ends = ends.flip(0).cummin(0).values.flip(0)  # the next end from each frame on
        return (ends - time).roll(oldest, 0).reshape(-1)

    @override
    def sample(self, count: int, importance: float) -> tuple[Tensor, TensorDict]:
        """Draw ``count`` frames with replacement; returns their indices and the frames; see :class:`Replay`."""
        index, batch = super().sample(count, importance)
        assert self._frames is not None
        chance, distance = torch.rand(2, count, device=index.device).unbind()
        later = index + (distance * (self._ahead[index] + 1)).long() * self.rows
        following = batch.get(keys.NEXT)
        desired, achieved = batch.get(keys.DESIRED_GOAL), following.get(keys.ACHIEVED_GOAL)
        reached = self._frames.get((keys.NEXT, keys.ACHIEVED_GOAL))[later % self.size]
        other = chance < self.share
        goal = torch.where(other.reshape(-1, *[1] * (desired.ndim - 1)), reached, desired)
        reward, terminated = self.outcome(achieved, goal)
        outcome = {keys.REWARD: reward, keys.TERMINATED: terminated}
        for key, value in outcome.items():
            following.set(key, torch.where(other.unsqueeze(-1), value, following.get(key)))
        following.set(keys.DESIRED_GOAL, goal)
        return index, batch.set(keys.DESIRED_GOAL, goal)

    @override
    def load_state_dict(self, state: dict | None) -> None:
        """Continue from ``state_dict``; None empties it."""
        super().load_state_dict(state)
        if self._frames is not None:
            self._ahead = self._steps_ahead()


def goal_outcome(env: EnvBase) -> Outcome:
    """Return the world's reward function of goals.

    Raises:
        ValueError: the world has no goals.
    """
    outcome = abilities(env).goal_outcome
    shown = env.observation_spec.keys()
    missing = [key for key in (keys.ACHIEVED_GOAL, keys.DESIRED_GOAL) if key not in shown]
    if agent_group(env) is not None or missing or outcome is None:
        raise ValueError(
            "algorithm.hindsight replays other goals, but this world "
            + (f"shows no {missing[0]}" if missing else "does not say what they would have brought (goal_outcome)")
            + ": set it to 0."
        )
    return outcome
