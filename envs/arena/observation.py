"""What the ship perceives: values [N] in [-1, 1], by name, grouped, and laid out as the ``classic`` and ``extended``
vectors; or what it looks like (envs/arena/pixels.py, envs/arena/heatmap.py).
"""

from __future__ import annotations

import torch
from torch import Tensor

from envs.arena.heatmap import CHANNELS, GRID, heatmap
from envs.arena.pixels import SIZE, pixels
from envs.arena.rules import Rules
from envs.arena.state import State
from envs.toolkit.geometry import TAU, nearest, relative_angle, squared_distance

MODES = ("classic", "extended", "dict", "pixels", "heatmap")
CLASSIC_SIZE, EXTENDED_SIZE = 32, 44
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


def observe(state: State, rules: Rules, mode: str) -> dict[str, Tensor]:
    """Observations by key, float32 [N, size], or [N, C, H, W] for pictures; ``pixels`` are bytes."""
    if mode == "pixels":
        return {"pixels": (pixels(state, rules) * 255 + 0.5).to(torch.uint8)}
    if mode == "heatmap":
        return {"observation": heatmap(state, rules)}
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
