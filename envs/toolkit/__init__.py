"""Building blocks of games: random numbers, records, geometry, pictures. Independent of any game."""

from envs.toolkit.chance import Chance
from envs.toolkit.film import grid, write_film

__all__ = ["Chance", "grid", "write_film"]
