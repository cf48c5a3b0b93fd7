"""Pixel observation: the whole field with four bars above it, RGB, drawn for all worlds at once.

A pixel is about 26 units wide and most objects are smaller than that, so they are drawn larger than they are, at their
true positions between the pixels. One picture also shows the direction of motion: shots and the ship leave a dim mark
behind them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from envs.arena.rules import Rules
from envs.arena.state import Projectiles, State
from envs.toolkit.raster import Color, Stamp, around, box, capsule, colored, disc, overlap, put

SIZE = 64
"""Number of rows and columns."""

FIELD: Color = (0.06, 0.08, 0.13)
WALL: Color = (0.30, 0.34, 0.44)
SHIP: Color = (0.20, 0.75, 1.00)
NOSE: Color = (0.45, 1.00, 0.30)
WAKE: Color = (0.08, 0.30, 0.40)
SHOT: Color = (0.90, 1.00, 1.00)
ENEMY: Color = (1.00, 0.30, 0.05)
ENEMY_SHOT: Color = (1.00, 0.80, 0.20)
SPAWNER: Color = (0.85, 0.25, 0.80)
HEALTH: Color = (1.00, 0.65, 0.95)
BARS: tuple[Color, ...] = ((0.10, 0.85, 0.45), SHOT, SPAWNER, (0.45, 0.50, 0.60))
"""Colors of the bars: ship's health, readiness to shoot, phase, time left."""

BAR_ROWS = 3
"""Number of rows per bar, the last of them dark."""
HEADER = BAR_ROWS * len(BARS)
SHIP_RADIUS, NOSE_LENGTH, NOSE_RADIUS = 1.5, 3.0, 0.5
SPAWNER_RADIUS, ENEMY_RADIUS, SHOT_RADIUS, MARK_RADIUS = 1.8, 1.1, 0.75, 0.5
HEALTH_LENGTH, HEALTH_HEIGHT = 5.0, 3.5
"""Length of a spawner's health bar at full health, and its height above the spawner's center."""
TRAIL = 6
"""Age of the dim mark behind shots and ship [steps]."""
DIM = 0.45
"""Brightness of the mark behind a shot."""


def pixels(state: State, rules: Rules) -> Tensor:
    """Draw all worlds, float32 [N, 3, 64, 64] in [0, 1]: channels are red, green and blue, row 0 is the top."""
    view = _View(rules)
    stamps = [
        *_spawners(state, view, rules),
        _enemies(state, view),
        *_shots(state.enemy_shots, ENEMY_SHOT, view),
        *_shots(state.shots, SHOT, view),
        *_ship(state, view),
    ]
    return put(torch.cat([_header(state, rules), _ground(state, view, rules)], 2), stamps)


