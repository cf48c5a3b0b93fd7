"""The duel's numbers: the Arena's rules, on a quarter of its field."""

from __future__ import annotations

from envs.arena.rules import Rules

DUEL = Rules(width=800.0, height=640.0, ship_health=60.0, max_steps=600)
"""Six hits decide; of what the Arena's rules say, those of ships, shots, field and time hold."""
SEATS = 2
"""Ships of a world."""
REWARD_HIT = 0.1
"""For a hit dealt; as much is taken away for a hit taken."""
REWARD_RESULT = 1.0
"""For a victory; as much is taken away for a defeat."""
