"""RGB picture of one Arena world; colors and shapes are distinguishable for color-blind people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from envs.arena.rules import Rules
from envs.arena.state import State
from envs.base.episode import EpisodeStats
from envs.toolkit.drawing import Canvas, Color, Point, check_picture, mix, regular
from envs.toolkit.marks import Marks, entry
from envs.toolkit.records import row

SIZE = (640, 512)
"""Width and height of a picture [pixels]."""
GROUND: Color = (8, 10, 16)
FIELD: Color = (21, 26, 38)
GRID: Color = (29, 36, 51)
WALL: Color = (70, 82, 108)
WORDS: Color = (214, 222, 235)
FAINT: Color = (122, 134, 158)
EMPTY: Color = (52, 58, 74)
HEALTH: Color = (38, 194, 140)
SHIP: Color = (86, 180, 233)
SHOT: Color = (236, 248, 255)
ENEMY: Color = (224, 92, 22)
ENEMY_SHOT: Color = (255, 190, 60)
SPAWNER: Color = (204, 121, 167)
DANGER: Color = (240, 84, 84)

GRID_LINES = 8
"""Number of grid cells along the width."""


def sketch(state: State, episode: EpisodeStats, world: int, rules: Rules, size: tuple[int, int] = SIZE) -> Canvas:
    """Return the drawing of world number ``world`` of a batch.

    Raises:
        ValueError: there is no such world, or the picture would be too small to show anything.
    """
    check_picture(world, state.ship.x.shape[-1], size)
    one, statistics = row(world, state, episode)
    origin, scale = viewport(rules, size)
    canvas = Canvas(size, GROUND, origin, scale)
    draw_field(canvas, rules)
    _draw_spawners(canvas, one, rules)
    draw_shots(canvas, one.enemy_shots, ENEMY_SHOT, rules)
    _draw_enemies(canvas, one, rules)
    draw_shots(canvas, one.shots, SHOT, rules)
    draw_ship(canvas, one.ship, SHIP, rules)
    _draw_header(canvas, one, statistics, rules)
    return canvas


def scene(state: State, episode: EpisodeStats, world: int, rules: Rules, counts: Sequence[int]) -> dict[str, Any]:
    """Return the drawing as vectors, with lines to the ``counts`` nearest enemies, spawners and shots."""
    (one,) = row(world, state)
    canvas = sketch(state, episode, world, rules)
    enemies, spawners, shots = one.enemies, one.spawners, one.enemy_shots
    kinds = ((enemies, enemies.health), (spawners, spawners.health), (shots, shots.life))
    found = [sights(canvas, one.ship, *kind, count) for kind, count in zip(kinds, counts, strict=True)]
    return {**canvas.vectors(), "sights": [[line for lines in found for line in lines]]}


def sights(canvas: Canvas, ship: Any, things: Any, health: list[float], count: int) -> list[list[float]]:
    """Return lines [x, y, x, y] in pixels from a ship to the ``count`` living things that are nearest to it."""
    here = (ship.x, ship.y)
    near = sorted(((x, y) for x, y in _living(things, health, "x", "y")), key=lambda there: math.dist(here, there))
    return [[round(at, 1) for end in (here, there) for at in canvas.place(end)] for there in near[:count]]


def viewport(rules: Rules, size: tuple[int, int]) -> tuple[Point, float]:
    """Return the pixel of the field's upper left corner, and pixels per unit; it is centered below the header."""
    width, height = size
    header, rim = _header_height(size), max(2.0, height / 96)
    scale = min((width - 2 * rim) / rules.width, (height - header - rim) / rules.height)
    return ((width - scale * rules.width) / 2, header + (height - header - rim - scale * rules.height) / 2), scale


def _header_height(size: tuple[int, int]) -> float:
    return size[1] / 14


def draw_field(canvas: Canvas, rules: Rules) -> None:
    """Draw the ground between the walls, with a grid."""
    canvas.box((0, 0), (rules.width, rules.height), FIELD)
    cell = rules.width / GRID_LINES
    for line in range(1, GRID_LINES):
        canvas.line((line * cell, 0), (line * cell, rules.height), GRID)
    for line in range(1, math.ceil(rules.height / cell)):
        canvas.line((0, line * cell), (rules.width, line * cell), GRID)
    wall = 1 / canvas.scale
    canvas.box((-wall, -wall), (rules.width + wall, rules.height + wall), None, WALL)


def _draw_spawners(canvas: Canvas, one: State, rules: Rules) -> None:
    full = rules.spawner_health * one.difficulty.spawner_health
    for x, y, health in _living(one.spawners, one.spawners.health, "x", "y", "health"):
        radius = rules.spawner_radius
        canvas.polygon(regular((x, y), radius * 1.2, 6), mix(FIELD, SPAWNER, 0.45), SPAWNER, 1.5)
        canvas.disc((x, y), radius * 0.45, SPAWNER)
        canvas.bar((x, y - radius * 1.9), (radius * 2.4, radius * 0.4), health / full, SPAWNER, EMPTY)


def _draw_enemies(canvas: Canvas, one: State, rules: Rules) -> None:
    for x, y in _living(one.enemies, one.enemies.health, "x", "y"):
        canvas.disc((x, y), rules.enemy_radius, ENEMY)
        canvas.disc((x, y), rules.enemy_radius * 0.4, FIELD)


def draw_shots(canvas: Canvas, shots: Any, color: Color, rules: Rules) -> None:
    """Draw the living projectiles of one world, each with its trail."""
    for x, y, vx, vy in _living(shots, shots.life, "x", "y", "vx", "vy"):
        canvas.line((x - 3 * vx, y - 3 * vy), (x, y), mix(FIELD, color, 0.5))
        canvas.disc((x, y), max(rules.projectile_radius * 1.3, 1.6 / canvas.scale), color)


