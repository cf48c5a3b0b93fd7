"""State of a batch of Arena worlds: float32 tensors with the world axis last, [N] or [slots, N]."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from envs.arena.rules import Difficulty, Rules
from envs.toolkit.chance import Chance
from envs.toolkit.geometry import clamp_disc, look_up
from envs.toolkit.records import every

STREAM_SITES, STREAM_SHOTS, STREAM_SPAWNS, STREAM_START = range(4)
"""Streams of random numbers: spawner sites, enemy shots, positions of new enemies, first step counts."""


class Ship(NamedTuple):
    """Ship of the agent, [N]; rotation 0 faces +x, y points down."""

    x: Tensor
    y: Tensor
    vx: Tensor
    vy: Tensor
    rotation: Tensor
    health: Tensor
    cooldown: Tensor


class Enemies(NamedTuple):
    """Enemies in the order they appeared, [max_enemies, N]; alive while health is above 0, the living come first
    between steps.
    """

    x: Tensor
    y: Tensor
    health: Tensor
    speed: Tensor
    cooldown: Tensor


class Spawners(NamedTuple):
    """Spawners of the current phase, [max_spawners, N]; alive while health is above 0."""

    x: Tensor
    y: Tensor
    health: Tensor
    cooldown: Tensor


class Projectiles(NamedTuple):
    """Shots in flight, [slots, N]; alive while life [steps] is above 0. The ship's are in the order of firing, oldest
    first.
    """

    x: Tensor
    y: Tensor
    vx: Tensor
    vy: Tensor
    life: Tensor


class Progress(NamedTuple):
    """Progress of the episode, [N]."""

    step: Tensor
    phase: Tensor
    """Index of the current phase; the number of phases once won."""
    phase_step: Tensor
    """Step at which the phase began."""
    tracking: Tensor
    """1 once the shaping's trackers below have started in this phase, else 0."""
    tracked_spawners: Tensor
    """Total spawner health one step ago."""
    tracked_health: Tensor
    """Ship health one step ago."""


class Events(NamedTuple):
    """Counts of the events in the last step, [N]."""

    shots: Tensor
    enemy_hits: Tensor
    enemies_shot: Tensor
    enemies_rammed: Tensor
    spawner_hits: Tensor
    spawners_destroyed: Tensor
    quick_spawners: Tensor
    hits_taken: Tensor
    phases_completed: Tensor
    won: Tensor
    died: Tensor
    shaping: Tensor
    """Shaping term before scale and clip (Rules.shaping_*)."""
    shots_dropped: Tensor


class Tally(NamedTuple):
    """Counts over the running episode, [N]."""

    spawners_destroyed: Tensor
    enemies_destroyed: Tensor
    damage_dealt: Tensor
    damage_taken: Tensor
    shots_dropped: Tensor


class State(NamedTuple):
    """State of a batch of worlds."""

    ship: Ship
    enemies: Enemies
    spawners: Spawners
    shots: Projectiles
    enemy_shots: Projectiles
    ring_head: Tensor
    """Index of the slot of ``enemy_shots`` for the next shot, [N]."""
    progress: Progress
    events: Events
    tally: Tally
    difficulty: Difficulty


def spawn(rules: Rules, difficulty: Difficulty, chance: Chance) -> State:
    """Make fresh worlds at the start of the first phase."""
    zero = torch.zeros_like(difficulty.shaping)
    ship = Ship(zero + rules.width / 2, zero + rules.height / 2, zero, zero, zero, zero + rules.ship_health, zero)
    spawners = place_spawners(zero, difficulty, chance, rules)
    return State(
        ship=ship,
        enemies=every(Enemies, zero.expand(rules.max_enemies, -1).clone()),
        spawners=spawners,
        shots=every(Projectiles, zero.expand(rules.max_ship_projectiles, -1).clone()),
        enemy_shots=every(Projectiles, zero.expand(rules.max_enemy_projectiles, -1).clone()),
        ring_head=zero,
        progress=every(Progress, zero),
        events=every(Events, zero),
        tally=every(Tally, zero),
        difficulty=difficulty,
    )


def place_spawners(phase: Tensor, difficulty: Difficulty, chance: Chance, rules: Rules) -> Spawners:
    """Place the spawners of ``phase`` [N] at their sites, jittered and ready to spawn."""
    slots = rules.max_spawners
    slot = torch.arange(slots, device=phase.device).unsqueeze(1)
    jitter = (chance.uniform(STREAM_SITES, 2 * slots) * 2 - 1) * rules.spawner_jitter
    x, y = (
        torch.stack([look_up(phase, _site_column(rules, index, axis)) for index in range(slots)])
        + jitter[axis * slots : (axis + 1) * slots]
        for axis in range(2)
    )
    count = look_up(phase, [p.num_spawners for p in rules.phases])
    health = whole(rules.spawner_health * difficulty.spawner_health)
    return Spawners(
        x=clamp_disc(x, rules.spawner_radius, rules.width),
        y=clamp_disc(y, rules.spawner_radius, rules.height),
        health=torch.where(slot < count, health, 0.0),
        cooldown=torch.zeros_like(x),
    )


def whole(value: Tensor) -> Tensor:
    """Round ``value`` down to an integer; the margin compensates float32 errors of products such as 120 * 0.85."""
    return torch.floor(value + 1e-3)


def _site_column(rules: Rules, slot: int, axis: int) -> list[float]:
    """Coordinate ``axis`` of site ``slot`` in every phase; phases with fewer spawners repeat their last site (and leave
    it dead).
    """
    return [sites[min(slot, len(sites) - 1)][axis] for sites in rules.sites]
