"""The duel: two ships of the Arena against each other.

``env.py`` makes it a TorchRL world, ``dynamics.py`` is a step of the game, ``observation.py`` what a ship sees,
``scripted.py`` its hand-written players. How ships and shots move is the Arena's.
"""

from envs.duel.env import DuelEnv
from envs.duel.rules import DUEL

__all__ = ["DUEL", "DuelEnv"]
