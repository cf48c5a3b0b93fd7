"""What games are made of: chance, records, geometry, pictures. Knows no game."""

from envs.toolkit.chance import Chance
from envs.toolkit.film import grid, write_film

__all__ = ["Chance", "grid", "write_film"]
