"""Batched worlds for TorchRL; knows nothing about learning."""

from envs.arena import ArenaEnv
from envs.world import TransformedWorld, World

WORLDS = {"arena": ArenaEnv}
"""The public worlds by name."""

__all__ = ["WORLDS", "ArenaEnv", "TransformedWorld", "World"]
