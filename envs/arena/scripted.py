"""Scripted policy for both control styles: it looks half a second ahead along some fifty plans and follows the best.

A plan is a fixed sequence of actions. The ship's trajectory along it is known in closed form, so all plans of all
worlds are evaluated at once: number of hits taken, time until a shot that strikes, and final distance to the target
spawner. The policy reads the game's record (true positions and velocities), not the observation: it is a baseline, a
sparring partner and a test of the rules, not a fair opponent.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from tensordict import TensorDictBase
from torch import Tensor

from envs.arena.rules import ACTIONS, THRUSTING, WALKING, Rules
from envs.arena.state import State
from envs.base.players import Player
from envs.toolkit.geometry import bearing, squared_distance

HORIZON = 30
"""Number of steps that a plan looks ahead."""
STRIDE = 2
"""Number of steps between the checks for collisions: a projectile moves less than a ship's width in them."""
NUM_SHOTS, NUM_ENEMIES, NUM_SPAWNERS = 6, 3, 2
"""Number of objects of each kind that the policy considers while it plans."""


class Taste(NamedTuple):
    """Weights of the policy's cost function; one hit taken costs 1."""

    near_miss: float = 0.3
    """Cost of an object that comes closer than ``margin`` pixels without touching; also added to a hit."""
    margin: float = 10.0
    shot: float = 2.0
    """Value of an immediate shot that strikes a spawner."""
    enemy: float = 0.2
    """Value of a shot that strikes an enemy, as a fraction of ``shot``."""
    reach: float = 250.0
    """Distance [pixels] within which enemies are worth a shot that takes several steps: time to win is short as it is.
    """
    patience: float = 0.95
    """Discount of a shot's value per step of delay."""
    way: float = 0.02
    """Cost per pixel between the end of the plan and the target spawner."""
    line: float = 3.0
    """Style 2: extra pixels per pixel of distance to the nearer axis through that spawner: the ship lines up first."""
    weak: float = 2.0
    """Detour [pixels] that the policy accepts for a spawner, per point of health that the spawner has lost."""


TASTES = {1: Taste(), 2: Taste(shot=3.0, way=0.01)}


class Plans(NamedTuple):
    """First actions of P plans, int64 [P], and the ship's displacement and rotation after each step, [P, HORIZON].

    In style 1 they are relative to a ship at rest that faces +x; ``rotation`` is added to the ship's. In style 2
    ``rotation`` replaces the ship's and is NaN until the plan has moved.
    """

    first: Tensor
    dx: Tensor
    dy: Tensor
    rotation: Tensor


class Course(NamedTuple):
    """Pose of the ship on each plan after each step, [P, HORIZON, N]; plan 0 is to do nothing."""

    x: Tensor
    y: Tensor
    rotation: Tensor


class ScriptedPlayer(Player):
    """Scripted policy of one :class:`~envs.arena.ArenaEnv`, which may be wrapped in transforms.

    Writes ``action`` and reads nothing but the env's record: call it while the env is in the state to act on, as
    ``env.rollout(steps, ScriptedPlayer(env), break_when_any_done=False)`` and single-process collectors do.
    """

    @torch.no_grad()
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        env = self.env
        action = play(env.state, env.rules, env.style, env.action_repeat)
        return tensordict.set("action", env.as_seen(action, env.state))


def play(state: State, rules: Rules, style: int, repeat: int = 1) -> Tensor:
    """Compute the policy's actions, int64 [N], each for ``repeat`` steps of the game: shoot whenever that strikes an
    object, else begin the best plan.
    """
    taste = TASTES[style] if repeat > 1 else TASTES[style]._replace(reach=math.inf)
    plans = make_plans(rules, style, state.ship.x.device, repeat)
    course = follow(plans, state, rules, style)
    strikes = worth(course.x[0, 0], course.y[0, 0], state.ship.rotation, state, rules, taste) > 0
    state = focus(state, taste)
    cost = danger(course, state, rules, taste) + travel(course, state, style, taste)
    cost = cost - opportunity(course, state, rules, taste, repeat)
    shoots = (state.ship.cooldown <= repeat) & strikes  # the cooldown ticks before the shot
    return torch.where(shoots, ACTIONS[style].shoot, plans.first[cost.argmin(0)])


# --- plans -----------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=8)
def make_plans(rules: Rules, style: int, device: torch.device, repeat: int = 1) -> Plans:
    """Make the plans of a style, of actions that last ``repeat`` steps each."""
    rows = _turns_and_thrusts(repeat) if style == 1 else _walks(repeat)
    actions = torch.tensor([row[:HORIZON] for row in rows], device=device)
    return _steered(actions, rules) if style == 1 else _walked(actions, rules)


