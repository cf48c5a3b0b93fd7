"""Batched worlds for TorchRL; knows nothing about learning. Importing it registers them with Gymnasium as well.

``arena/``, ``duel/`` and ``town/`` are the games, ``game.py`` says what a game is, ``world.py`` makes it a TorchRL
environment, ``toolkit/`` is what games are made of; ``adapters/`` are our worlds for others, ``libs/`` others' worlds
for us.
"""

from envs.adapters.gymnasium_registration import register_worlds
from envs.arena import ArenaEnv
from envs.base.transformed import BranchlessTransformedEnv
from envs.base.world import World
from envs.duel import DuelEnv
from envs.town import TownEnv

WORLDS = {"arena": ArenaEnv, "duel": DuelEnv, "town": TownEnv}
"""The public worlds by name."""

register_worlds(WORLDS)

__all__ = ["WORLDS", "ArenaEnv", "BranchlessTransformedEnv", "DuelEnv", "TownEnv", "World"]
