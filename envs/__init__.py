"""Batched worlds for TorchRL; knows nothing about learning."""

from envs.arena import ArenaEnv
from envs.town import TownEnv
from envs.world import TransformedWorld, World

WORLDS = {"arena": ArenaEnv, "town": TownEnv}
"""The public worlds by name."""

__all__ = ["WORLDS", "ArenaEnv", "TownEnv", "TransformedWorld", "World"]
