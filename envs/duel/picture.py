"""RGB picture of one duel."""

from __future__ import annotations

from typing import Any

from envs.arena.picture import (
    GROUND,
    SHIP,
    WORDS,
    draw_entries,
    draw_field,
    draw_ship,
    draw_shots,
    health_color,
    mark_ship,
    mark_shots,
    marked_field,
    sights,
    viewport,
)
from envs.arena.rules import Rules
from envs.arena.state import Projectiles, Ship
from envs.duel.observation import SHOTS_SEEN
from envs.duel.rules import SEATS
from envs.duel.state import State
from envs.toolkit.drawing import Canvas, Color, check_picture
from envs.toolkit.marks import Marks, entry
from envs.toolkit.records import row

SIZE = (640, 544)
"""Width and height of a picture [pixels]."""
COLORS: tuple[Color, ...] = (SHIP, (230, 159, 0))
NAMES = ("blue", "orange")


def sketch(state: State, world: int, rules: Rules, size: tuple[int, int] = SIZE) -> Canvas:
    """Return the drawing of world number ``world`` of a batch.

    Raises:
        ValueError: there is no such world, or the picture would be too small to show anything.
    """
    check_picture(world, state.step.shape[-1], size)
    (one,) = row(world, state)
    canvas = Canvas(size, GROUND, *viewport(rules, size))
    draw_field(canvas, rules)
    entries = [("step", f"{one.step:.0f}", WORDS)]
    for seat in range(SEATS):
        ship = Ship(*(values[seat] for values in one.ships))
        shots = Projectiles(*([slot[seat] for slot in values] for values in one.shots))
        draw_shots(canvas, shots, COLORS[seat], rules)
        draw_ship(canvas, ship, COLORS[seat], rules)
        entries.append((NAMES[seat], f"{ship.health:.0f}", health_color(ship.health / rules.ship_health)))
    draw_entries(canvas, entries, rules)
    return canvas


def scene(state: State, world: int, rules: Rules) -> dict[str, Any]:
    """Return the drawing as vectors, and ``sights`` of each ship: the other one, and its shots that are nearest."""
    (one,) = row(world, state)
    canvas, lines = sketch(state, world, rules), []
    for seat in range(SEATS):
        ship = Ship(*(values[seat] for values in one.ships))
        other = Ship(*([values[1 - seat]] for values in one.ships))
        shots = Projectiles(*([slot[1 - seat] for slot in values] for values in one.shots))
        lines.append([*sights(canvas, ship, other, [1.0], 1), *sights(canvas, ship, shots, shots.life, SHOTS_SEEN)])
    return {**canvas.vectors(), "sights": lines}


def marks(rules: Rules) -> Marks:
    """Return the drawing of any moment of a world, which a page makes of its record."""
    found = marked_field(rules, SIZE)
    for seat in range(SEATS):
        mark_shots(found, "state.shots", COLORS[seat], rules.max_ship_projectiles, rules, seat, SEATS)
        mark_ship(found, "state.ships", COLORS[seat], rules, seat)
        found.entry(f"health of {NAMES[seat]}", entry("state.ships.health", seat, 0), rules.ship_health, COLORS[seat])
    return found
