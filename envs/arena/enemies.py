"""Enemies' part of a step: chase, shoot, spawn, removal."""

from __future__ import annotations

import torch
from torch import Tensor

from envs.arena.rules import Rules
from envs.arena.state import STREAM_SHOTS, STREAM_SPAWNS, Enemies, Projectiles, State, whole
from envs.toolkit.chance import Chance
from envs.toolkit.geometry import TAU, clamp_disc, look_up, squared_distance, wrapped
from envs.toolkit.records import choose, every


def move_enemies(state: State, rules: Rules) -> State:
    """Move every enemy straight toward the ship, and count down its cooldown."""
    enemies = state.enemies
    dx, dy = _toward(state.ship.x - enemies.x, state.ship.y - enemies.y)
    alive = enemies.health > 0
    x = clamp_disc(enemies.x + dx * enemies.speed, rules.enemy_radius, rules.width)
    y = clamp_disc(enemies.y + dy * enemies.speed, rules.enemy_radius, rules.height)
    enemies = enemies._replace(
        x=torch.where(alive, x, enemies.x),
        y=torch.where(alive, y, enemies.y),
        cooldown=(enemies.cooldown - 1).clamp_min(0),
    )
    return state._replace(enemies=enemies)


def _toward(dx: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """Unit vector along (dx, dy); zero if there is no distance."""
    inverse = torch.rsqrt(squared_distance(dx, dy).clamp_min(1e-12))
    return dx * inverse, dy * inverse


def fire_enemies(state: State, chance: Chance, rules: Rules) -> State:
    """Let enemies whose cooldown is over shoot at the ship's position with the rules' probability."""
    enemies, ship, pool = state.enemies, state.ship, state.enemy_shots
    luck = chance.uniform(STREAM_SHOTS, rules.max_enemies)
    wants = (enemies.health > 0) & (enemies.cooldown == 0) & (luck < rules.enemy_shoot_probability)
    dx, dy = _toward(ship.x - enemies.x, ship.y - enemies.y)
    straight = (dx == 0) & (dy == 0)  # an enemy on top of the ship shoots along +x, the bearing of the zero vector
    new = Projectiles(
        x=enemies.x,
        y=enemies.y,
        vx=torch.where(straight, 1.0, dx) * rules.projectile_speed,
        vy=dy * rules.projectile_speed,
        life=torch.full_like(dx, rules.projectile_lifetime),
    )
    # the slots are a ring: shots overwrite the oldest, and one that is still in flight is lost and counted
    slots = torch.arange(rules.max_enemy_projectiles, device=dx.device, dtype=dx.dtype).unsqueeze(1)
    distance = wrapped(slots - state.ring_head, rules.max_enemy_projectiles)
    count = torch.zeros_like(ship.x)
    values = list(pool)
    for index in range(rules.max_enemies):
        here = wants[index] & (distance == count)
        values = [torch.where(here, entry[index], old) for old, entry in zip(values, new, strict=True)]
        count = count + wants[index]
    dropped = ((pool.life > 0) & (values[-1] > pool.life)).float().sum(0)  # a new shot outlives those in flight
    head = wrapped(state.ring_head + count, rules.max_enemy_projectiles)
    return state._replace(
        enemies=enemies._replace(cooldown=torch.where(wants, float(rules.enemy_cooldown), enemies.cooldown)),
        enemy_shots=Projectiles(*values),
        ring_head=head,
        events=state.events._replace(shots_dropped=dropped),
    )


def spawn_enemies(state: State, chance: Chance, rules: Rules) -> State:
    """Create an enemy at each spawner whose cooldown is over while there is room; spawners are served in order, and
    each new enemy counts for the next.
    """
    spawners, enemies, difficulty = state.spawners, state.enemies, state.difficulty
    phase = state.progress.phase
    cooldown = (spawners.cooldown - 1).clamp_min(0)
    ready = (spawners.health > 0) & (cooldown == 0)
    room = whole(rules.max_enemies * difficulty.max_enemies).clamp_max(rules.max_enemies)
    restart = whole(
        rules.spawner_cooldown * look_up(phase, [p.spawn_cooldown for p in rules.phases]) * difficulty.spawn_cooldown
    )
    speed = rules.enemy_speed * look_up(phase, [p.enemy_speed for p in rules.phases]) * difficulty.enemy_speed

    place_x, place_y = _clear_places(state, chance, rules)
    count = (enemies.health > 0).float().sum(0)
    rows = torch.arange(rules.max_enemies, device=phase.device).unsqueeze(1)
    cooldowns = []
    for index in range(rules.max_spawners):
        spawns = ready[index] & (count < room)
        slot = spawns & (rows == count)
        enemies = Enemies(
            x=torch.where(slot, place_x[index], enemies.x),
            y=torch.where(slot, place_y[index], enemies.y),
            health=torch.where(slot, rules.enemy_health, enemies.health),
            speed=torch.where(slot, speed, enemies.speed),
            cooldown=torch.where(slot, 0.0, enemies.cooldown),
        )
        cooldowns.append(torch.where(spawns, restart, cooldown[index]))
        count = count + spawns
    return state._replace(enemies=enemies, spawners=spawners._replace(cooldown=torch.stack(cooldowns)))


def _clear_places(state: State, chance: Chance, rules: Rules) -> tuple[Tensor, Tensor]:
    """Position (x, y) of each spawner's next enemy, [spawners, N]: the first of its tries that is not crowded.

    Only enemies from before this step can crowd a position: spawners stand too far apart for their new ones to meet.
    The chosen position is computed again from its index, which costs less than keeping all of them in memory.
    """
    enemies, tries = state.enemies, rules.spawn_tries
    # by index of the spawner: the angles of all tries and of the fallback, then the gaps of all tries
    luck = chance.uniform(STREAM_SPAWNS, rules.max_spawners * (2 * tries + 1)).unflatten(0, (-1, 2 * tries + 1))
    x, y = _places(state, luck[:, :tries], luck[:, tries + 1 :], rules)
    squared = squared_distance(x.unsqueeze(2) - enemies.x, y.unsqueeze(2) - enemies.y)
    crowded = torch.where(enemies.health > 0, squared, torch.inf).amin(2) < rules.spawn_clearance**2
    first = torch.full_like(state.spawners.x, tries, dtype=torch.int32)
    for attempt in reversed(range(tries)):
        first = torch.where(crowded[:, attempt], first, attempt)
    slots = torch.arange(rules.max_spawners, dtype=torch.int32, device=first.device).unsqueeze(1)
    lanes = slots * (2 * tries + 1) + first
    angle, gap = (chance.uniform_at(STREAM_SPAWNS, lanes + behind) for behind in (0, tries + 1))
    x, y = _places(state, angle.unsqueeze(1), torch.where(first < tries, gap, 0.0).unsqueeze(1), rules)
    return x.squeeze(1), y.squeeze(1)


def _places(state: State, angle: Tensor, gap: Tensor, rules: Rules) -> tuple[Tensor, Tensor]:
    """Position of an enemy for ``angle`` and ``gap`` [spawners, tries, N] in [0, 1) of each spawner; a gap of 0 is the
    fallback, close to the spawner.
    """
    low, high = rules.spawn_distance
    distance = rules.spawner_radius + rules.enemy_radius + (low + (high - low) * gap)
    x, y = state.spawners.x.unsqueeze(1), state.spawners.y.unsqueeze(1)
    x = clamp_disc(x + distance * torch.cos(angle * TAU), rules.enemy_radius, rules.width)
    y = clamp_disc(y + distance * torch.sin(angle * TAU), rules.enemy_radius, rules.height)
    return x, y


def remove_dead(state: State) -> State:
    """Close the gaps that dead enemies left, so that the slots stay in the order of appearance."""
    enemies = state.enemies
    rows = torch.arange(enemies.x.shape[0], device=enemies.x.device, dtype=enemies.x.dtype).unsqueeze(1)
    kept = every(Enemies, torch.zeros_like(enemies.x))
    place = torch.zeros_like(state.ship.x)
    for index in range(rows.shape[0]):
        alive = enemies.health[index] > 0
        here = alive & (rows == place)
        kept = choose(here, Enemies(*(value[index] for value in enemies)), kept)
        place = place + alive
    return state._replace(enemies=kept)
