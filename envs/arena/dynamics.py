"""One step of the Arena. ``advance`` is the table of contents of the game; each mechanic takes a state and returns the
next.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from envs.arena.rules import Rules
from envs.arena.state import (
    STREAM_SHOTS,
    STREAM_SPAWNS,
    Enemies,
    Projectiles,
    State,
    no_enemies,
    no_events,
    place_spawners,
    whole,
)
from envs.chance import Chance
from envs.geometry import TAU, clamp_disc, look_up, squared_distance

NUM_ACTIONS = {1: 5, 2: 6}
"""Actions per control style; the last one always shoots."""


def advance(state: State, action: Tensor, chance: Chance, rules: Rules, style: int) -> State:
    """All rules of one step, in the order of the game; ``action`` int64 [N]."""
    state = begin_step(state)
    state = move_ship(state, action, rules, style)
    state = fire_ship(state, action, rules, style)
    state = move_enemies(state, rules)
    state = fire_enemies(state, chance, rules)
    state = spawn_enemies(state, chance, rules)
    state = move_projectiles(state, rules)
    state = hit_targets(state, rules)
    state = hit_ship(state, rules)
    state = ram_ship(state, rules)
    state = track_combat(state, rules)
    state = remove_dead(state)
    return advance_phase(state, chance, rules)


def begin_step(state: State) -> State:
    """Count the step and forget the events of the last one."""
    step = state.progress.step + 1
    return state._replace(progress=state.progress._replace(step=step), events=no_events(torch.zeros_like(step)))


def move_ship(state: State, action: Tensor, rules: Rules, style: int) -> State:
    """Steer and move the ship; its cooldown ticks."""
    ship = state.ship
    steer = _thrust_and_turn if style == 1 else _walk
    vx, vy, rotation = steer(state, action, rules)
    ship = ship._replace(
        x=clamp_disc(ship.x + vx, rules.ship_radius, rules.width),
        y=clamp_disc(ship.y + vy, rules.ship_radius, rules.height),
        vx=vx,
        vy=vy,
        rotation=rotation,
        cooldown=(ship.cooldown - 1).clamp_min(0),
    )
    return state._replace(ship=ship)


def _thrust_and_turn(state: State, action: Tensor, rules: Rules) -> tuple[Tensor, Tensor, Tensor]:
    ship = state.ship
    thrust = torch.where(action == 1, rules.ship_thrust, 0.0)
    vx = (ship.vx + thrust * torch.cos(ship.rotation)) * rules.ship_friction
    vy = (ship.vy + thrust * torch.sin(ship.rotation)) * rules.ship_friction
    limit = (rules.ship_max_speed * torch.rsqrt(squared_distance(vx, vy).clamp_min(1e-12))).clamp_max(1.0)
    turn = torch.where(action == 3, rules.ship_turn, 0.0) - torch.where(action == 2, rules.ship_turn, 0.0)
    return vx * limit, vy * limit, _wrapped(ship.rotation + turn, TAU)


def _walk(state: State, action: Tensor, rules: Rules) -> tuple[Tensor, Tensor, Tensor]:
    speed = rules.ship_walk_speed
    vx = look_up(action, (0.0, 0.0, 0.0, -speed, speed, 0.0))
    vy = look_up(action, (0.0, -speed, speed, 0.0, 0.0, 0.0))
    direction = look_up(action, (0.0, -math.pi / 2, math.pi / 2, math.pi, 0.0, 0.0))
    moves = (action >= 1) & (action <= 4)
    return vx, vy, torch.where(moves, direction, state.ship.rotation)


def fire_ship(state: State, action: Tensor, rules: Rules, style: int) -> State:
    """A shot along the rotation, if asked for and cooled down.

    The slots are a queue: a shot enters at the end and pushes the oldest out, which has expired by then because there
    are as
    many slots as shots in a projectile's lifetime.
    """
    ship = state.ship
    fires = (action == NUM_ACTIONS[style] - 1) & (ship.cooldown == 0)
    new = Projectiles(
        x=ship.x,
        y=ship.y,
        vx=rules.projectile_speed * torch.cos(ship.rotation),
        vy=rules.projectile_speed * torch.sin(ship.rotation),
        life=torch.full_like(ship.x, rules.projectile_lifetime),
    )
    shots = Projectiles(
        *(
            torch.where(fires, torch.cat((old[1:], entry.unsqueeze(0))), old)
            for old, entry in zip(state.shots, new, strict=True)
        )
    )
    ship = ship._replace(cooldown=torch.where(fires, float(rules.ship_cooldown), ship.cooldown))
    return state._replace(ship=ship, shots=shots, events=state.events._replace(shots=fires.float()))


def move_enemies(state: State, rules: Rules) -> State:
    """Every enemy moves straight towards the ship; its cooldown ticks."""
    enemies = state.enemies
    dx, dy = _towards(state.ship.x - enemies.x, state.ship.y - enemies.y)
    alive = enemies.health > 0
    x = clamp_disc(enemies.x + dx * enemies.speed, rules.enemy_radius, rules.width)
    y = clamp_disc(enemies.y + dy * enemies.speed, rules.enemy_radius, rules.height)
    enemies = enemies._replace(
        x=torch.where(alive, x, enemies.x),
        y=torch.where(alive, y, enemies.y),
        cooldown=(enemies.cooldown - 1).clamp_min(0),
    )
    return state._replace(enemies=enemies)


def _towards(dx: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """Unit vector along (dx, dy); zero if there is no distance."""
    inverse = torch.rsqrt(squared_distance(dx, dy).clamp_min(1e-12))
    return dx * inverse, dy * inverse


def fire_enemies(state: State, chance: Chance, rules: Rules) -> State:
    """Enemies that have cooled down may shoot at the ship's position."""
    enemies, ship, pool = state.enemies, state.ship, state.enemy_shots
    luck = chance.uniform(STREAM_SHOTS, rules.max_enemies)
    wants = (enemies.health > 0) & (enemies.cooldown == 0) & (luck < rules.enemy_shoot_probability)
    dx, dy = _towards(ship.x - enemies.x, ship.y - enemies.y)
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
    distance = _wrapped(slots - state.ring_head, rules.max_enemy_projectiles)
    number = torch.zeros_like(ship.x)
    values = list(pool)
    for index in range(rules.max_enemies):
        here = wants[index] & (distance == number)
        values = [torch.where(here, entry[index], old) for old, entry in zip(values, new, strict=True)]
        number = number + wants[index]
    dropped = ((distance < number) & (pool.life > 0)).float().sum(0)
    head = _wrapped(state.ring_head + number, rules.max_enemy_projectiles)
    return state._replace(
        enemies=enemies._replace(cooldown=torch.where(wants, float(rules.enemy_cooldown), enemies.cooldown)),
        enemy_shots=Projectiles(*values),
        ring_head=head,
        events=state.events._replace(shots_dropped=dropped),
    )


