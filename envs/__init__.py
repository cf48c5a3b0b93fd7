"""Batched worlds for TorchRL; knows nothing about learning. Importing it registers them with Gymnasium as well."""

from envs.adapters.gymnasium_registration import register_worlds
from envs.arena import ArenaEnv
from envs.town import TownEnv
from envs.transformed_world import TransformedWorld
from envs.world import World

WORLDS = {"arena": ArenaEnv, "town": TownEnv}
"""The public worlds by name."""

register_worlds(WORLDS)

__all__ = ["WORLDS", "ArenaEnv", "TownEnv", "TransformedWorld", "World"]
