"""Worlds with a curriculum: one for all worlds, one per group, or for one process's part of a larger set."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from envs.base.curriculum import Curriculum
from envs.base.game import Game
from envs.base.snapshot import Snapshot
from envs.toolkit.records import choose, write


class StagedGame(Game):
    """Game whose worlds get the present stage of their curriculum, if they have one."""

    curriculum: Curriculum | None = None
    """Curriculum, set by a subclass that has stages of difficulty; where groups of worlds have one each, that of any
    group.
    """
    curricula: Sequence[Curriculum] = ()
    """One curriculum per group of worlds, if there are groups (see :meth:`split_curriculum`)."""
    _snapshot: Snapshot
    _first: int
    """Index of the first of these worlds in the set that they are part of (see :meth:`take_shard`)."""
    _total: int
    """Number of worlds in that set."""

    def split_curriculum(self, groups: int) -> None:
        """Split the worlds into this many equal groups of neighbors, each with its own progress through the curriculum;
        where other processes step some of the worlds (see :meth:`take_shard`), the groups are those of the whole set.

        Raises:
            ValueError: the worlds cannot be divided into equal groups.
        """
        if self._total % groups:
            raise ValueError(f"{self._total} worlds are no {groups} equal groups: give a multiple of {groups}.")
        if self.curriculum is not None:
            self.curriculum.num_envs = self._total // groups
            self.curricula = [copy.deepcopy(self.curriculum) for _ in range(groups)]

    def take_shard(self, first: int, total: int) -> None:
        """Make these the worlds from index ``first`` on of a set of ``total`` worlds whose rest other processes step:
        from the next seed on, row i has the game that row ``first + i`` of the set would have, and the curriculum waits
        for as many episodes as it would there.
        """
        self._first, self._total = first, total
        if self.curriculum is not None:
            self.curriculum.num_envs = total

    def begin_stage(self, group: int | None = None) -> None:
        """Give the curriculum's current stage to worlds from their next reset on, by new :meth:`settings`.

        Args:
            group: index of a group of :meth:`split_curriculum`; None for all worlds.
        """
        snapshot, worlds = self._snapshot, torch.ones_like(self._snapshot.untouched)
        if group is not None:
            self.curriculum = self.curricula[group]  # :meth:`settings` reads its stage
            size = self._total // len(self.curricula)
            worlds = (self._first + torch.arange(self.num_envs, device=self.device)) // size == group
        assert self.curriculum is not None
        write(snapshot.settings, choose(worlds, self.settings(), snapshot.settings))
        snapshot.stage.masked_fill_(worlds, self.curriculum.stage)

    def update_curriculum(self, finished: dict[str, Tensor], group: int | None = None) -> dict[str, float]:
        """Update the curriculum with finished episodes (statistics by name, [episodes] on the CPU) and return its
        metrics.

        Args:
            finished: statistics of the episodes.
            group: index of the group that collected them, if groups have curricula of their own.
        """
        curriculum = self.curriculum if group is None or not self.curricula else self.curricula[group]
        if curriculum is None:
            return {}
        if curriculum.update(finished):
            self.begin_stage(group)
        return curriculum.metrics()

    def copy_curricula(self, sources: Sequence[int]) -> None:
        """Copy to each group the curriculum state of its source group, from its worlds' next reset on."""
        states = [curriculum.state_dict() for curriculum in self.curricula]
        for group, curriculum in enumerate(self.curricula):
            if sources[group] != group:
                curriculum.load_state_dict(states[sources[group]])
                self.begin_stage(group)
