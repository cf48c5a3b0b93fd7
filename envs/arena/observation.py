"""Observations of the ship: values [N] in [-1, 1], by name, grouped, and laid out as the ``classic`` and ``extended``
vectors; positions of objects along its lines of fire, as ``offsets``; or pictures (envs/arena/pixels.py,
envs/arena/heatmap.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from envs.arena.heatmap import CHANNELS, GRID, heatmap
from envs.arena.pixels import SIZE, pixels
from envs.arena.rules import Rules
from envs.arena.state import State
from envs.toolkit.geometry import TAU, nearest, relative_angle, squared_distance

MODES = ("classic", "extended", "offsets", "dict", "pixels", "heatmap")
_SHIP = ("x", "y", "velocity x", "velocity y", "rotation", "health", "cooldown")
_MISSION = ("phase", "spawners left", "time left")
_WALLS = ("to the left wall", "to the right wall", "to the upper wall", "to the lower wall")
_SIGHTING, _OFFSET = ("distance", "angle", "exists"), ("x", "y", "near x", "near y", "exists")


def _of(thing: str, count: int, values: Sequence[str]) -> tuple[str, ...]:
    """Names of the ``values`` of the ``count`` nearest of a kind."""
    return tuple(f"{thing} {number} {value}" for number in range(1, count + 1) for value in values)


_TARGETS = (*_of("enemy", 2, _SIGHTING), *_of("spawner", 2, (*_SIGHTING, "health")))
VECTORS = {
    "classic": (*_SHIP, *_MISSION, *_TARGETS, "shot distance", "shot angle", "shots near", *_WALLS, "enemies"),
    "extended": (*_SHIP, *_MISSION, *_TARGETS, *_of("shot", 5, _SIGHTING), *_WALLS, "enemies"),
    "offsets": (
        *(*_SHIP, *_MISSION, "cosine of the heading", "sine of the heading"),
        *_of("enemy", 2, _OFFSET),
        *_of("spawner", 2, (*_OFFSET, "health", "health to come", "needs another shot")),
        *_of("shot", 5, ("near x", "near y", "velocity x", "velocity y")),
        "enemies",
    ),
}
"""Names of the components of the vector modes, in their order; the nearest object of a kind is number 1."""
PICTURES = {"pixels": (3, SIZE, SIZE), "heatmap": (len(CHANNELS), GRID, GRID)}
"""Shapes (channels, rows, columns) of the picture modes."""
GROUPS = {
    "player_state": slice(0, 7),
    "combat_targets": slice(10, 27),
    "mission_progress": slice(7, 10),
    "spatial_awareness": slice(27, 31),
    "enemy_count": slice(31, 32),
}
"""Indices of the classic vector for each key of the ``dict`` observation."""


def observation_names(mode: str) -> dict[str, tuple[str, ...]]:
    """Names of a mode's observations by key: of the components of a vector, or of the channels of a picture."""
    if mode == "pixels":
        return {"pixels": ("red", "green", "blue")}
    if mode == "dict":
        return {name: VECTORS["classic"][indices] for name, indices in GROUPS.items()}
    return {"observation": CHANNELS if mode == "heatmap" else VECTORS[mode]}


def observed(mode: str) -> tuple[int, int, int]:
    """Return how many of the nearest enemies, spawners and enemies' shots a mode describes one by one."""
    if mode in PICTURES:
        return 0, 0, 0
    return 2, 2, 5 if mode in ("extended", "offsets") else 1


def observe(state: State, rules: Rules, mode: str, style: int) -> dict[str, Tensor]:
    """Compute the observations of ships of a style by key, float32 [N, size], or [N, C, H, W] for pictures; ``pixels``
    are bytes.
    """
    if mode == "pixels":
        return {"pixels": (pixels(state, rules) * 255 + 0.5).to(torch.uint8)}
    if mode == "heatmap":
        return {"observation": heatmap(state, rules)}
    if mode == "offsets":
        return {"observation": torch.stack(_offsets(state if style == 2 else _ahead(state), rules), -1)}
    vector = _columns(state, rules, 5 if mode == "extended" else 1)
    if mode == "dict":
        return {name: vector[:, indices].contiguous() for name, indices in GROUPS.items()}
    return {"observation": vector}


