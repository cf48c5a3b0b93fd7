"""What the ship perceives: values [N] in [-1, 1], by name, grouped, and laid out as the ``classic`` and ``extended``
vectors; where things are along its lines of fire, as ``offsets``; or what it looks like (envs/arena/pixels.py,
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
"""What the numbers of the modes that are vectors are, in their order; the nearest thing of a kind is its first."""
PICTURES = {"pixels": (3, SIZE, SIZE), "heatmap": (len(CHANNELS), GRID, GRID)}
"""Shapes (channels, rows, columns) of the modes that are pictures."""
GROUPS = {
    "player_state": slice(0, 7),
    "combat_targets": slice(10, 27),
    "mission_progress": slice(7, 10),
    "spatial_awareness": slice(27, 31),
    "enemy_count": slice(31, 32),
}
"""The ``dict`` observation: the classic vector's indices by subject."""


def observation_names(mode: str) -> dict[str, tuple[str, ...]]:
    """What is seen in a mode, by key: of a vector what each number is, of a picture what each channel is."""
    if mode == "pixels":
        return {"pixels": ("red", "green", "blue")}
    if mode == "dict":
        return {name: VECTORS["classic"][indices] for name, indices in GROUPS.items()}
    return {"observation": CHANNELS if mode == "heatmap" else VECTORS[mode]}


def observe(state: State, rules: Rules, mode: str, style: int) -> dict[str, Tensor]:
    """What ships of a style see, by key, float32 [N, size], or [N, C, H, W] for pictures; ``pixels`` are bytes."""
    if mode == "pixels":
        return {"pixels": (pixels(state, rules) * 255 + 0.5).to(torch.uint8)}
    if mode == "heatmap":
        return {"observation": heatmap(state, rules)}
    if mode == "offsets":
        return {"observation": torch.stack(_offsets(state if style == 2 else _ahead(state), rules), -1)}
    if mode == "extended":
        return {"observation": _columns(state, rules, _five_projectiles(state, rules))}
    vector = _columns(state, rules, _nearest_projectile(state, rules))
    if mode == "classic":
        return {"observation": vector}
    return {name: vector[:, indices].contiguous() for name, indices in GROUPS.items()}


def _columns(state: State, rules: Rules, projectiles: list[Tensor]) -> Tensor:
    """All values side by side, [N, size]: the one place where the world axis moves to the front."""
    values = [
        *_player(state, rules),
        *_mission(state, rules),
        *_targets(state, rules),
        *projectiles,
        *_walls(state, rules),
    ]
    return torch.stack([*values, (state.enemies.health > 0).float().sum(0) / rules.max_enemies], -1)


def _offsets(state: State, rules: Rules) -> list[Tensor]:
    """Everything by its offsets, each in shares of the field and, so that a line of fire can be told from a near miss,
    in shares of ``nearby``; and how a spawner will be once the ship's shots have reached it, without which nobody could
    tell what a shot from afar is worth: its health, and, as a tenth of that is hard to tell from none, whether it needs
    another shot.
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
    """Everything turned about the ship so that it heads along x: where a ship of style 2 goes and shoots along the axes
    of the field, one of style 1 does so along its heading.
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
    """What the spawners' health [K, N] will be if no shot that is on its way to them is stopped before."""
    shots, spawners = state.shots, state.spawners
    dx, dy = spawners.x - shots.x.unsqueeze(1), spawners.y - shots.y.unsqueeze(1)  # [shots, K, N]
    vx, vy = shots.vx.unsqueeze(1) / rules.projectile_speed, shots.vy.unsqueeze(1) / rules.projectile_speed
    along, across = dx * vx + dy * vy, (dx * vy - dy * vx).abs()
    reached = (along > 0) & (along < shots.life.unsqueeze(1) * rules.projectile_speed)
    strikes = reached & (across < rules.spawner_radius + rules.projectile_radius)
    return (spawners.health - rules.projectile_damage * strikes.float().sum(0)).clamp_min(0)


def _offset(squared: Tensor, dx: Tensor, dy: Tensor, rules: Rules) -> list[Tensor]:
    """Offsets in both scales, exists; zeros for a missing thing."""
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
    """The two nearest enemies and the two nearest spawners."""
    enemies, spawners = state.enemies, state.spawners
    values: list[Tensor] = []
    for squared, dx, dy in _seen(state, enemies.x, enemies.y, enemies.health > 0, 2):
        values += _sighting(state, squared, dx, dy, rules)
    for squared, dx, dy, health in _seen(state, spawners.x, spawners.y, spawners.health > 0, 2, spawners.health):
        values += [
            *_sighting(state, squared, dx, dy, rules),
            torch.where(squared < torch.inf, health / rules.spawner_health, 0.0),
        ]
    return values


def _nearest_projectile(state: State, rules: Rules) -> list[Tensor]:
    """The nearest enemy projectile, and how many are near."""
    shots = state.enemy_shots
    ((squared, dx, dy),) = _seen(state, shots.x, shots.y, shots.life > 0, 1)
    distance, angle, _ = _sighting(state, squared, dx, dy, rules)
    near = (shots.life > 0) & (squared_distance(shots.x - state.ship.x, shots.y - state.ship.y) < rules.nearby**2)
    return [distance, angle, (near.float().sum(0) / rules.nearby_full).clamp_max(1)]


def _five_projectiles(state: State, rules: Rules) -> list[Tensor]:
    shots = state.enemy_shots
    values: list[Tensor] = []
    for squared, dx, dy in _seen(state, shots.x, shots.y, shots.life > 0, 5):
        values += _sighting(state, squared, dx, dy, rules)
    return values


def _walls(state: State, rules: Rules) -> list[Tensor]:
    x, y = state.ship.x / rules.width, state.ship.y / rules.height
    return [x, 1 - x, y, 1 - y]


def _seen(state: State, x: Tensor, y: Tensor, exists: Tensor, count: int, *values: Tensor) -> list[tuple[Tensor, ...]]:
    """The ``count`` things [K, N] nearest to the ship: (squared distance, dx, dy, *values), [N] each; missing ones
    are infinitely far.
    """
    dx, dy = x - state.ship.x, y - state.ship.y
    squared = torch.where(exists, squared_distance(dx, dy), torch.inf)
    return nearest(squared, count, dx, dy, *values)


def _sighting(state: State, squared: Tensor, dx: Tensor, dy: Tensor, rules: Rules) -> list[Tensor]:
    """Distance, relative angle, exists; (1, 0.5, 0) for a missing thing."""
    exists = squared < torch.inf
    distance = (torch.sqrt(squared) / rules.diagonal).clamp_max(1.0)
    angle = relative_angle(dx, dy, state.ship.rotation)
    return [torch.where(exists, distance, 1.0), torch.where(exists, angle, 0.5), exists.float()]
