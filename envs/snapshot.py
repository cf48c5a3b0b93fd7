"""All that changes in a batch of worlds, in one record, and how it continues from a saved one."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from envs.episode import Episode, books_of_an_older_version
from envs.toolkit.chance import Chance
from envs.toolkit.records import named_tensors


class Snapshot(NamedTuple):
    """All that changes in a batch of worlds; every tensor has the world axis last."""

    state: Any
    """The game's record."""
    episode: Episode
    """What is reported of the running episodes, whatever the game."""
    settings: Any
    """A record of per-world settings that fresh worlds are made with (such as their difficulty); survives resets."""
    stage: Tensor
    """Index of the curriculum's stage that fresh worlds get, int16 [N]; 0 without a curriculum."""
    chance: Chance
    untouched: Tensor
    """Worlds that no step or reset has touched since the last step replaced them, bool [N]."""


def load_snapshot(snapshot: Snapshot, saved: dict[str, Tensor]) -> None:
    """Copy saved worlds, tensors by dotted name, into ``snapshot``.

    Raises:
        ValueError: they are of another game, another version of it, or of another number of worlds.
    """
    mine = dict(named_tensors(snapshot))
    if "episode.length" not in saved:
        saved = books_of_an_older_version(saved, mine)
    if mine.keys() != saved.keys():
        names = ", ".join(sorted(mine.keys() ^ saved.keys())[:3])
        raise ValueError(f"the saved worlds are of another game or version ({names} differ): reset the worlds instead.")
    for name, value in saved.items():
        if mine[name].shape != value.shape:
            raise ValueError(
                f"saved worlds have {name} of shape {tuple(value.shape)}, these have {tuple(mine[name].shape)}: "
                "use the same num_envs and rules."
            )
        mine[name].copy_(value)
