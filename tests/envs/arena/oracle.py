"""The Arena a second time, for one world, in plain Python with lists and ``math``; shares no code with
``envs.arena``.

Its numbers are typed from the rules, not imported. Luck comes from ``uniform(stream, count) -> list of numbers in [0,
1)``, so it can be fed what a row of the batched world draws. ``closest_call`` is the smallest distance by which a
yes-or-no question of the last step (did they touch? did it leave the field?) was decided: below some rounding error,
two right answers may differ.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, fields
from typing import Any

TURN = 2 * math.pi
WIDTH, HEIGHT, MAX_STEPS = 1600.0, 1280.0, 3000
DIAGONAL = math.hypot(WIDTH, HEIGHT)
SHIP_RADIUS, SHIP_HEALTH, SHIP_COOLDOWN, SHIP_MAX_SPEED = 15.0, 150.0, 10, 6.0
ENEMY_RADIUS, ENEMY_HEALTH, ENEMY_SPEED, ENEMY_COOLDOWN, ENEMY_LUCK, MAX_ENEMIES = 12.0, 10.0, 2.0, 60, 0.3, 8
SPAWNER_RADIUS, SPAWNER_HEALTH, SPAWNER_COOLDOWN = 25.0, 100.0, 120
SHOT_RADIUS, SHOT_SPEED, SHOT_LIFE, DAMAGE = 3.0, 8.0, 120, 10.0

TOP, BOTTOM, LEFT, RIGHT, MIDDLE, CENTER = 200.0, 1080.0, 200.0, 1400.0, 640.0, 800.0
CORNERS = [(LEFT, TOP), (RIGHT, TOP), (LEFT, BOTTOM), (RIGHT, BOTTOM)]
PHASES = [  # sites, enemy speed, spawn cooldown
    ([(CENTER, TOP)], 1.0, 1.0),
    ([(LEFT, MIDDLE), (RIGHT, MIDDLE)], 0.9, 0.9),
    ([(CENTER, TOP), (LEFT, BOTTOM), (RIGHT, BOTTOM)], 0.8, 0.85),
    (CORNERS, 0.7, 0.8),
    ([*CORNERS, (CENTER, MIDDLE)], 0.75, 0.75),
]
MAX_SPAWNERS, TRIES = 5, 5

SITES, SHOTS, SPAWNS = 0, 1, 2
"""Streams of luck, numbered as in ``envs.arena.state``."""


@dataclass
class Enemy:
    x: float
    y: float
    health: float
    speed: float
    cooldown: float


@dataclass
class Spawner:
    slot: int
    x: float
    y: float
    health: float
    cooldown: float


@dataclass
class Shot:
    x: float
    y: float
    vx: float
    vy: float
    life: float


@dataclass
class Difficulty:
    """Multipliers; all 1 is the full game."""

    spawn_cooldown: float = 1.0
    max_enemies: float = 1.0
    spawner_health: float = 1.0
    enemy_speed: float = 1.0
    shaping: float = 1.0
    hit_penalty: float = 1.0


@dataclass
class Episode:
    """Statistics of the running episode, under the names that the world reports."""

    total: float = 0.0
    first_step: int = 0
    win: bool = False
    spawners_destroyed: int = 0
    enemies_destroyed: int = 0
    damage_dealt: float = 0.0
    damage_taken: float = 0.0


@dataclass
class Oracle:
    """One Arena."""

    uniform: Any
    style: int = 1
    x: float = CENTER
    y: float = MIDDLE
    vx: float = 0.0
    vy: float = 0.0
    rotation: float = 0.0
    health: float = SHIP_HEALTH
    cooldown: float = 0
    enemies: list[Enemy] = field(default_factory=list)
    spawners: list[Spawner] = field(default_factory=list)
    shots: list[Shot] = field(default_factory=list)
    enemy_shots: list[Shot] = field(default_factory=list)
    time: int = 0
    phase: int = 0
    phase_began: int = 0
    tracked: tuple[float, float] | None = None
    """(Total spawner health, ship health) one step ago; None until the first step of the phase is over."""
    difficulty: Difficulty = field(default_factory=Difficulty)
    episode: Episode = field(default_factory=Episode)
    reward: float = 0.0
    closest_call: float = math.inf

    # --- one step ----------------------------------------------------------------------------------------------------

    def step(self, action: int) -> tuple[float, bool, bool]:
        """Reward, terminated, truncated."""
        self.reward, self.closest_call = 0.01, math.inf
        self.time += 1
        self._steer(action)
        if action == (4 if self.style == 1 else 5) and self.cooldown == 0:
            self.shots.append(_shot(self.x, self.y, self.rotation))
            self.cooldown = SHIP_COOLDOWN
        self._move_enemies()
        self._serve_spawners()
        self.shots = self._fly(self.shots)
        self.enemy_shots = self._fly(self.enemy_shots)
        kills = self._hit_targets()
        self._hit_ship()
        kills += self._ram_ship()
        self.reward += self._shaping(kills)
        self.enemies = [enemy for enemy in self.enemies if enemy.health > 0]
        self.spawners = [spawner for spawner in self.spawners if spawner.health > 0]
        won = False
        if not self.spawners:
            self.reward += 100
            self.phase += 1
            won = self.phase == len(PHASES)
            if not won:
                self.enemies = []
                self.begin_phase()
        if self.health <= 0:
            self.reward -= 100
        terminated = won or self.health <= 0
        self.episode.win = won
        self.episode.total += self.reward
        return self.reward, terminated, not terminated and self.time >= MAX_STEPS

    def begin_phase(self) -> None:
        """New spawners; the trackers of the shaping start anew."""
        luck = self.uniform(SITES, 2 * MAX_SPAWNERS)
        full = int(SPAWNER_HEALTH * self.difficulty.spawner_health + 1e-4)
        self.spawners = []
        for slot, (x, y) in enumerate(PHASES[self.phase][0]):
            x += 30 * (2 * luck[slot] - 1)
            y += 30 * (2 * luck[MAX_SPAWNERS + slot] - 1)
            place = _inside(x, SPAWNER_RADIUS, WIDTH), _inside(y, SPAWNER_RADIUS, HEIGHT)
            self.spawners.append(Spawner(slot, *place, full, 0))
        self.phase_began = self.time
        self.tracked = None

    def _steer(self, action: int) -> None:
        if self.style == 1:
            if action == 1:
                self.vx += 0.3 * math.cos(self.rotation)
                self.vy += 0.3 * math.sin(self.rotation)
            elif action in (2, 3):
                self.rotation += math.radians(-5 if action == 2 else 5)
            self.rotation %= TURN
            self.vx, self.vy = 0.97 * self.vx, 0.97 * self.vy
            speed = math.hypot(self.vx, self.vy)
            if speed > SHIP_MAX_SPEED:
                self.vx, self.vy = self.vx / speed * SHIP_MAX_SPEED, self.vy / speed * SHIP_MAX_SPEED
        else:
            self.vx, self.vy = {1: (0.0, -5.0), 2: (0.0, 5.0), 3: (-5.0, 0.0), 4: (5.0, 0.0)}.get(action, (0.0, 0.0))
            if self.vx or self.vy:
                self.rotation = math.atan2(self.vy, self.vx)
        self.x = _inside(self.x + self.vx, SHIP_RADIUS, WIDTH)
        self.y = _inside(self.y + self.vy, SHIP_RADIUS, HEIGHT)
        self.cooldown = max(0, self.cooldown - 1)

    def _move_enemies(self) -> None:
        luck = self.uniform(SHOTS, MAX_ENEMIES)
        for enemy, number in zip(self.enemies, luck, strict=False):
            bearing = math.atan2(self.y - enemy.y, self.x - enemy.x)
            if (enemy.x, enemy.y) != (self.x, self.y):
                enemy.x = _inside(enemy.x + enemy.speed * math.cos(bearing), ENEMY_RADIUS, WIDTH)
                enemy.y = _inside(enemy.y + enemy.speed * math.sin(bearing), ENEMY_RADIUS, HEIGHT)
            enemy.cooldown = max(0, enemy.cooldown - 1)
            if enemy.cooldown == 0 and number < ENEMY_LUCK:
                self.enemy_shots.append(_shot(enemy.x, enemy.y, math.atan2(self.y - enemy.y, self.x - enemy.x)))
                enemy.cooldown = ENEMY_COOLDOWN

    def _serve_spawners(self) -> None:
        luck = self.uniform(SPAWNS, MAX_SPAWNERS * (2 * TRIES + 1))
        room = int(MAX_ENEMIES * self.difficulty.max_enemies + 1e-4)
        _, speed, rate = PHASES[self.phase]
        for spawner in self.spawners:
            spawner.cooldown = max(0, spawner.cooldown - 1)
            if spawner.cooldown == 0 and len(self.enemies) < room:
                mine = luck[spawner.slot * (2 * TRIES + 1) :]
                x, y = self._place_enemy(spawner, mine[: TRIES + 1], mine[TRIES + 1 : 2 * TRIES + 1])
                speed_now = ENEMY_SPEED * speed * self.difficulty.enemy_speed
                self.enemies.append(Enemy(x, y, ENEMY_HEALTH, speed_now, 0))
                spawner.cooldown = int(SPAWNER_COOLDOWN * rate * self.difficulty.spawn_cooldown + 1e-4)

    def _place_enemy(self, spawner: Spawner, angles: list[float], gaps: list[float]) -> tuple[float, float]:
        rim = SPAWNER_RADIUS + ENEMY_RADIUS
        for angle, gap in zip(angles, gaps, strict=False):
            x, y = self._beside(spawner, angle, rim + 5 + 45 * gap)
            distances = [math.hypot(x - enemy.x, y - enemy.y) for enemy in self.enemies]
            if all([not self._below(distance, 150) for distance in distances]):
                return x, y
        return self._beside(spawner, angles[-1], rim + 5)

    @staticmethod
    def _beside(spawner: Spawner, angle: float, distance: float) -> tuple[float, float]:
        x = spawner.x + distance * math.cos(TURN * angle)
        y = spawner.y + distance * math.sin(TURN * angle)
        return _inside(x, ENEMY_RADIUS, WIDTH), _inside(y, ENEMY_RADIUS, HEIGHT)

    def _fly(self, shots: list[Shot]) -> list[Shot]:
        flying = []
        for shot in shots:
            shot.x, shot.y, shot.life = shot.x + shot.vx, shot.y + shot.vy, shot.life - 1
            borders = (shot.x, WIDTH - shot.x, shot.y, HEIGHT - shot.y)
            if not any([self._below(border, 0) for border in borders]) and shot.life > 0:
                flying.append(shot)
        return flying

    def _hit_targets(self) -> int:
        """The ship's projectiles; returns the number of enemies destroyed."""
        kills, flying = 0, []
        for shot in self.shots:
            target = self._first_touched(shot, self.enemies, ENEMY_RADIUS)
            if target is not None:
                self.reward += 2
                self.episode.damage_dealt += DAMAGE
                target.health -= DAMAGE
                if target.health <= 0:
                    self.reward += 5
                    self.episode.enemies_destroyed += 1
                    kills += 1
                continue
            target = self._first_touched(shot, self.spawners, SPAWNER_RADIUS)
            if target is None:
                flying.append(shot)
                continue
            self.reward += 10
            self.episode.damage_dealt += DAMAGE
            target.health = max(0.0, target.health - DAMAGE)
            if target.health <= 0:
                self.reward += 75 + (50 if self.time - self.phase_began < 500 else 0)
                self.episode.spawners_destroyed += 1
                self.health = min(SHIP_HEALTH, self.health + SHIP_HEALTH / 2)
        self.shots = flying
        return kills

    def _first_touched(self, shot: Shot, targets: list, radius: float) -> Any:
        for target in targets:
            if target.health > 0 and self._touch(shot, target, SHOT_RADIUS + radius):
                return target
        return None

    def _hit_ship(self) -> None:
        """Shots that touch the ship; the world's rule, all are spent: in the original those stay that come after the
        one that killed it.
        """
        flying = []
        for shot in self.enemy_shots:
            if self._touch(shot, self, SHOT_RADIUS + SHIP_RADIUS):
                self._hurt()
            else:
                flying.append(shot)
        self.enemy_shots = flying

    def _ram_ship(self) -> int:
        """Enemies that touch the ship; returns how many died of it."""
        before = self.episode.enemies_destroyed
        alive_at_first = self.health > 0
        for enemy in self.enemies:
            if enemy.health > 0 and alive_at_first and self._touch(enemy, self, ENEMY_RADIUS + SHIP_RADIUS):
                enemy.health = 0.0
                self.episode.enemies_destroyed += self._hurt()
        return self.episode.enemies_destroyed - before

    def _hurt(self) -> bool:
        """Take a hit, unless dead already; returns whether it counted."""
        if self.health <= 0:
            return False
        self.health = max(0.0, self.health - DAMAGE)
        self.reward -= 2 * self.difficulty.hit_penalty
        self.episode.damage_taken += DAMAGE
        return True

    def _shaping(self, kills: int) -> float:
        total = sum(spawner.health for spawner in self.spawners)
        before, self.tracked = self.tracked, (total, self.health)
        if before is None:
            return 0.0
        offence = max(0.0, before[0] - total) + 5 * kills
        lost = max(0.0, before[1] - self.health)
        efficiency = offence * (0.5 + 0.5 * self.health / SHIP_HEALTH) - 0.8 * lost
        return max(-0.2, min(0.2, 0.01 * self.difficulty.shaping * efficiency))

    # --- what the ship perceives -------------------------------------------------------------------------------------

    def observation(self, mode: str = "classic") -> list[float]:
        """32 (``classic``) or 44 (``extended``) numbers."""
        spawners_of_phase = len(PHASES[min(self.phase, len(PHASES) - 1)][0])
        player = [
            self.x / WIDTH,
            self.y / HEIGHT,
            max(-1.0, min(1.0, self.vx / SHIP_MAX_SPEED)),
            max(-1.0, min(1.0, self.vy / SHIP_MAX_SPEED)),
            self.rotation / TURN,
            self.health / SHIP_HEALTH,
            self.cooldown / SHIP_COOLDOWN,
        ]
        mission = [self.phase / len(PHASES), len(self.spawners) / spawners_of_phase, 1 - self.time / MAX_STEPS]
        targets = []
        for enemy in self._nearest(self.enemies, 2):
            targets += [*self._sighting(enemy), 1.0] if enemy else [1.0, 0.5, 0.0]
        for spawner in self._nearest(self.spawners, 2):
            seen = spawner and [*self._sighting(spawner), 1.0, spawner.health / SPAWNER_HEALTH]
            targets += seen or [1.0, 0.5, 0.0, 0.0]
        walls = [self.x / WIDTH, 1 - self.x / WIDTH, self.y / HEIGHT, 1 - self.y / HEIGHT]
        return [*player, *mission, *targets, *self._danger(mode), *walls, len(self.enemies) / MAX_ENEMIES]

    def _danger(self, mode: str) -> list[float]:
        if mode == "extended":
            values = []
            for shot in self._nearest(self.enemy_shots, 5):
                values += [*self._sighting(shot), 1.0] if shot else [1.0, 0.5, 0.0]
            return values
        (shot,) = self._nearest(self.enemy_shots, 1)
        near = sum([self._below(self._distance(other), 150) for other in self.enemy_shots])
        return [*(self._sighting(shot) if shot else (1.0, 0.5)), min(1.0, near / 5)]

    def _nearest(self, things: list, count: int) -> list:
        """The nearest ``count`` things, None for missing ones."""
        ordered = sorted(things, key=self._distance)
        for near, far in itertools.pairwise(ordered[: count + 1]):
            self.closest_call = min(self.closest_call, self._distance(far) - self._distance(near))
        return (ordered + [None] * count)[:count]

    def _sighting(self, thing: Any) -> tuple[float, float]:
        angle = math.atan2(thing.y - self.y, thing.x - self.x) - self.rotation
        angle = math.atan2(math.sin(angle), math.cos(angle))
        return min(1.0, self._distance(thing) / DIAGONAL), (angle + math.pi) / TURN

    def _distance(self, thing: Any) -> float:
        return math.hypot(thing.x - self.x, thing.y - self.y)

    def statistics(self) -> dict[str, float]:
        """The episode's statistics under the world's names (without what only a batched world has)."""
        episode = self.episode
        return {
            "return": episode.total,
            "length": self.time - episode.first_step,
            "win": float(episode.win),
            "win_step": self.time if episode.win else 0,
            "spawners_destroyed": episode.spawners_destroyed,
            "enemies_destroyed": episode.enemies_destroyed,
            "damage_dealt": episode.damage_dealt,
            "damage_taken": episode.damage_taken,
        }

    # --- questions that rounding could decide ------------------------------------------------------------------------

    def _touch(self, one: Any, other: Any, reach: float) -> bool:
        return self._below(math.hypot(one.x - other.x, one.y - other.y), reach)

    def _below(self, value: float, limit: float) -> bool:
        self.closest_call = min(self.closest_call, abs(value - limit))
        return value < limit


