"""Statistics of running episodes, which :class:`~envs.base.world.World` keeps for every game."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class EpisodeStats(NamedTuple):
    """Statistics of the running episodes that every game reports, [N] unless stated."""

    total_reward: Tensor
    """Undiscounted return so far, float32 [N], or [A, N] with several agents."""
    length: Tensor
    """Number of game steps so far, float32."""
    complete: Tensor
    """True if the episode started at the game's initial state, bool; desynchronized worlds start midway."""
    stage: Tensor
    """Index of the curriculum's stage in which the episode began, int16; 0 without a curriculum."""

    def add(self, reward: Tensor, steps: Tensor | int = 1) -> EpisodeStats:
        """Return the statistics after ``steps`` more steps with a total of ``reward``."""
        return self._replace(total_reward=self.total_reward + reward, length=self.length + steps)

    def statistics(self) -> dict[str, Tensor]:
        """Return the episode statistics by name, float32 [N]; the return of several agents is their mean."""
        total = self.total_reward
        return {
            "return": total if total.ndim == 1 else total.mean(0),
            "length": self.length,
            "complete": self.complete.float(),
            "stage": self.stage.float(),
        }


def begin_episode(stage: Tensor, num_agents: int | None, complete: bool) -> EpisodeStats:
    """Return statistics of episodes before their first step, in the curriculum's ``stage`` int16 [N]."""
    zero = torch.zeros_like(stage, dtype=torch.float32)
    return EpisodeStats(
        total_reward=zero if num_agents is None else zero.expand(num_agents, -1),
        length=zero,
        complete=torch.full_like(stage, complete, dtype=torch.bool),
        stage=stage,
    )
