"""The books of running episodes, which :class:`~envs.base.world.World` keeps for every game."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class EpisodeStats(NamedTuple):
    """What every game reports of its running episodes, [N] or as said."""

    total_reward: Tensor
    """Undiscounted sum of the rewards so far, float32 [N], or [A, N] with several agents."""
    length: Tensor
    """Steps of the game so far, float32."""
    complete: Tensor
    """Whether it began at the game's beginning, bool; desynchronized worlds begin midway."""
    stage: Tensor
    """Index of the curriculum's stage in which it began, int16; 0 without a curriculum."""

    def add(self, reward: Tensor, steps: Tensor | int = 1) -> EpisodeStats:
        """The books after so many ``steps`` that brought ``reward``."""
        return self._replace(total_reward=self.total_reward + reward, length=self.length + steps)

    def statistics(self) -> dict[str, Tensor]:
        """Episode statistics by name, float32 [N]; the return of several agents is their mean."""
        total = self.total_reward
        return {
            "return": total if total.ndim == 1 else total.mean(0),
            "length": self.length,
            "complete": self.complete.float(),
            "stage": self.stage.float(),
        }


def begin_episode(stage: Tensor, num_agents: int | None, complete: bool) -> EpisodeStats:
    """Episodes before their first step, in the curriculum's ``stage`` int16 [N]."""
    zero = torch.zeros_like(stage, dtype=torch.float32)
    return EpisodeStats(
        total_reward=zero if num_agents is None else zero.expand(num_agents, -1),
        length=zero,
        complete=torch.full_like(stage, complete, dtype=torch.bool),
        stage=stage,
    )
