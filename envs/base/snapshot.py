"""Complete mutable state of a batch of worlds in one record, and loading of a saved one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from envs.base.episode import EpisodeStats
from envs.toolkit.chance import Chance
from envs.toolkit.records import named_tensors


class Snapshot(NamedTuple):
    """Complete mutable state of a batch of worlds; every tensor has the world axis last."""

    state: Any
    """Record of the game."""
    episode: EpisodeStats
    """Statistics of the running episodes that every game reports."""
    settings: Any
    """Record of per-world settings from which fresh worlds are made (such as their difficulty); survives resets."""
    stage: Tensor
    """Index of the curriculum's stage that fresh worlds get, int16 [N]; 0 without a curriculum."""
    chance: Chance
    untouched: Tensor
    """Mask of worlds that no step or reset has touched since the last step replaced them, bool [N]."""


def load_snapshot(snapshot: Snapshot, saved: Mapping[str, Tensor], strict: bool = True) -> None:
    """Copy saved worlds, tensors by dotted name, into ``snapshot``: all of them or, unless ``strict``, those that fit.

    Raises:
        ValueError: they are of another game, another version of it, or of another number of worlds; nothing is copied
            then.
    """
    mine = dict(named_tensors(snapshot))
    if strict and mine.keys() != saved.keys():
        lacking, unknown = sorted(mine.keys() - saved.keys()), sorted(saved.keys() - mine.keys())
        parts = [f"lack {_some(lacking)}"] * bool(lacking) + [f"hold {_some(unknown)}"] * bool(unknown)
        raise ValueError(
            f"the saved worlds {' and '.join(parts)}, unlike these: use the game, version and settings that they were "
            "saved with, or reset the worlds instead."
        )
    pairs = [(name, mine[name], value) for name, value in saved.items() if name in mine]
    for name, tensor, value in pairs:
        if tensor.shape != value.shape:
            raise ValueError(
                f"saved worlds have {name} of shape {tuple(value.shape)}, these have {tuple(tensor.shape)}: "
                "use the same num_envs and rules."
            )
    for _, tensor, value in pairs:
        tensor.copy_(value)


def _some(names: Sequence[str]) -> str:
    """Return the first three names as text."""
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