def _columns(state: State, rules: Rules, shots: int) -> Tensor:
    """Stack all values, [N, size], with the nearest enemy ``shots``; the world axis moves to the front here."""
    x, y = state.ship.x / rules.width, state.ship.y / rules.height
    values = [
        *_player(state, rules),
        *_mission(state, rules),
        *_targets(state, rules),
        *_projectiles(state, rules, shots),
        *(x, 1 - x, y, 1 - y),  # to the walls
    ]
    return torch.stack([*values, (state.enemies.health > 0).float().sum(0) / rules.max_enemies], -1)


def _offsets(state: State, rules: Rules) -> list[Tensor]:
    """Values of the ``offsets`` mode: offsets of all objects, each as a fraction of the field and, to distinguish a
    line of fire from a near miss, as a fraction of ``nearby``. For spawners also the state after the ship's shots have
    reached them, without which no agent could learn the value of a shot from afar: the health, and, as a tenth of it is
    hard to distinguish from none, a flag for spawners that need another shot.
    """
    ship, enemies, spawners, shots = state.ship, state.enemies, state.spawners, state.enemy_shots
    values = [*_player(state, rules), *_mission(state, rules), torch.cos(ship.rotation), torch.sin(ship.rotation)]
    for squared, dx, dy in _seen(state, enemies.x, enemies.y, enemies.health > 0, 2):
        values += _offset(squared, dx, dy, rules)
    health_due = _health_due(state, rules)
    shares = (spawners.health / rules.spawner_health, health_due / rules.spawner_health, (health_due > 0).float())
    for squared, dx, dy, *condition in _seen(state, spawners.x, spawners.y, spawners.health > 0, 2, *shares):
        values += _offset(squared, dx, dy, rules)
        values += [torch.where(squared < torch.inf, value, 0.0) for value in condition]
    for squared, *motion in _seen(state, shots.x, shots.y, shots.life > 0, 5, shots.vx, shots.vy):
        exists = squared < torch.inf
        scales = (rules.nearby, rules.nearby, rules.projectile_speed, rules.projectile_speed)
        values += [
            torch.where(exists, (value / scale).clamp(-1, 1), 0.0) for value, scale in zip(motion, scales, strict=True)
        ]
    return [*values, (enemies.health > 0).float().sum(0) / rules.max_enemies]