class _View:
    """Position of the field in the picture: as large as fits below the bars with a wall of one pixel around it."""

    def __init__(self, rules: Rules) -> None:
        self.scale = min((SIZE - 2) / rules.width, (SIZE - HEADER - 2) / rules.height)
        """Pixels per unit."""
        self.left, self.top = (SIZE - self.scale * rules.width) / 2, HEADER + 1.0

    def place(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return pixels from the left and upper edge."""
        return self.left + x * self.scale, self.top + y * self.scale


def _header(state: State, rules: Rules) -> Tensor:
    """Draw the bars, [N, 3, HEADER, 64]."""
    progress = state.progress
    shares = torch.stack(
        [
            state.ship.health / rules.ship_health,
            1 - state.ship.cooldown / rules.ship_cooldown,
            (progress.phase + 1) / len(rules.phases),
            1 - progress.step / rules.max_steps,
        ],
        1,
    ).clamp(0, 1)
    columns = torch.arange(SIZE, device=shares.device) + 0.5
    filled = overlap(columns, 1.0, 1 + (SIZE - 2) * shares.unsqueeze(-1))
    lit = (torch.arange(BAR_ROWS, device=shares.device) < BAR_ROWS - 1).float()
    bars = filled.unsqueeze(2) * lit.unsqueeze(-1)
    channels = [torch.cat([bars[:, bar] * color[channel] for bar, color in enumerate(BARS)], 1) for channel in range(3)]
    return torch.stack(channels, 1)


def _ground(state: State, view: _View, rules: Rules) -> Tensor:
    """Draw the empty field and its walls, [N, 3, 64 - HEADER, 64]."""
    centers = torch.arange(SIZE, device=state.ship.x.device) + 0.5
    right, bottom = view.left + view.scale * rules.width, view.top + view.scale * rules.height
    rows = centers[HEADER:].unsqueeze(1)
    field = overlap(rows, view.top, bottom) * overlap(centers, view.left, right)
    outside = overlap(rows, view.top - 1, bottom + 1) * overlap(centers, view.left - 1, right + 1)
    ground = torch.stack([field * f + (outside - field) * w for f, w in zip(FIELD, WALL, strict=True)])
    return ground.expand(state.ship.x.shape[-1], -1, -1, -1)


def _spawners(state: State, view: _View, rules: Rules) -> list[Stamp]:
    """Stamps of discs, each below a bar whose length is its health."""
    spawners = state.spawners
    x, y = view.place(spawners.x, spawners.y)
    alive = (spawners.health > 0).float()
    row = torch.floor(y - HEALTH_HEIGHT) + 0.5  # all of the bar in one row, or it would look thick and faint
    length = HEALTH_LENGTH * (spawners.health / rules.spawner_health).clamp(0, 1)
    bar = around(x, row, (HEALTH_LENGTH / 2 + 0.5, 0.5), (SIZE, SIZE))
    filled = box(bar, -HEALTH_LENGTH / 2, length - HEALTH_LENGTH / 2, 0.5)
    return [_discs(x, y, SPAWNER_RADIUS, alive, SPAWNER), colored(bar, filled, alive, HEALTH)]


def _enemies(state: State, view: _View) -> Stamp:
    enemies = state.enemies
    return _discs(*view.place(enemies.x, enemies.y), ENEMY_RADIUS, (enemies.health > 0).float(), ENEMY)


def _shots(shots: Projectiles, color: Color, view: _View) -> list[Stamp]:
    """Stamps of a bright disc at each shot and a dim square at its earlier position."""
    alive = (shots.life > 0).float()
    then = view.place(shots.x - TRAIL * shots.vx, shots.y - TRAIL * shots.vy)
    mark = around(*then, _reach(MARK_RADIUS), (SIZE, SIZE))
    return [
        colored(mark, box(mark, -MARK_RADIUS, MARK_RADIUS, MARK_RADIUS), alive * DIM, color),
        _discs(*view.place(shots.x, shots.y), SHOT_RADIUS, alive, color),
    ]


def _ship(state: State, view: _View) -> list[Stamp]:
    """Stamps of a disc with a nose in the direction of fire, and a dim disc at the ship's earlier position."""
    ship = type(state.ship)(*[value.unsqueeze(0) for value in state.ship])
    alive = (ship.health > 0).float()
    x, y = view.place(ship.x, ship.y)
    then = view.place(ship.x - TRAIL * ship.vx, ship.y - TRAIL * ship.vy)
    nose = around(x, y, _reach(NOSE_LENGTH + NOSE_RADIUS), (SIZE, SIZE))
    ahead = NOSE_LENGTH * torch.cos(ship.rotation), NOSE_LENGTH * torch.sin(ship.rotation)
    return [
        _discs(*then, 1.0, alive, WAKE),
        _discs(x, y, SHIP_RADIUS, alive, SHIP),
        colored(nose, capsule(nose, *ahead, NOSE_RADIUS), alive, NOSE),
    ]


def _discs(x: Tensor, y: Tensor, radius: float, brightness: Tensor, color: Color) -> Stamp:
    """Stamp of discs at (x, y) [K, N] in pixels."""
    patches = around(x, y, _reach(radius), (SIZE, SIZE))
    return colored(patches, disc(patches, radius), brightness, color)


def _reach(radius: float) -> tuple[float, float]:
    """Half the side of the patch that holds a disc with its soft edge."""
    return radius + 0.5, radius + 0.5