def draw_ship(canvas: Canvas, ship: Any, color: Color, rules: Rules) -> None:
    """Draw a ship of one world, with a bar for its health."""
    radius = rules.ship_radius
    center, cos, sin = (ship.x, ship.y), math.cos(ship.rotation), math.sin(ship.rotation)
    canvas.disc(center, radius, mix(FIELD, color, 0.35), mix(FIELD, color, 0.7), 0.7)
    canvas.polygon(_ship_corners(ship.x, ship.y, radius, cos, sin), color)
    share = ship.health / rules.ship_health
    canvas.bar((ship.x, ship.y + radius * 2.8), (radius * 4, radius * 0.6), share, health_color(share), EMPTY)


def _draw_header(canvas: Canvas, one: State, episode: EpisodeStats, rules: Rules) -> None:
    progress, phases = one.progress, len(rules.phases)
    share = one.ship.health / rules.ship_health
    if progress.phase >= phases:
        phase = "won"
    else:
        phase = f"{progress.phase + 1:.0f}/{phases}" if one.ship.health > 0 else "lost"
    entries = (
        ("phase", phase, WORDS),
        ("step", f"{progress.step:.0f}", WORDS),
        ("health", f"{one.ship.health:.0f}", health_color(share)),
        ("return", f"{episode.total_reward:.1f}", WORDS),
    )
    draw_entries(canvas, entries, rules)


def draw_entries(canvas: Canvas, entries: Sequence[tuple[str, str, Color]], rules: Rules) -> None:
    """Write names with their values, in their colors, side by side above the field."""
    width, height = canvas.size[0], _header_height(canvas.size)
    letters = min(height * 0.5, width / 36)
    left, stride = canvas.origin[0], canvas.scale * rules.width / len(entries)
    for index, (name, value, color) in enumerate(entries):
        x = left + index * stride
        end = canvas.text((x, height / 2), name, letters, FAINT)
        canvas.text((end + letters / 2, height / 2), value, letters, color)


def health_color(share: float) -> Color:
    """Color for a fraction of full health."""
    return HEALTH if share > 0.34 else DANGER


def _living(things: Any, health: list[float], *names: str) -> list[tuple[float, ...]]:
    """Return the named values of every object that is alive."""
    rows = zip(*(getattr(things, name) for name in names), strict=True)
    return [row for row, left in zip(rows, health, strict=True) if left > 0]


# --- marks -----------------------------------------------------------------------------------------------------------


def marks(rules: Rules) -> Marks:
    """Return the drawing of any moment of a world, which a page makes of its record."""
    found = marked_field(rules)
    spawner = [entry(f"state.spawners.{axis}") for axis in "xy"]
    alive, reach = entry("state.spawners.health"), rules.spawner_radius
    corners = [(spawner[0] + x, spawner[1] + y) for x, y in regular((0, 0), reach * 1.2, 6)]
    count = rules.max_spawners
    found.polygon(corners, mix(FIELD, SPAWNER, 0.45), count, rim=SPAWNER, shown=alive)
    found.disc(spawner, reach * 0.45, SPAWNER, count, shown=alive)
    mark_shots(found, "state.enemy_shots", ENEMY_SHOT, rules.max_enemy_projectiles, rules)
    enemy = [entry(f"state.enemies.{axis}") for axis in "xy"]
    alive = entry("state.enemies.health")
    found.disc(enemy, rules.enemy_radius, ENEMY, rules.max_enemies, shown=alive)
    found.disc(enemy, rules.enemy_radius * 0.4, FIELD, rules.max_enemies, shown=alive)
    mark_shots(found, "state.shots", SHOT, rules.max_ship_projectiles, rules)
    mark_ship(found, "state.ship", SHIP, rules)
    found.entry("health", entry("state.ship.health"), rules.ship_health, SHIP)
    found.entry("phase", entry("state.progress.phase") + 1)
    found.entry("spawners destroyed", entry("state.tally.spawners_destroyed"))
    return found


def marked_field(rules: Rules, size: tuple[int, int] = SIZE) -> Marks:
    """Return marks of the empty field."""
    found = Marks(size, GROUND, *viewport(rules, size))
    found.box((0, 0), (rules.width, rules.height), FIELD, rim=WALL)
    return found


def mark_shots(
    found: Marks, name: str, color: Color, slots: int, rules: Rules, first: int = 0, stride: int = 1
) -> None:
    """Mark living projectiles: the slots from ``first`` on, ``stride`` apart, of the record ``name``."""
    center = [entry(f"{name}.{axis}", first, stride) for axis in "xy"]
    found.disc(center, rules.projectile_radius * 1.3, color, slots, shown=entry(f"{name}.life", first, stride))


def mark_ship(found: Marks, name: str, color: Color, rules: Rules, seat: int = 0) -> None:
    """Mark the ship of a seat."""
    x, y, rotation = (entry(f"{name}.{part}", seat, 0) for part in ("x", "y", "rotation"))
    radius, cos, sin = rules.ship_radius, rotation.cos(), rotation.sin()
    found.disc((x, y), radius, mix(FIELD, color, 0.35), rim=mix(FIELD, color, 0.7))
    found.polygon(_ship_corners(x, y, radius, cos, sin), color)


def _ship_corners(x: Any, y: Any, radius: float, cos: Any, sin: Any) -> list[tuple[Any, Any]]:
    """Return the corners of a ship's outline, of numbers or of terms."""
    corners = ((1.9, 0.0), (-1.1, 1.1), (-0.5, 0.0), (-1.1, -1.1))  # ahead and aside, in radii
    return [(x + radius * (a * cos - b * sin), y + radius * (a * sin + b * cos)) for a, b in corners]