def _turns_and_thrusts(repeat: int) -> list[list[int]]:
    """Action sequences of style 1: turn, then thrust, then drift."""
    idle, thrust, left, right = THRUSTING.idle, THRUSTING.thrust, THRUSTING.left, THRUSTING.right
    turns = [[], *([side] * steps for steps in _whole((1, 2, 4, 8, 14, 22, 30), repeat) for side in (left, right))]
    return [turn + [thrust] * steps + [idle] * HORIZON for turn in turns for steps in (0, *_whole((6, 18), repeat))]


def _walks(repeat: int) -> list[list[int]]:
    """Action sequences of style 2: walk one way, then rest or walk along the other axis for a moment."""
    idle, vertical, horizontal = WALKING.idle, (WALKING.up, WALKING.down), (WALKING.left, WALKING.right)
    rows, (moment,) = [[idle] * HORIZON], _whole((8,), repeat)
    for way in (*vertical, *horizontal):
        rows.append([way] * HORIZON)
        across = horizontal if way in vertical else vertical
        for steps in _whole((1, 3, 8, 20), repeat):
            rows += [[way] * steps + [then] * moment + [idle] * HORIZON for then in (idle, *across)]
    return rows


def _whole(steps: Sequence[int], repeat: int) -> list[int]:
    """Round numbers of steps to multiples of ``repeat``, at least one action, without duplicates."""
    return sorted({max(1, round(each / repeat)) * repeat for each in steps})


def _steered(actions: Tensor, rules: Rules) -> Plans:
    turn = rules.ship_turn * ((actions == THRUSTING.right).float() - (actions == THRUSTING.left).float())
    rotation = turn.cumsum(1)
    thrust = rules.ship_thrust * (actions == THRUSTING.thrust)
    step = torch.arange(HORIZON, device=actions.device)
    carried = _carried(step - step.unsqueeze(1) + 1, rules)  # [step of the thrust, later step]
    return Plans(
        first=actions[:, 0],
        dx=(thrust * torch.cos(rotation)) @ carried,
        dy=(thrust * torch.sin(rotation)) @ carried,
        rotation=rotation,
    )


def _carried(steps: Tensor, rules: Rules) -> Tensor:
    """Distance that a speed of 1 carries the ship in the given number of steps (the speed limit is ignored)."""
    friction = rules.ship_friction
    # geometric series: friction + friction^2 + ... + friction^steps
    return friction * (1 - friction ** steps.clamp_min(0)) / (1 - friction)


def _walked(actions: Tensor, rules: Rules) -> Plans:
    right = (actions == WALKING.right).float() - (actions == WALKING.left).float()
    down = (actions == WALKING.down).float() - (actions == WALKING.up).float()
    last_move = ((actions != WALKING.idle) * torch.arange(1, HORIZON + 1, device=actions.device)).cummax(1).values
    facing = bearing(right, down).gather(1, (last_move - 1).clamp_min(0))
    return Plans(
        first=actions[:, 0],
        dx=right.cumsum(1) * rules.ship_walk_speed,
        dy=down.cumsum(1) * rules.ship_walk_speed,
        rotation=torch.where(last_move > 0, facing, math.nan),
    )


def follow(plans: Plans, state: State, rules: Rules, style: int) -> Course:
    """Compute the trajectories of each ship along the plans."""
    ship = state.ship
    dx, dy, rotation = plans.dx.unsqueeze(-1), plans.dy.unsqueeze(-1), plans.rotation.unsqueeze(-1)
    if style == 1:
        cos, sin = torch.cos(ship.rotation), torch.sin(ship.rotation)
        drift = _carried(torch.arange(1, HORIZON + 1, device=cos.device), rules).unsqueeze(-1)
        dx, dy = dx * cos - dy * sin + drift * ship.vx, dx * sin + dy * cos + drift * ship.vy
        rotation = ship.rotation + rotation
    else:
        rotation = torch.where(rotation.isnan(), ship.rotation, rotation)
    rim = rules.ship_radius
    x = (ship.x + dx).clamp(rim, rules.width - rim)
    return Course(x, (ship.y + dy).clamp(rim, rules.height - rim), rotation)


# --- evaluation -----------------------------------------------------------------------------------------------------


