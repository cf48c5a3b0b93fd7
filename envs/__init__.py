"""Batched worlds for TorchRL; knows nothing about learning. Importing it registers them with Gymnasium as well.

``arena/``, ``duel/`` and ``town/`` are the games, ``game.py`` says what a game is, ``world.py`` makes it a TorchRL
environment, ``toolkit/`` is what games are made of; ``adapters/`` are our worlds for others, ``libs/`` others' worlds
for us.
"""

from typing import Any

from envs import moved
from envs.adapters.gymnasium_registration import register_worlds
from envs.arena import ArenaEnv
from envs.duel import DuelEnv
from envs.town import TownEnv
from envs.transformed import BranchlessTransformedEnv
from envs.world import World

WORLDS = {"arena": ArenaEnv, "duel": DuelEnv, "town": TownEnv}
"""The public worlds by name."""

register_worlds(WORLDS)
moved.install(moved.MODULES, moved.CLASSES)

__all__ = ["WORLDS", "ArenaEnv", "BranchlessTransformedEnv", "DuelEnv", "TownEnv", "World"]


def __getattr__(name: str) -> Any:
    if name == "TransformedWorld":
        return moved.look_up("envs", ["envs.transformed"], name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
