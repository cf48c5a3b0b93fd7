"""Reflection of the field: the game is symmetric under an exchange of left and right, so a policy trained on half of
the observations covers all of them.

The symmetry along x is exact. Along y it holds except for the sites of the spawners of later phases.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from envs.arena.rules import THRUSTING, WALKING, Rules
from envs.arena.state import State
from envs.toolkit.geometry import TAU, nearest, squared_distance, wrapped


class Mirrors(NamedTuple):
    """Axes along which each world is reflected, bool [N]."""

    x: Tensor
    y: Tensor


def choose_mirrors(state: State, style: int) -> Mirrors:
    """Choose the mirrors in which the nearest spawner is to the right of the ship's heading (style 1), or to the right
    of the ship and below it (style 2).
    """
    ship, spawners = state.ship, state.spawners
    dx, dy = spawners.x - ship.x, spawners.y - ship.y
    squared = torch.where(spawners.health > 0, squared_distance(dx, dy), torch.inf)
    ((_, dx, dy),) = nearest(squared, 1, dx, dy)
    if style == 1:
        left = torch.cos(ship.rotation) * dy < torch.sin(ship.rotation) * dx
        return Mirrors(left, torch.zeros_like(left))
    return Mirrors(dx < 0, dy < 0)


def mirrored(state: State, mirrors: Mirrors, rules: Rules) -> State:
    """Return the worlds reflected in their mirrors."""
    ship = state.ship
    rotation = torch.where(mirrors.x, wrapped(math.pi - ship.rotation, TAU), ship.rotation)
    rotation = torch.where(mirrors.y, wrapped(-rotation, TAU), rotation)
    return state._replace(
        ship=_moving(ship, mirrors, rules)._replace(rotation=rotation),
        enemies=_placed(state.enemies, mirrors, rules),
        spawners=_placed(state.spawners, mirrors, rules),
        shots=_moving(state.shots, mirrors, rules),
        enemy_shots=_moving(state.enemy_shots, mirrors, rules),
    )


def _placed(things: Any, mirrors: Mirrors, rules: Rules) -> Any:
    return things._replace(
        x=torch.where(mirrors.x, rules.width - things.x, things.x),
        y=torch.where(mirrors.y, rules.height - things.y, things.y),
    )


def _moving(things: Any, mirrors: Mirrors, rules: Rules) -> Any:
    return _placed(things, mirrors, rules)._replace(
        vx=torch.where(mirrors.x, -things.vx, things.vx), vy=torch.where(mirrors.y, -things.vy, things.vy)
    )


def exchanged(action: Tensor, mirrors: Mirrors, style: int) -> Tensor:
    """Convert actions between the reflected and the true world, either way, int64 [N]."""
    if style == 1:
        return _swap(action, mirrors.x ^ mirrors.y, THRUSTING.left, THRUSTING.right)
    action = _swap(action, mirrors.x, WALKING.left, WALKING.right)
    return _swap(action, mirrors.y, WALKING.up, WALKING.down)


def _swap(action: Tensor, where: Tensor, one: int, other: int) -> Tensor:
    either = (action == one) | (action == other)
    return torch.where(where & either, one + other - action, action)
