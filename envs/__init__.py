"""Batched worlds for TorchRL; knows nothing about learning. Importing it registers them with Gymnasium as well.

``arena/``, ``duel/``, ``growth/`` and ``town/`` are the games; ``base/game.py`` declares the functions of a game and
``base/world.py`` makes a TorchRL environment of it; ``toolkit/`` holds building blocks of games. ``adapters/`` offer
these worlds to other libraries, ``libs/`` bring worlds of other libraries to TorchRL.
"""

from envs.adapters.gymnasium_registration import register_worlds
from envs.arena import ArenaEnv
from envs.base.transformed import BranchlessTransformedEnv
from envs.base.world import World
from envs.duel import DuelEnv
from envs.growth import GrowthEnv
from envs.town import TownEnv

WORLDS = {"arena": ArenaEnv, "duel": DuelEnv, "growth": GrowthEnv, "town": TownEnv}
"""Public worlds by name."""

register_worlds(WORLDS)

__all__ = ["WORLDS", "ArenaEnv", "BranchlessTransformedEnv", "DuelEnv", "GrowthEnv", "TownEnv", "World"]
