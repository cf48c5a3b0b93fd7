"""One step of the duel, its end, result and reward."""

from __future__ import annotations

import torch
from torch import Tensor

from envs.arena.dynamics import fire_shots, fly_ship, fly_shots
from envs.arena.rules import THRUSTING, Rules
from envs.duel.rules import REWARD_HIT, REWARD_RESULT
from envs.duel.state import State
from envs.toolkit.geometry import squared_distance


def advance(state: State, action: Tensor, rules: Rules) -> State:
    """Steer both ships and fire their shots at once, move all shots, and apply the hits of both at once.

    ``action`` is int64 [seats, N].
    """
    ships = fly_ship(state.ships, action, rules)
    ships, shots, _ = fire_shots(ships, state.shots, action == THRUSTING.shoot, rules)
    shots = fly_shots(shots, rules)
    # the shots of a seat fly at the other one
    reach = (rules.projectile_radius + rules.ship_radius) ** 2
    touches = (shots.life > 0) & (squared_distance(shots.x - ships.x.flip(0), shots.y - ships.y.flip(0)) < reach)
    left = torch.ceil(ships.health.flip(0) / rules.projectile_damage)
    dealt = torch.minimum(touches.sum(0).float(), left)
    health = (ships.health - dealt.flip(0) * rules.projectile_damage).clamp_min(0)
    return State(
        ships._replace(health=health),
        shots._replace(life=torch.where(touches, 0.0, shots.life)),
        state.step + 1,
        dealt,
        state.total + dealt,
    )


def ends(state: State, rules: Rules) -> tuple[Tensor, Tensor]:
    """Return (terminated, truncated), bool [N] each: a ship is dead; time is up before."""
    dead = (state.ships.health <= 0).any(0)
    return dead, (state.step >= rules.max_steps) & ~dead


def result(state: State, rules: Rules) -> Tensor:
    """Return 1 for the seat that has won, -1 for the one that has lost, 0 for a draw and a running game, [seats, N].
    When time is up, the ship with more health wins.
    """
    dead, late = ends(state, rules)
    health = state.ships.health
    return torch.where(dead | late, (health - health.flip(0)).sign(), 0.0)


def reward(state: State, rules: Rules) -> Tensor:
    """Compute the reward of each seat for the last step, [seats, N]; the sum over seats is zero."""
    return REWARD_HIT * (state.dealt - state.dealt.flip(0)) + REWARD_RESULT * result(state, rules)