def _wrapped(value: Tensor, size: float) -> Tensor:
    """``value`` in (-size, 2 size) brought into [0, size); unlike ``torch.remainder`` this vectorises on a CPU."""
    value = torch.where(value < 0, value + size, value)
    return torch.where(value >= size, value - size, value)


def spawn_enemies(state: State, chance: Chance, rules: Rules) -> State:
    """Spawners that have cooled down create an enemy each while there is room; served in order, each counts for the
    next.
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

    count = (enemies.health > 0).float().sum(0)
    rows = torch.arange(rules.max_enemies, device=phase.device).unsqueeze(1)
    tries_x, tries_y = _places_to_try(state, chance, rules)  # [spawners, tries + 1, N]; the last is the way out
    crowded = _too_close(tries_x[:, :-1], tries_y[:, :-1], enemies, rules)
    created: list[tuple[Tensor, Tensor, Tensor]] = []
    cooldowns = []
    for index in range(rules.max_spawners):
        x, y = _first_clear_place(tries_x[index], tries_y[index], crowded[index], created, rules)
        spawns = ready[index] & (count < room)
        created.append((spawns, x, y))
        slot = spawns & (rows == count)
        enemies = Enemies(
            x=torch.where(slot, x, enemies.x),
            y=torch.where(slot, y, enemies.y),
            health=torch.where(slot, rules.enemy_health, enemies.health),
            speed=torch.where(slot, speed, enemies.speed),
            cooldown=torch.where(slot, 0.0, enemies.cooldown),
        )
        cooldowns.append(torch.where(spawns, restart, cooldown[index]))
        count = count + spawns
    return state._replace(enemies=enemies, spawners=spawners._replace(cooldown=torch.stack(cooldowns)))


def _places_to_try(state: State, chance: Chance, rules: Rules) -> tuple[Tensor, Tensor]:
    spawners, tries = state.spawners, rules.spawn_tries
    slots = rules.max_spawners
    luck = chance.uniform(STREAM_SPAWNS, slots * (2 * tries + 1)).unflatten(0, (slots, -1))
    low, high = rules.spawn_distance
    rim = rules.spawner_radius + rules.enemy_radius
    angle = luck[:, : tries + 1] * TAU
    gap = low + (high - low) * luck[:, tries + 1 :]
    distance = rim + torch.cat((gap, torch.full_like(gap[:, :1], low)), 1)
    x = clamp_disc(spawners.x.unsqueeze(1) + distance * torch.cos(angle), rules.enemy_radius, rules.width)
    y = clamp_disc(spawners.y.unsqueeze(1) + distance * torch.sin(angle), rules.enemy_radius, rules.height)
    return x, y


def _too_close(x: Tensor, y: Tensor, enemies: Enemies, rules: Rules) -> Tensor:
    """Whether each place [spawners, tries, N] is within the clearance of a living enemy."""
    squared = squared_distance(x.unsqueeze(2) - enemies.x, y.unsqueeze(2) - enemies.y)
    return torch.where(enemies.health > 0, squared, torch.inf).amin(2) < rules.spawn_clearance**2


def _first_clear_place(
    x: Tensor, y: Tensor, crowded: Tensor, created: list[tuple[Tensor, Tensor, Tensor]], rules: Rules
) -> tuple[Tensor, Tensor]:
    """The first place of [tries + 1, N] that is not crowded, also by enemies created earlier in this step; the last is
    always taken.
    """
    for spawns, other_x, other_y in created:
        squared = squared_distance(x[:-1] - other_x, y[:-1] - other_y)
        crowded = crowded | (spawns & (squared < rules.spawn_clearance**2))
    place_x, place_y = x[-1], y[-1]
    for attempt in reversed(range(rules.spawn_tries)):
        place_x = torch.where(crowded[attempt], place_x, x[attempt])
        place_y = torch.where(crowded[attempt], place_y, y[attempt])
    return place_x, place_y


def move_projectiles(state: State, rules: Rules) -> State:
    """Every projectile moves and ages; it dies when its centre leaves the field or its life ends."""
    return state._replace(shots=_fly(state.shots, rules), enemy_shots=_fly(state.enemy_shots, rules))


def _fly(shots: Projectiles, rules: Rules) -> Projectiles:
    x, y, life = shots.x + shots.vx, shots.y + shots.vy, (shots.life - 1).clamp_min(0)
    inside = (x >= 0) & (x <= rules.width) & (y >= 0) & (y <= rules.height)
    return shots._replace(x=x, y=y, life=torch.where(inside, life, 0.0))


def hit_targets(state: State, rules: Rules) -> State:
    """Each of the ship's projectiles hits at most one enemy, else at most one spawner; a destroyed spawner heals the
    ship.
    """
    flying = _bits(state.shots.life > 0)
    flying, enemy_health, enemy_hits = _hit_enemies(flying, state, rules)
    flying, spawner_health, spawner_hits = _hit_spawners(flying, state, rules)
    enemies_shot = ((state.enemies.health > 0) & (enemy_health <= 0)).float().sum(0)
    destroyed = ((state.spawners.health > 0) & (spawner_health <= 0)).float().sum(0)
    quick = state.progress.step - state.progress.phase_step < rules.quick_steps
    health = (state.ship.health + destroyed * rules.heal_share * rules.ship_health).clamp_max(rules.ship_health)
    return state._replace(
        ship=state.ship._replace(health=health),
        shots=state.shots._replace(
            life=torch.where(
                (flying & _powers(rules.max_ship_projectiles, flying.device).unsqueeze(1)) != 0, state.shots.life, 0.0
            )
        ),
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
    """Projectiles still flying (bits [N]), enemy health, number of hits.

    Going through the enemies instead of the projectiles gives the same pairs, because both are served in list order:
    the first
    enemy gets the oldest projectiles that touch it until it is dead, the next one what remains.
    """
    touching = _touching(state, state.enemies.x, state.enemies.y, rules.enemy_radius, rules)
    most = math.ceil(rules.enemy_health / rules.projectile_damage)
    health, hits = [], torch.zeros_like(state.ship.x)
    for touches, left in zip(touching, state.enemies.health, strict=True):
        struck, number = _oldest(touches & flying, torch.ceil(left / rules.projectile_damage), most)
        flying = flying & ~struck
        hits = hits + number
        health.append((left - number * rules.projectile_damage).clamp_min(0))
    return flying, torch.stack(health), hits


def _hit_spawners(flying: Tensor, state: State, rules: Rules) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`_hit_enemies` but all at once: no projectile can touch two spawners (Rules checks their sites)."""
    spawners = state.spawners
    touching = _touching(state, spawners.x, spawners.y, rules.spawner_radius, rules)
    needed = torch.ceil(spawners.health / rules.projectile_damage)
    struck, number = _oldest(touching & flying, needed, rules.max_ship_projectiles)
    for mask in struck:
        flying = flying & ~mask
    return flying, (spawners.health - number * rules.projectile_damage).clamp_min(0), number.sum(0)


