"""One step of the Arena. ``advance`` lists the mechanics in their order; each takes a state and returns the next."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from envs.arena.collisions import hit_ship, hit_targets, ram_ship
from envs.arena.enemies import fire_enemies, move_enemies, remove_dead, spawn_enemies
from envs.arena.rules import ACTIONS, THRUSTING, WALKING, Rules
from envs.arena.state import Events, Projectiles, Ship, State, place_spawners
from envs.toolkit.chance import Chance
from envs.toolkit.geometry import TAU, clamp_disc, look_up, squared_distance, total, wrapped
from envs.toolkit.records import choose, every, map_record


def advance(state: State, action: Tensor, chance: Chance, rules: Rules, style: int) -> State:
    """Apply all rules of one step, in the order of the game; ``action`` int64 [N]."""
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
    state = advance_phase(state, chance, rules)
    return count_events(state, rules)


def begin_step(state: State) -> State:
    """Count the step and clear the events of the last one."""
    step = state.progress.step + 1
    return state._replace(progress=state.progress._replace(step=step), events=every(Events, torch.zeros_like(step)))


def move_ship(state: State, action: Tensor, rules: Rules, style: int) -> State:
    """Steer and move the ship, and count down its cooldown."""
    steer = _thrust_and_turn if style == 1 else _walk
    return state._replace(ship=_moved(state.ship, *steer(state.ship, action, rules), rules))


def fly_ship(ship: Ship, action: Tensor, rules: Rules) -> Ship:
    """Steer and move ships of any shape [...] in style 1, and count down their cooldowns."""
    return _moved(ship, *_thrust_and_turn(ship, action, rules), rules)


def _moved(ship: Ship, vx: Tensor, vy: Tensor, rotation: Tensor, rules: Rules) -> Ship:
    return ship._replace(
        x=clamp_disc(ship.x + vx, rules.ship_radius, rules.width),
        y=clamp_disc(ship.y + vy, rules.ship_radius, rules.height),
        vx=vx,
        vy=vy,
        rotation=rotation,
        cooldown=(ship.cooldown - 1).clamp_min(0),
    )


def _thrust_and_turn(ship: Ship, action: Tensor, rules: Rules) -> tuple[Tensor, Tensor, Tensor]:
    thrust = torch.where(action == THRUSTING.thrust, rules.ship_thrust, 0.0)
    vx = (ship.vx + thrust * torch.cos(ship.rotation)) * rules.ship_friction
    vy = (ship.vy + thrust * torch.sin(ship.rotation)) * rules.ship_friction
    # factor that scales a velocity above the limit down to it
    limit = (rules.ship_max_speed * torch.rsqrt(squared_distance(vx, vy).clamp_min(1e-12))).clamp_max(1.0)
    right, left = (torch.where(action == side, rules.ship_turn, 0.0) for side in (THRUSTING.right, THRUSTING.left))
    turn = right - left
    return vx * limit, vy * limit, wrapped(ship.rotation + turn, TAU)


def _walk(ship: Ship, action: Tensor, rules: Rules) -> tuple[Tensor, Tensor, Tensor]:
    speed = rules.ship_walk_speed
    vx = look_up(action, (0.0, 0.0, 0.0, -speed, speed, 0.0))
    vy = look_up(action, (0.0, -speed, speed, 0.0, 0.0, 0.0))
    direction = look_up(action, (0.0, -math.pi / 2, math.pi / 2, math.pi, 0.0, 0.0))
    moves = (action >= WALKING.up) & (action <= WALKING.right)
    return vx, vy, torch.where(moves, direction, ship.rotation)


def fire_ship(state: State, action: Tensor, rules: Rules, style: int) -> State:
    """Fire a shot along the rotation, if the action is to shoot and the cooldown is over."""
    ship, shots, fires = fire_shots(state.ship, state.shots, action == ACTIONS[style].shoot, rules)
    return state._replace(ship=ship, shots=shots, events=state.events._replace(shots=fires.float()))


def fire_shots(ship: Ship, shots: Projectiles, wanted: Tensor, rules: Rules) -> tuple[Ship, Projectiles, Tensor]:
    """Fire shots where ``wanted`` (bool [...]) and the cooldown is over; return the ships [...], their shots
    [slots, ...] and a mask of the ships that fired.

    The slots are a queue: a shot enters at the end and pushes the oldest out, which has expired by then because there
    are as many slots as shots in a projectile's lifetime.
    """
    fires = wanted & (ship.cooldown == 0)
    new = Projectiles(
        x=ship.x,
        y=ship.y,
        vx=rules.projectile_speed * torch.cos(ship.rotation),
        vy=rules.projectile_speed * torch.sin(ship.rotation),
        life=torch.full_like(ship.x, rules.projectile_lifetime),
    )
    queue = map_record(lambda old, entry: torch.cat((old[1:], entry.unsqueeze(0))), shots, new)
    shots = choose(fires, queue, shots)
    return ship._replace(cooldown=torch.where(fires, float(rules.ship_cooldown), ship.cooldown)), shots, fires


def move_projectiles(state: State, rules: Rules) -> State:
    """Move and age every projectile; it dies when its center leaves the field or its life ends."""
    return state._replace(shots=fly_shots(state.shots, rules), enemy_shots=fly_shots(state.enemy_shots, rules))


def fly_shots(shots: Projectiles, rules: Rules) -> Projectiles:
    """Return the projectiles [slots, ...] one step later."""
    x, y, life = shots.x + shots.vx, shots.y + shots.vy, (shots.life - 1).clamp_min(0)
    inside = (x >= 0) & (x <= rules.width) & (y >= 0) & (y <= rules.height)
    return shots._replace(x=x, y=y, life=torch.where(inside, life, 0.0))


def track_combat(state: State, rules: Rules) -> State:
    """Compute the combat efficiency for the shaping reward: damage dealt, weighted by health, minus the health lost in
    this step.
    """
    progress, events = state.progress, state.events
    spawner_health = total(state.spawners.health)
    kills = events.enemies_shot + events.enemies_rammed
    # damage dealt to spawners in this step, then the health of killed enemies
    offence = (progress.tracked_spawners - spawner_health).clamp_min(0)
    offence = offence + kills * rules.enemy_health * rules.shaping_enemy_weight
    lost = (progress.tracked_health - state.ship.health).clamp_min(0)
    health_ratio = state.ship.health / rules.ship_health
    efficiency = offence * (0.5 + 0.5 * health_ratio) - rules.shaping_damage_weight * lost
    return state._replace(
        progress=progress._replace(
            tracking=torch.ones_like(spawner_health), tracked_spawners=spawner_health, tracked_health=state.ship.health
        ),
        events=events._replace(shaping=efficiency * progress.tracking),
    )


def advance_phase(state: State, chance: Chance, rules: Rules) -> State:
    """Begin the next phase if no spawner is left (enemies vanish, projectiles stay), or win the game."""
    progress = state.progress
    cleared = (state.spawners.health <= 0).all(0)
    phase = progress.phase + cleared
    won = cleared & (phase >= len(rules.phases))
    begins = cleared & ~won
    fresh = place_spawners(phase, state.difficulty, chance, rules)
    return state._replace(
        spawners=choose(begins, fresh, state.spawners),
        enemies=state.enemies._replace(health=torch.where(begins, 0.0, state.enemies.health)),
        progress=progress._replace(
            phase=phase,
            phase_step=torch.where(begins, progress.step, progress.phase_step),
            tracking=torch.where(begins, 0.0, progress.tracking),
        ),
        events=state.events._replace(
            phases_completed=cleared.float(), won=won.float(), died=(state.ship.health <= 0).float()
        ),
    )


def count_events(state: State, rules: Rules) -> State:
    """Add the events of the step to the counts of the episode (damage taken is counted where it is taken)."""
    tally, events = state.tally, state.events
    hits = events.enemy_hits + events.spawner_hits
    return state._replace(
        tally=tally._replace(
            spawners_destroyed=tally.spawners_destroyed + events.spawners_destroyed,
            enemies_destroyed=tally.enemies_destroyed + events.enemies_shot + events.enemies_rammed,
            damage_dealt=tally.damage_dealt + hits * rules.projectile_damage,
            shots_dropped=tally.shots_dropped + events.shots_dropped,
        )
    )
