"""Observation of a ship in the duel: itself, the other ship and its nearest shots, in the observer's frame."""

from __future__ import annotations

import torch
from torch import Tensor

from envs.arena.rules import Rules
from envs.duel.state import State
from envs.toolkit.geometry import nearest, squared_distance

SHOTS_SEEN = 3
"""Number of the other's shots that a ship observes, the nearest first."""
NAMES = (
    *("x", "y", "own velocity ahead", "own velocity aside", "cos of the rotation", "sin of the rotation"),
    *("health", "cooldown", "time left", "own shots in flight"),
    *("other ahead", "other aside", "bearing ahead", "bearing aside", "distance"),
    *("other's velocity ahead", "other's velocity aside", "other points ahead", "other points aside"),
    *("other aims at me", "other aims past me", "other's health", "other's cooldown"),
    *(
        f"shot {number} {what}"
        for number in range(SHOTS_SEEN)
        for what in ("ahead", "aside", "velocity ahead", "velocity aside", "is there")
    ),
)
"""Names of the features in their order; all lie within [-1, 1]."""


def observe(state: State, rules: Rules) -> Tensor:
    """Compute the features of every ship, float32 [N, seats, F]."""
    ships, size, speed = state.ships, rules.diagonal, rules.ship_max_speed
    cos, sin = torch.cos(ships.rotation), torch.sin(ships.rotation)

    def own(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the components ahead and aside in the ship's frame."""
        return x * cos + y * sin, y * cos - x * sin

    velocity = own(ships.vx, ships.vy)
    ahead, aside = own(ships.x.flip(0) - ships.x, ships.y.flip(0) - ships.y)
    distance = torch.sqrt(squared_distance(ahead, aside).clamp_min(1e-6))
    relative = own(ships.vx.flip(0) - ships.vx, ships.vy.flip(0) - ships.vy)
    heading = own(cos.flip(0), sin.flip(0))
    values = [
        *(ships.x / rules.width * 2 - 1, ships.y / rules.height * 2 - 1, *(each / speed for each in velocity)),
        *(cos, sin, ships.health / rules.ship_health, ships.cooldown / rules.ship_cooldown),
        1 - (state.step / rules.max_steps).expand_as(ships.x),
        (state.shots.life > 0).float().sum(0) / rules.max_ship_projectiles,
        *(ahead / size, aside / size, ahead / distance, aside / distance, distance / size),
        *(each / (2 * speed) for each in relative),
        *heading,
        -(ahead * heading[0] + aside * heading[1]) / distance,
        (ahead * heading[1] - aside * heading[0]) / distance,
        *(ships.health.flip(0) / rules.ship_health, ships.cooldown.flip(0) / rules.ship_cooldown),
    ]
    shots = [value.flip(1) for value in state.shots]  # the other's
    x, y, vx, vy, life = shots[0] - ships.x, shots[1] - ships.y, shots[2] - ships.vx, shots[3] - ships.vy, shots[4]
    squared = torch.where(life > 0, squared_distance(x, y), torch.inf)
    fastest = speed + rules.projectile_speed
    for far, *shot in nearest(squared, SHOTS_SEEN, x, y, vx, vy):
        there = (far < torch.inf).float()
        place, motion = (own(one * there, other * there) for one, other in (shot[:2], shot[2:]))
        values += [*(each / size for each in place), *(each / fastest for each in motion), there]
    return torch.stack([value.T for value in values], -1).clamp(-1, 1)
