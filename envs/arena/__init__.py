"""The Arena: a ship, spawners and the enemies they send, in five phases."""

from envs.arena.env import ArenaEnv
from envs.arena.observation import GROUPS
from envs.arena.rules import Difficulty, Phase, Rules

__all__ = ["GROUPS", "ArenaEnv", "Difficulty", "Phase", "Rules"]
