"""Worlds that go through a curriculum: all together, in groups, or as one process's part of a larger set."""

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
    """A game whose worlds are given the stage that their curriculum is in, if they have one."""

    curriculum: Curriculum | None = None
    """Set by a subclass that has stages of difficulty; where groups of worlds have one each, that of any of them."""
    curricula: Sequence[Curriculum] = ()
    """One for each group of worlds, if there are groups (see :meth:`split_curriculum`)."""
    num_envs: int
    device: torch.device
    _snapshot: Snapshot
    _first: int
    """Number of the first of these worlds in the set that they are part of (see :meth:`take_shard`)."""
    _total: int
    """Worlds in that set."""

    def split_curriculum(self, groups: int) -> None:
        """Let so many equal groups of neighboring worlds go through the curriculum, each at its own pace; where other
        processes play some of the worlds (see :meth:`take_shard`), the groups are those of the whole set.

        Raises:
            ValueError: the worlds cannot be divided like that.
        """
        if self._total % groups:
            raise ValueError(f"{self._total} worlds are no {groups} equal groups: give a multiple of {groups}.")
        if self.curriculum is not None:
            self.curriculum.num_envs = self._total // groups
            self.curricula = [copy.deepcopy(self.curriculum) for _ in range(groups)]

    def take_shard(self, first: int, total: int) -> None:
        """Let these be the worlds from number ``first`` on of a set of so many in ``total``, which other processes play
        the rest of: from the next seed on row i plays what row ``first + i`` of the set would, and the curriculum waits
        for as many episodes as it would there.
        """
        self._first, self._total = first, total
        if self.curriculum is not None:
            self.curriculum.num_envs = total

    def begin_stage(self, group: int | None = None) -> None:
        """Give the curriculum's current stage to worlds from their next reset on: their :meth:`settings`, made anew.

        Args:
            group: of :meth:`split_curriculum`, by its number; None for all worlds.
        """
        snapshot, worlds = self._snapshot, torch.ones_like(self._snapshot.untouched)
        if group is not None:
            self.curriculum = self.curricula[group]  # whose stage the settings are those of
            size = self._total // len(self.curricula)
            worlds = (self._first + torch.arange(self.num_envs, device=self.device)) // size == group
        assert self.curriculum is not None
        write(snapshot.settings, choose(worlds, self.settings(), snapshot.settings))
        snapshot.stage.masked_fill_(worlds, self.curriculum.stage)

    def update_curriculum(self, finished: dict[str, Tensor], group: int | None = None) -> dict[str, float]:
        """Tell the curriculum of finished episodes (statistics by name, [episodes] on the CPU); returns its metrics.

        Args:
            finished: the episodes.
            group: that played them, if groups go through the curriculum at their own pace.
        """
        curriculum = self.curriculum if group is None or not self.curricula else self.curricula[group]
        if curriculum is None:
            return {}
        if curriculum.update(finished):
            self.begin_stage(group)
        return curriculum.metrics()

    def copy_curricula(self, sources: Sequence[int]) -> None:
        """Put each group at the place in the curriculum where another is, from its worlds' next reset on."""
        states = [curriculum.state_dict() for curriculum in self.curricula]
        for group, curriculum in enumerate(self.curricula):
            if sources[group] != group:
                curriculum.load_state_dict(states[sources[group]])
                self.begin_stage(group)
