"""State of a batch of duels. Every tensor has the world axis last."""

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
"""Streams of random numbers: first positions of ships, and actions of the random opponent."""


class State(NamedTuple):
    """Two ships and their shots."""

    ships: Ship
    """Ships, [seats, N] each."""
    shots: Projectiles
    """Shots, [slots, seats, N] each, the oldest first."""
    step: Tensor
    """Number of game steps, [N]."""
    dealt: Tensor
    """Number of hits that each ship dealt in the last step, [seats, N]."""
    total: Tensor
    """Number of hits that each ship dealt in the episode, [seats, N]."""


def spawn(like: Tensor, chance: Chance, rules: Rules, midway: bool) -> State:
    """Place the ships point-symmetrically: each is the other, turned by half a circle about the center of the field, so
    that equal policies win equally often.

    Args:
        like: float32 [N], for its shape and device.
        chance: random numbers of the worlds.
        rules: rules of the game.
        midway: start at random step counts.
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