def new_game(uniform: Any, style: int, difficulty: Difficulty | None = None) -> Oracle:
    """An Arena at the start of its first phase."""
    oracle = Oracle(uniform, style, difficulty=difficulty or Difficulty())
    oracle.begin_phase()
    return oracle


def from_state(state: Any, statistics: Any, world: int, uniform: Any, style: int) -> Oracle:
    """The Arena that column ``world`` of a batched state, and of its episodes' statistics, describes."""
    ship, progress, tally = (_column(part, world) for part in (state.ship, state.progress, state.tally))
    episode = _column(statistics, world)
    difficulty = _column(state.difficulty, world)
    spawners = _rows(state.spawners, world)
    oracle = Oracle(
        uniform,
        style,
        **ship,
        enemies=[Enemy(**row) for row in _rows(state.enemies, world) if row["health"] > 0],
        spawners=[Spawner(slot=slot, **row) for slot, row in enumerate(spawners) if row["health"] > 0],
        shots=[Shot(**row) for row in _rows(state.shots, world) if row["life"] > 0],
        enemy_shots=[Shot(**row) for row in _rows(state.enemy_shots, world) if row["life"] > 0],
        time=round(progress["step"]),
        phase=round(progress["phase"]),
        phase_began=round(progress["phase_step"]),
        difficulty=Difficulty(**{entry.name: difficulty[entry.name] for entry in fields(Difficulty)}),
    )
    if progress["tracking"] > 0:
        oracle.tracked = progress["tracked_spawners"], progress["tracked_health"]
    oracle.episode = Episode(
        total=episode["total_reward"],
        first_step=round(progress["step"] - episode["length"]),
        spawners_destroyed=round(tally["spawners_destroyed"]),
        enemies_destroyed=round(tally["enemies_destroyed"]),
        damage_dealt=tally["damage_dealt"],
        damage_taken=tally["damage_taken"],
    )
    return oracle


def _column(record: Any, world: int) -> dict[str, float]:
    return {name: value[world].item() for name, value in zip(record._fields, record, strict=True)}


def _rows(record: Any, world: int) -> list[dict[str, float]]:
    columns = [value[:, world].tolist() for value in record]
    return [dict(zip(record._fields, row, strict=True)) for row in zip(*columns, strict=True)]


def _inside(value: float, radius: float, size: float) -> float:
    return max(radius, min(size - radius, value))


def _shot(x: float, y: float, bearing: float) -> Shot:
    return Shot(x, y, SHOT_SPEED * math.cos(bearing), SHOT_SPEED * math.sin(bearing), SHOT_LIFE)