def _touching(state: State, x: Tensor, y: Tensor, radius: float, rules: Rules) -> Tensor:
    """Which of the ship's projectiles touch each disc [K, N], as bits [K, N]."""
    shots = state.shots
    squared = squared_distance(shots.x - x.unsqueeze(1), shots.y - y.unsqueeze(1))
    return _bits(squared < (rules.projectile_radius + radius) ** 2, 1)


def _bits(mask: Tensor, dim: int = 0) -> Tensor:
    """The bool rows along ``dim`` as the bits of one int32, row 0 lowest; the float32 sum is exact below 2^24."""
    shape = [-1 if axis == dim else 1 for axis in range(mask.ndim)]
    return (mask * _powers(mask.shape[dim], mask.device).float().view(shape)).sum(dim).to(torch.int32)


def _powers(count: int, device: torch.device) -> Tensor:
    """1, 2, 4, ... as int32 [count]."""
    return torch.ones(count, dtype=torch.int32, device=device) << torch.arange(count, dtype=torch.int32, device=device)


def _oldest(available: Tensor, needed: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """The ``needed`` lowest set bits of ``available`` and their number; ``most`` bounds the number."""
    taken, number = torch.zeros_like(available), torch.zeros_like(needed)
    for _ in range(most):
        lowest = torch.where(number < needed, available & -available, 0)
        taken = taken | lowest
        available = available ^ lowest
        number = number + (lowest != 0)
    return taken, number


def hit_ship(state: State, rules: Rules) -> State:
    """Enemy projectiles that touch the ship damage it, until it is dead."""
    ship, shots = state.ship, state.enemy_shots
    reach = (rules.projectile_radius + rules.ship_radius) ** 2
    touches = (shots.life > 0) & (squared_distance(shots.x - ship.x, shots.y - ship.y) < reach)
    state = state._replace(enemy_shots=shots._replace(life=torch.where(touches, 0.0, shots.life)))
    return _damage_ship(state, touches, rules.projectile_damage)[0]


def ram_ship(state: State, rules: Rules) -> State:
    """Enemies that touch the ship damage it and die, until it is dead."""
    ship, enemies = state.ship, state.enemies
    reach = (rules.enemy_radius + rules.ship_radius) ** 2
    touches = (enemies.health > 0) & (squared_distance(enemies.x - ship.x, enemies.y - ship.y) < reach)
    touches = touches & (ship.health > 0)
    state, number = _damage_ship(state, touches, rules.enemy_contact_damage)
    return state._replace(
        enemies=enemies._replace(health=torch.where(touches, 0.0, enemies.health)),
        events=state.events._replace(enemies_rammed=number),
    )


def _damage_ship(state: State, touches: Tensor, damage: float) -> tuple[State, Tensor]:
    """Take ``damage`` for each True of ``touches`` [K, N] while the ship lives; also returns the hits taken."""
    number = torch.minimum(touches.float().sum(0), torch.ceil(state.ship.health / damage))
    health = (state.ship.health - number * damage).clamp_min(0)
    lost = state.tally.damage_taken + number * damage
    return state._replace(
        ship=state.ship._replace(health=health),
        events=state.events._replace(hits_taken=state.events.hits_taken + number),
        tally=state.tally._replace(damage_taken=lost),
    ), number


def track_combat(state: State, rules: Rules) -> State:
    """Combat efficiency for the shaping reward: damage dealt, weighted by health, less the health just lost."""
    progress, events = state.progress, state.events
    spawner_health = state.spawners.health.sum(0)
    kills = events.enemies_shot + events.enemies_rammed
    offence = (progress.tracked_spawners - spawner_health).clamp_min(0)
    offence = offence + kills * rules.enemy_health * rules.shaping_enemy_weight
    lost = (progress.tracked_health - state.ship.health).clamp_min(0)
    health_ratio = state.ship.health / rules.ship_health
    efficiency = offence * (0.5 + 0.5 * health_ratio) - rules.shaping_damage_weight * lost
    return state._replace(
        progress=progress._replace(
            tracking=torch.ones_like(spawner_health),
            tracked_spawners=spawner_health,
            tracked_health=state.ship.health,
        ),
        events=events._replace(shaping=efficiency * progress.tracking),
    )


def remove_dead(state: State) -> State:
    """Close the gaps that dead enemies left, so that the slots stay in the order of appearance."""
    enemies = state.enemies
    rows = torch.arange(enemies.x.shape[0], device=enemies.x.device, dtype=enemies.x.dtype).unsqueeze(1)
    kept = Enemies(*(torch.zeros_like(value) for value in enemies))
    place = torch.zeros_like(state.ship.x)
    for index in range(rows.shape[0]):
        alive = enemies.health[index] > 0
        here = alive & (rows == place)
        kept = Enemies(*(torch.where(here, value[index], old) for value, old in zip(enemies, kept, strict=True)))
        place = place + alive
    return state._replace(enemies=kept)


def advance_phase(state: State, chance: Chance, rules: Rules) -> State:
    """With no spawner left the next phase begins (enemies vanish, projectiles stay), or the game is won."""
    progress = state.progress
    cleared = (state.spawners.health <= 0).all(0)
    phase = progress.phase + cleared
    won = cleared & (phase >= len(rules.phases))
    begins = cleared & ~won
    fresh = place_spawners(phase, state.difficulty, chance, rules)
    nobody = no_enemies(torch.zeros_like(phase), rules)
    return state._replace(
        spawners=type(fresh)(*(torch.where(begins, new, old) for new, old in zip(fresh, state.spawners, strict=True))),
        enemies=Enemies(*(torch.where(begins, new, old) for new, old in zip(nobody, state.enemies, strict=True))),
        progress=progress._replace(
            phase=phase,
            phase_step=torch.where(begins, progress.step, progress.phase_step),
            tracking=torch.where(begins, 0.0, progress.tracking),
        ),
        events=state.events._replace(
            phases_completed=cleared.float(), won=won.float(), died=(state.ship.health <= 0).float()
        ),
    )
