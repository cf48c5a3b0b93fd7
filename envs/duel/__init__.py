"""The duel: two ships of the Arena against each other.

``env.py`` is the TorchRL environment, ``dynamics.py`` a step of the game, ``observation.py`` the ship's observation and
``scripted.py`` the scripted policies. Ships and shots move as in the Arena.
"""

from envs.duel.env import DuelEnv
from envs.duel.rules import DUEL

__all__ = ["DUEL", "DuelEnv"]
