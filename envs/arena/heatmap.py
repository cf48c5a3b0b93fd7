"""Observation of the field as a coarse map with one channel per kind of object, drawn for all worlds at once.

An object gives each of the four cells around it a weight that falls linearly with the distance to the cell's center,
so its position between the cells can be read from the weights. Where objects of one kind share a cell the maximum is
kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from envs.arena.rules import Rules
from envs.arena.state import State
from envs.toolkit.raster import Stamp, around, box, put

CHANNELS = ("ship", "aim", "spawners", "spawner_health", "enemies", "shots", "enemy_shots", "edge")
"""Names of the channels. ``aim`` is the line from the ship along its heading; ``spawner_health`` is the spawners'
weight times their health.
"""
GRID = 16
"""Number of rows and columns; the field is stretched to fill them."""


def heatmap(state: State, rules: Rules) -> Tensor:
    """Draw the maps of all worlds, float32 [N, 8, 16, 16] in [0, 1], channels as in ``CHANNELS``; row 0 is the top."""
    ship, enemies, spawners = state.ship, state.enemies, state.spawners
    shots, enemy_shots = state.shots, state.enemy_shots
    things = {
        "ship": (ship.x.unsqueeze(0), ship.y.unsqueeze(0), (ship.health > 0).float().unsqueeze(0)),
        "spawners": (spawners.x, spawners.y, (spawners.health > 0).float()),
        "spawner_health": (spawners.x, spawners.y, (spawners.health / rules.spawner_health).clamp(0, 1)),
        "enemies": (enemies.x, enemies.y, (enemies.health > 0).float()),
        "shots": (shots.x, shots.y, (shots.life > 0).float()),
        "enemy_shots": (enemy_shots.x, enemy_shots.y, (enemy_shots.life > 0).float()),
    }
    blank = torch.zeros(1, 1, GRID, GRID, device=ship.x.device).expand(len(ship.x), -1, -1, -1)
    channels = {name: put(blank, [_shares(*values, rules)]) for name, values in things.items()}
    channels["aim"] = _aim(state, rules).unsqueeze(1)
    channels["edge"] = _edge(ship.x).expand_as(blank)
    return torch.cat([channels[name] for name in CHANNELS], 1)


def _shares(x: Tensor, y: Tensor, value: Tensor, rules: Rules) -> Stamp:
    """Stamp of objects at (x, y) with a value from 0 to 1, [K, N] each."""
    cells = around(x * (GRID / rules.width), y * (GRID / rules.height), (1.0, 1.0), (GRID, GRID))
    shares = box(cells, -0.5, 0.5, 0.5) * value.T.unsqueeze(-1)
    return Stamp(cells.index.flatten(1), shares.flatten(1).unsqueeze(1))


def _aim(state: State, rules: Rules) -> Tensor:
    """Cells near the line along which the ship would shoot, [N, 16, 16]: 1 on the line, 0 from a cell's width on."""
    ship = state.ship
    centers = (torch.arange(GRID, device=ship.x.device) + 0.5) / GRID
    dx = (centers * rules.width - ship.x.unsqueeze(-1)).unsqueeze(1)
    dy = (centers * rules.height - ship.y.unsqueeze(-1)).unsqueeze(2)
    cos, sin = (value.reshape(-1, 1, 1) for value in (torch.cos(ship.rotation), torch.sin(ship.rotation)))
    along = (dx * cos + dy * sin).clamp_min(0)
    across, ahead = dx - along * cos, dy - along * sin
    near = 1 - torch.sqrt(across * across + ahead * ahead) * (GRID / rules.width)
    return near.clamp_min(0) * (ship.health > 0).float().reshape(-1, 1, 1)


def _edge(like: Tensor) -> Tensor:
    """Cells along the walls, [16, 16]."""
    cell = torch.arange(GRID, device=like.device)
    outermost = (cell == 0) | (cell == GRID - 1)
    return (outermost | outermost.unsqueeze(1)).float()
