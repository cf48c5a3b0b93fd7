"""Parameters of the duel: the Arena's rules, on a quarter of its field."""

from __future__ import annotations

from envs.arena.rules import Rules

DUEL = Rules(width=800.0, height=640.0, ship_health=60.0, max_steps=600)
"""Rules of the duel: six hits decide; of the Arena's rules, those of ships, shots, field and time apply."""
SEATS = 2
"""Number of ships in a world."""
REWARD_HIT = 0.1
"""Reward for a hit dealt; a hit taken gives its negative."""
REWARD_RESULT = 1.0
"""Reward for a victory; a defeat gives its negative."""