def focus(state: State, taste: Taste) -> State:
    """Reduce the state to the nearest shots and enemies, and the spawners in the order in which they are targeted."""
    ship, shots, enemies, spawners = state.ship, state.enemy_shots, state.enemies, state.spawners

    def nearest(things: Any, alive: Tensor, count: int, detour: Tensor | float = 0.0) -> Any:
        distance = torch.sqrt(squared_distance(things.x - ship.x, things.y - ship.y)) + detour
        distance = torch.where(alive, distance, torch.inf)
        rows = distance.topk(min(count, len(distance)), 0, largest=False).indices
        return type(things)(*(value.gather(0, rows) for value in things))

    return state._replace(
        enemy_shots=nearest(shots, shots.life > 0, NUM_SHOTS),
        enemies=nearest(enemies, enemies.health > 0, NUM_ENEMIES),
        spawners=nearest(spawners, spawners.health > 0, NUM_SPAWNERS, taste.weak * spawners.health),
    )


def danger(course: Course, state: State, rules: Rules, taste: Taste) -> Tensor:
    """Cost of hits and near misses on each plan, [P, N], if enemies keep moving to the ship's present position."""
    ship, shots, enemies = state.ship, state.enemy_shots, state.enemies
    dx, dy = ship.x - enemies.x, ship.y - enemies.y
    pace = enemies.speed * torch.rsqrt(squared_distance(dx, dy).clamp_min(1.0))
    x, vx = torch.cat((shots.x, enemies.x)), torch.cat((shots.vx, dx * pace))
    y, vy = torch.cat((shots.y, enemies.y)), torch.cat((shots.vy, dy * pace))
    life = torch.cat((shots.life, torch.where(enemies.health > 0, torch.inf, 0.0)))
    things = ((shots.x, rules.projectile_radius), (enemies.x, rules.enemy_radius))
    reach = rules.ship_radius + torch.cat([torch.full_like(each, radius) for each, radius in things])

    time = torch.arange(STRIDE, HORIZON + 1, STRIDE, device=x.device).view(-1, 1, 1)
    then_x = torch.where(life >= time, x + vx * time, torch.inf)  # [moments, things, N]
    then_y = y + vy * time
    moments = slice(STRIDE - 1, None, STRIDE)
    gap_x, gap_y = course.x[:, moments].unsqueeze(2) - then_x, course.y[:, moments].unsqueeze(2) - then_y
    closest = squared_distance(gap_x, gap_y).amin(1)
    return ((closest < reach**2) + taste.near_miss * (closest < (reach + taste.margin) ** 2)).sum(1)


def opportunity(course: Course, state: State, rules: Rules, taste: Taste, repeat: int) -> Tensor:
    """Value of the best shot that each plan allows at the end of an action of ``repeat`` steps, [P, N]."""
    ends = slice(repeat - 1, None, repeat)
    step = torch.arange(HORIZON, device=course.x.device, dtype=course.x.dtype)[ends].unsqueeze(-1)
    cooled = step + 1 + repeat >= state.ship.cooldown
    x, y, rotation = (each[:, ends] for each in course)
    value = worth(x, y, rotation, state, rules, taste)
    return (value * cooled * taste.patience**step).amax(1)


def travel(course: Course, state: State, style: int, taste: Taste) -> Tensor:
    """Cost of the distance between the end of each plan and the target spawner, [P, N]; in style 2 shots go along the
    axes.
    """
    spawners = state.spawners
    dx, dy = (course.x[:, -1] - spawners.x[0]).abs(), (course.y[:, -1] - spawners.y[0]).abs()
    straight = torch.sqrt(squared_distance(dx, dy))
    return taste.way * (straight if style == 1 else dx + dy + taste.line * torch.minimum(dx, dy))


def worth(x: Tensor, y: Tensor, rotation: Tensor, state: State, rules: Rules, taste: Taste) -> Tensor:
    """Value of a shot from (x, y) along ``rotation`` [..., N]: that of a near enemy if it strikes one, else of a
    spawner, else 0.
    """
    ship, enemies, spawners = state.ship, state.enemies, state.spawners
    near = squared_distance(enemies.x - ship.x, enemies.y - ship.y) < taste.reach**2
    cos, sin = torch.cos(rotation).unsqueeze(-2), torch.sin(rotation).unsqueeze(-2)
    x, y = x.unsqueeze(-2), y.unsqueeze(-2)

    def strikes(things: Any, counted: Tensor, radius: float) -> Tensor:
        dx, dy = things.x - x, things.y - y
        along, across = dx * cos + dy * sin, (dx * sin - dy * cos).abs()
        reach = radius + rules.projectile_radius - 2  # 2 pixels less, to exclude grazing shots
        ahead = (along > -reach / 2) & (along < rules.projectile_speed * rules.projectile_lifetime)
        return (counted & ahead & (across < reach)).any(-2)

    spawner = taste.shot * strikes(spawners, spawners.health > 0, rules.spawner_radius)
    enemy = strikes(enemies, (enemies.health > 0) & near, rules.enemy_radius)
    return torch.where(enemy, taste.shot * taste.enemy, spawner)
