"""The Town: agents keep eight meters above zero by visiting places, alone or in competition with others."""

from envs.town.env import TownEnv
from envs.town.levels import LEVELS, load_level
from envs.town.rules import Rules

__all__ = ["LEVELS", "Rules", "TownEnv", "load_level"]
