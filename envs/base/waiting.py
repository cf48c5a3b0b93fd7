"""Worlds that have ended and wait for their reset."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from envs.toolkit.records import choose


class AutoResetStep(NamedTuple):
    """Result of a step of all worlds, with automatic resets."""

    ended: dict[str, Any]
    """Results of the step: observations, reward, flags and statistics; in ended worlds those before the replacement."""
    fresh: dict[str, Any]
    """Observations, flags and statistics for the next step: in worlds that ended, of the fresh game."""
    last: Any
    """Record before worlds that ended were replaced, if it is to be rendered; else None."""
    reset: Tensor | None = None
    """Mask of worlds that were reset since, bool [N]; None for none."""

    @property
    def waiting(self) -> Tensor:
        """Mask of worlds that ended and were not reset since, bool [N]."""
        done = self.ended["done"].squeeze(-1)
        return done if self.reset is None else done & ~self.reset

    def reset_by(self, worlds: Tensor) -> AutoResetStep:
        """Return the step after a reset of ``worlds``, bool [N]."""
        return self._replace(reset=worlds if self.reset is None else worlds | self.reset)

    def held_by(self, earlier: AutoResetStep, reward: tuple[str, ...]) -> AutoResetStep:
        """Return this step without effect on worlds that ended in an ``earlier`` one and still wait: they end again,
        with reward 0. ``reward`` is the path of the reward's key.
        """
        worlds = earlier.waiting
        held = {**earlier.ended}
        inner = held
        for key in reward[:-1]:
            inner[key] = {**inner[key]}
            inner = inner[key]
        inner[reward[-1]] = torch.zeros_like(inner[reward[-1]])
        last = self.last if earlier.last is None or self.last is None else choose(worlds, earlier.last, self.last)
        return AutoResetStep(_pick(worlds, held, self.ended), _pick(worlds, earlier.fresh, self.fresh), last)


def _pick(worlds: Tensor, new: Any, old: Any) -> Any:
    """Select ``new`` in the ``worlds`` (bool [N]), ``old`` elsewhere, for tensors [N, ...] or nested dicts of them."""
    if isinstance(old, dict):
        return {key: _pick(worlds, new[key], value) for key, value in old.items()}
    return torch.where(worlds.reshape(worlds.shape + (1,) * (old.ndim - 1)), new, old)
