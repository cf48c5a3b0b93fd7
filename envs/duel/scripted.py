"""Scripted policies of the duel: one that stands and shoots, and one that also flies."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor

from envs.arena.rules import THRUSTING, Rules
from envs.base.contract import GROUP
from envs.base.players import Player
from envs.duel.state import State
from envs.toolkit.geometry import TAU, bearing, squared_distance

NEAR = 260.0
"""Distance [pixels] to the other ship below which the flying policy comes no closer."""
CALM = 0.25
"""Largest angle to the other ship at which it thrusts [rad]."""
DRIFT, PERIOD = 12, 40
"""Number of first steps of every period in which it thrusts anyway, so as not to stand still; the period [steps]."""
WIDTH = 18.0
"""Distance [pixels] by which a shot may miss the center of the other ship."""


def play(state: State, rules: Rules, flies: bool) -> Tensor:
    """Compute the actions of every seat, int64 [seats, N]: turn to the other ship's position at the arrival of a shot,
    and shoot when it would hit.
    """
    ships = state.ships
    x, y = ships.x.flip(0) - ships.x, ships.y.flip(0) - ships.y
    distance = torch.sqrt(squared_distance(x, y))
    arrival = distance / rules.projectile_speed
    for _ in range(2):
        ahead = x + ships.vx.flip(0) * arrival, y + ships.vy.flip(0) * arrival
        arrival = torch.sqrt(squared_distance(*ahead)) / rules.projectile_speed
    aim = bearing(x + ships.vx.flip(0) * arrival, y + ships.vy.flip(0) * arrival) - ships.rotation
    aim = aim - TAU * torch.floor(aim / TAU + 0.5)
    action = torch.where(aim > 0, THRUSTING.right, THRUSTING.left)
    action = torch.where(aim.abs() < rules.ship_turn / 2, THRUSTING.idle, action)
    if flies:
        drifts = (torch.remainder(state.step, PERIOD) < DRIFT) & (ships.cooldown > 2)
        action = torch.where(((distance > NEAR) & (aim.abs() < CALM)) | drifts, THRUSTING.thrust, action)
    ready = (ships.cooldown <= 1) & (aim.abs() < bearing(distance.clamp_min(30), torch.full_like(distance, WIDTH)))
    return torch.where(ready, THRUSTING.shoot, action)


class ScriptedPlayer(Player):
    """Scripted policy for all seats that agents hold, from the record of the world.

    Args:
        env: the world.
        flies: True to fly; False to stand still and shoot, as a turret.
    """

    def __init__(self, env: Any, flies: bool) -> None:
        super().__init__(env)
        self.flies = flies

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the actions."""
        action = play(self.env.state, self.env.rules, self.flies).T
        return tensordict.set((GROUP, "action"), action[:, : self.env.num_agents].contiguous())
