"""Collisions between projectiles, ship, enemies and spawners in a step, and their damage."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from envs.arena.rules import Rules
from envs.arena.state import State
from envs.toolkit.geometry import squared_distance


def hit_targets(state: State, rules: Rules) -> State:
    """Apply hits of the ship's projectiles, each on at most one enemy, else at most one spawner; a destroyed spawner
    heals the ship.
    """
    flying = _bits(state.shots.life > 0)
    flying, enemy_health, enemy_hits = _hit_enemies(flying, state, rules)
    flying, spawner_health, spawner_hits = _hit_spawners(flying, state, rules)
    enemies_shot = ((state.enemies.health > 0) & (enemy_health <= 0)).float().sum(0)
    destroyed = ((state.spawners.health > 0) & (spawner_health <= 0)).float().sum(0)
    quick = state.progress.step - state.progress.phase_step < rules.quick_steps
    health = (state.ship.health + destroyed * rules.heal_share * rules.ship_health).clamp_max(rules.ship_health)
    fly_on = (flying & _powers(rules.max_ship_projectiles, flying.device).unsqueeze(1)) != 0
    return state._replace(
        ship=state.ship._replace(health=health),
        shots=state.shots._replace(life=torch.where(fly_on, state.shots.life, 0.0)),
        enemies=state.enemies._replace(health=enemy_health),
        spawners=state.spawners._replace(health=spawner_health),
        events=state.events._replace(
            enemy_hits=enemy_hits,
            enemies_shot=enemies_shot,
            spawner_hits=spawner_hits,
            spawners_destroyed=destroyed,
            quick_spawners=torch.where(quick, destroyed, 0.0),
        ),
    )


def _hit_enemies(flying: Tensor, state: State, rules: Rules) -> tuple[Tensor, Tensor, Tensor]:
    """Return projectiles still flying (bits [N]), enemy health and number of hits.

    A loop over the enemies instead of the projectiles gives the same pairs, because both are served in list order:
    the first enemy gets the oldest projectiles that touch it until it is dead, the next one those that remain.
    """
    touching = _touching(state, state.enemies.x, state.enemies.y, rules.enemy_radius, rules)
    most = math.ceil(rules.enemy_health / rules.projectile_damage)
    health, hits = [], torch.zeros_like(state.ship.x)
    for touches, left in zip(touching, state.enemies.health, strict=True):
        struck, count = _oldest(touches & flying, torch.ceil(left / rules.projectile_damage), most)
        flying = flying & ~struck
        hits = hits + count
        health.append((left - count * rules.projectile_damage).clamp_min(0))
    return flying, torch.stack(health), hits


def _hit_spawners(flying: Tensor, state: State, rules: Rules) -> tuple[Tensor, Tensor, Tensor]:
    """Return the same for spawners, all at once: no projectile can touch two of them (Rules checks their sites)."""
    spawners = state.spawners
    touching = _touching(state, spawners.x, spawners.y, rules.spawner_radius, rules)
    needed = torch.ceil(spawners.health / rules.projectile_damage)
    struck, count = _oldest(touching & flying, needed, rules.max_ship_projectiles)
    for mask in struck:
        flying = flying & ~mask
    return flying, (spawners.health - count * rules.projectile_damage).clamp_min(0), count.sum(0)


def _touching(state: State, x: Tensor, y: Tensor, radius: float, rules: Rules) -> Tensor:
    """Bit set of the ship's projectiles that touch each disc [K, N], as bits [K, N]."""
    shots = state.shots
    squared = squared_distance(shots.x - x.unsqueeze(1), shots.y - y.unsqueeze(1))
    return _bits(squared < (rules.projectile_radius + radius) ** 2, 1)


def _bits(mask: Tensor, dim: int = 0) -> Tensor:
    """Pack the bool rows along ``dim`` into bits of one int32, row 0 lowest; the float32 sum is exact below 2^24."""
    shape = [-1 if axis == dim else 1 for axis in range(mask.ndim)]
    return (mask * _powers(mask.shape[dim], mask.device).float().view(shape)).sum(dim).to(torch.int32)


def _powers(count: int, device: torch.device) -> Tensor:
    """Powers of two 1, 2, 4, ... as int32 [count]."""
    return torch.ones(count, dtype=torch.int32, device=device) << torch.arange(count, dtype=torch.int32, device=device)


def _oldest(available: Tensor, needed: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Return the ``needed`` lowest set bits of ``available`` and their number; ``most`` bounds the number."""
    taken, count = torch.zeros_like(available), torch.zeros_like(needed)
    for _ in range(most):
        # x & -x is the lowest set bit of x: the oldest of those that are left
        lowest = torch.where(count < needed, available & -available, 0)
        taken = taken | lowest
        available = available ^ lowest
        count = count + (lowest != 0)
    return taken, count


def hit_ship(state: State, rules: Rules) -> State:
    """Damage the ship by enemy projectiles that touch it, until it is dead, and remove them.

    Those after the one that killed it are removed too, which in the original fly on: the difference shows in the last
    observation of a lost game and nowhere else, and to tell them apart the ring would have to be sorted at each step.
    """
    ship, shots = state.ship, state.enemy_shots
    reach = (rules.projectile_radius + rules.ship_radius) ** 2
    touches = (shots.life > 0) & (squared_distance(shots.x - ship.x, shots.y - ship.y) < reach)
    state = state._replace(enemy_shots=shots._replace(life=torch.where(touches, 0.0, shots.life)))
    return _damage_ship(state, touches, rules.projectile_damage)[0]


def ram_ship(state: State, rules: Rules) -> State:
    """Damage the ship by enemies that touch it, until it is dead; all of them die, as in :func:`hit_ship`."""
    ship, enemies = state.ship, state.enemies
    reach = (rules.enemy_radius + rules.ship_radius) ** 2
    touches = (enemies.health > 0) & (squared_distance(enemies.x - ship.x, enemies.y - ship.y) < reach)
    state, count = _damage_ship(state, touches, rules.enemy_contact_damage)
    touches = touches & (ship.health > 0)
    return state._replace(
        enemies=enemies._replace(health=torch.where(touches, 0.0, enemies.health)),
        events=state.events._replace(enemies_rammed=count),
    )


def _damage_ship(state: State, touches: Tensor, damage: float) -> tuple[State, Tensor]:
    """Apply ``damage`` for each True of ``touches`` [K, N] while the ship lives; also return the hits taken."""
    count = torch.minimum(touches.float().sum(0), torch.ceil(state.ship.health / damage))
    health = (state.ship.health - count * damage).clamp_min(0)
    lost = state.tally.damage_taken + count * damage
    return state._replace(
        ship=state.ship._replace(health=health),
        events=state.events._replace(hits_taken=state.events.hits_taken + count),
        tally=state.tally._replace(damage_taken=lost),
    ), count