def _ahead(state: State) -> State:
    """Rotate all objects about the ship so that it heads along x: a ship of style 2 moves and shoots along the axes of
    the field, one of style 1 along its heading.
    """
    ship, cos, sin = state.ship, torch.cos(state.ship.rotation), torch.sin(state.ship.rotation)

    def turned(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x * cos + y * sin, y * cos - x * sin

    def placed(things: Any) -> Any:
        x, y = turned(things.x - ship.x, things.y - ship.y)
        return things._replace(x=ship.x + x, y=ship.y + y)

    def moving(things: Any) -> Any:
        vx, vy = turned(things.vx, things.vy)
        return placed(things)._replace(vx=vx, vy=vy)

    return state._replace(
        ship=moving(ship),
        enemies=placed(state.enemies),
        spawners=placed(state.spawners),
        shots=moving(state.shots),
        enemy_shots=moving(state.enemy_shots),
    )


def _health_due(state: State, rules: Rules) -> Tensor:
    """Health of the spawners [K, N] after all shots on their way to them have hit."""
    shots, spawners = state.shots, state.spawners
    dx, dy = spawners.x - shots.x.unsqueeze(1), spawners.y - shots.y.unsqueeze(1)  # [shots, K, N]
    vx, vy = shots.vx.unsqueeze(1) / rules.projectile_speed, shots.vy.unsqueeze(1) / rules.projectile_speed
    along, across = dx * vx + dy * vy, (dx * vy - dy * vx).abs()
    reached = (along > 0) & (along < shots.life.unsqueeze(1) * rules.projectile_speed)
    strikes = reached & (across < rules.spawner_radius + rules.projectile_radius)
    return (spawners.health - rules.projectile_damage * strikes.float().sum(0)).clamp_min(0)


def _offset(squared: Tensor, dx: Tensor, dy: Tensor, rules: Rules) -> list[Tensor]:
    """Offsets in both scales and ``exists``; zeros for a missing object."""
    exists = squared < torch.inf
    near_x, near_y = ((value / rules.nearby).clamp(-1, 1) for value in (dx, dy))
    offsets = ((dx / rules.width).clamp(-1, 1), (dy / rules.height).clamp(-1, 1), near_x, near_y)
    return [*(torch.where(exists, value, 0.0) for value in offsets), exists.float()]


def _player(state: State, rules: Rules) -> list[Tensor]:
    ship = state.ship
    return [
        ship.x / rules.width,
        ship.y / rules.height,
        (ship.vx / rules.ship_max_speed).clamp(-1, 1),
        (ship.vy / rules.ship_max_speed).clamp(-1, 1),
        ship.rotation / TAU,
        ship.health / rules.ship_health,
        ship.cooldown / rules.ship_cooldown,
    ]


def _mission(state: State, rules: Rules) -> list[Tensor]:
    progress = state.progress
    count = torch.zeros_like(progress.phase) + rules.phases[-1].num_spawners
    for index, phase in enumerate(rules.phases[:-1]):
        count = torch.where(progress.phase == index, float(phase.num_spawners), count)
    return [
        progress.phase / len(rules.phases),
        (state.spawners.health > 0).float().sum(0) / count,
        1 - progress.step / rules.max_steps,
    ]


def _targets(state: State, rules: Rules) -> list[Tensor]:
    """Values of the two nearest enemies and the two nearest spawners."""
    enemies, spawners = state.enemies, state.spawners
    values: list[Tensor] = []
    for squared, dx, dy in _seen(state, enemies.x, enemies.y, enemies.health > 0, 2):
        values += _sighting(state, squared, dx, dy, rules)
    for squared, dx, dy, health in _seen(state, spawners.x, spawners.y, spawners.health > 0, 2, spawners.health):
        values += _sighting(state, squared, dx, dy, rules)
        values.append(torch.where(squared < torch.inf, health / rules.spawner_health, 0.0))
    return values


def _projectiles(state: State, rules: Rules, count: int) -> list[Tensor]:
    """Values of the ``count`` nearest enemy projectiles; of a single one distance and angle, and the number of those
    nearby, scaled to [0, 1].
    """
    shots = state.enemy_shots
    seen = _seen(state, shots.x, shots.y, shots.life > 0, count)
    values = [value for squared, dx, dy in seen for value in _sighting(state, squared, dx, dy, rules)]
    if count > 1:
        return values
    near = (shots.life > 0) & (squared_distance(shots.x - state.ship.x, shots.y - state.ship.y) < rules.nearby**2)
    return [*values[:2], (near.float().sum(0) / rules.nearby_full).clamp_max(1)]


def _seen(state: State, x: Tensor, y: Tensor, exists: Tensor, count: int, *values: Tensor) -> list[tuple[Tensor, ...]]:
    """Return the ``count`` objects [K, N] nearest to the ship: (squared distance, dx, dy, *values), [N] each; missing
    ones are infinitely far.
    """
    dx, dy = x - state.ship.x, y - state.ship.y
    squared = torch.where(exists, squared_distance(dx, dy), torch.inf)
    return nearest(squared, count, dx, dy, *values)


def _sighting(state: State, squared: Tensor, dx: Tensor, dy: Tensor, rules: Rules) -> list[Tensor]:
    """Distance, relative angle and ``exists``; (1, 0.5, 0) for a missing object."""
    exists = squared < torch.inf
    distance = (torch.sqrt(squared) / rules.diagonal).clamp_max(1.0)
    angle = relative_angle(dx, dy, state.ship.rotation)
    return [torch.where(exists, distance, 1.0), torch.where(exists, angle, 0.5), exists.float()]
