"""The duel's record. Every tensor has the world axis last."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from envs.arena.rules import Rules
from envs.arena.state import Projectiles, Ship
from envs.duel.rules import SEATS
from envs.toolkit.chance import Chance
from envs.toolkit.geometry import TAU, wrapped

STREAM_START, STREAM_OPPONENT = 0, 1
"""Streams of chance: where ships begin, and what an opponent by chance does."""


class State(NamedTuple):
    """Two ships and their shots."""

    ships: Ship
    """[seats, N] each."""
    shots: Projectiles
    """[slots, seats, N] each, the oldest first."""
    step: Tensor
    """Steps of the game, [N]."""
    dealt: Tensor
    """Hits that each ship dealt in the last step, [seats, N]."""
    total: Tensor
    """Hits that it dealt in the episode, [seats, N]."""


def spawn(like: Tensor, chance: Chance, rules: Rules, midway: bool) -> State:
    """Ships that face each other's opposite from opposite places: each is the other, turned by half a circle about the
    middle of the field, so that equal players win equally often.

    Args:
        like: float32 [N].
        chance: of the worlds.
        rules: of the game.
        midway: begin at random steps.
    """
    x, y, turn, time = chance.uniform(STREAM_START, 4)
    x, y, turn = rules.width * (0.05 + 0.35 * x), rules.height * (0.1 + 0.8 * y), turn * TAU
    nothing = torch.zeros(SEATS, *like.shape, device=like.device)
    ships = Ship(
        x=torch.stack((x, rules.width - x)),
        y=torch.stack((y, rules.height - y)),
        vx=nothing,
        vy=nothing,
        rotation=torch.stack((turn, wrapped(turn + TAU / 2, TAU))),
        health=nothing + rules.ship_health,
        cooldown=nothing,
    )
    empty = torch.zeros(rules.max_ship_projectiles, *nothing.shape, device=like.device)
    step = torch.floor(time * rules.max_steps) if midway else torch.zeros_like(like)
    return State(ships, Projectiles(*[empty] * len(Projectiles._fields)), step, nothing, nothing)
