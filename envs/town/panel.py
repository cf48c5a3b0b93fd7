"""Panel beside the picture of a town: the agents' meters and activities, and a key to the map's labels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from envs.toolkit.drawing import Canvas, Color, Point, mix
from envs.town.rules import INTERACT, Rules, visit
from envs.town.state import State

GROUND: Color = (8, 10, 16)
WORDS: Color = (214, 222, 235)
FAINT: Color = (122, 134, 158)
EMPTY: Color = (38, 44, 60)
DANGER: Color = (255, 110, 100)
PALETTE: tuple[Color, ...] = (
    (240, 228, 66),
    (86, 180, 233),
    (230, 159, 0),
    (0, 178, 130),
    (222, 135, 185),
    (72, 124, 228),
    (226, 100, 20),
    (196, 200, 214),
)
"""Okabe and Ito's colors, distinguishable for color-blind people, adapted to a dark ground."""
LIVING: Color = (238, 242, 250)
INK: Color = (16, 20, 30)

LOW = 0.2
"""Threshold below which a meter's name is red."""
NAMED = 2
"""Largest number of agents with named meters; more agents have a row of upright bars each."""
LOWEST = 8
"""Least height of a row, in units of 1/120 of the panel's width; lower rows are left out."""


def draw_panel(canvas: Canvas, one: State, rules: Rules, corner: Point, size: Point) -> None:
    """Draw the agents' meters if all fit, and below them, where there is room, the places' names.

    Args:
        canvas: canvas to draw on; its scale does not matter.
        one: a single world as lists and numbers.
        rules: the town.
        corner: upper left pixel.
        size: width and height in pixels.
    """
    unit, agents, (left, top) = size[0] / 120, rules.num_agents, corner
    bottom, key = top + size[1], 11 * unit * ((len(rules.deployed) + 1) // 2)
    named = agents <= NAMED
    if named:
        least, most = (head(rules) + 12 * len(rules.meters)) * unit, (head(rules) + 18 * len(rules.meters)) * unit
        draw_one = _draw_named
    else:
        least, most, draw_one, top = 24 * unit, 64 * unit, _draw_compact, top + 12 * unit
    has_rows = (bottom - top) / agents >= LOWEST * unit
    has_key = (bottom - top - key - 8 * unit) / agents >= least or not has_rows
    if has_rows:
        height = min(most, (bottom - top - (key + 8 * unit) * has_key) / agents)
        for agent in range(agents):
            draw_one(canvas, one, rules, agent, (left, top + agent * height), height, unit)
        if not named:
            _draw_heading(canvas, rules, (left, top - 7 * unit), unit)
    if has_key:
        _draw_key(canvas, rules, (left, bottom - key), unit)


def head(rules: Rules) -> int:
    """Height above an agent's named meters, in units."""
    return 32 if rules.cues else 21


def _draw_named(
    canvas: Canvas, one: State, rules: Rules, agent: int, corner: Point, height: float, unit: float
) -> None:
    left, top = corner
    _draw_activity(canvas, one, rules, agent, (left + 22 * unit, top + 9 * unit), unit)
    _draw_cues(canvas, one, rules, agent, (left, top + 23 * unit), unit)
    draw_agent(canvas, one, rules, agent, (left + 9 * unit, top + 9 * unit), 8 * unit)
    row = (height - (head(rules) + 2) * unit) / len(rules.meters)
    for index, name in enumerate(rules.meters):
        y, value = top + head(rules) * unit + (index + 0.5) * row, one.meters[index][agent]
        canvas.text((left, y), name, 9.5 * unit, _tone(one, agent, value))
        box = (left + 48 * unit, y - 0.32 * row, left + 118 * unit, y + 0.32 * row)
        _draw_bar(canvas, box, value, meter_color(index), one.agents.alive[agent])


def _draw_compact(
    canvas: Canvas, one: State, rules: Rules, agent: int, corner: Point, height: float, unit: float
) -> None:
    left, top = corner
    lines = 2 if height >= 40 * unit else 1 if height >= 28 * unit else 0
    tall = min(height * 0.85, height - (lines * 11 + 5) * unit) if lines else height * 0.85
    radius = min(8 * unit, tall / 2)
    draw_agent(canvas, one, rules, agent, (left + 9 * unit, top + tall / 2), radius)
    for index, x in enumerate(_columns(rules, left, unit)):
        value, wide = one.meters[index][agent], _column(rules, unit) * 0.36
        box = (x - wide, top + tall, x + wide, top)
        _draw_bar(canvas, box, value, meter_color(index), one.agents.alive[agent])
    if lines:
        _draw_activity(canvas, one, rules, agent, (left + 22 * unit, top + tall + 7 * unit), unit)
    if lines > 1:
        _draw_cues(canvas, one, rules, agent, (left + 22 * unit, top + tall + 18 * unit), unit)


def _draw_heading(canvas: Canvas, rules: Rules, left: Point, unit: float) -> None:
    short = labels(rules.meter_names)
    for index, x in enumerate(_columns(rules, left[0], unit)):
        centered(canvas, (x, left[1]), short[index], 7.8 * unit, meter_color(index))


def _column(rules: Rules, unit: float) -> float:
    return 98 * unit / len(rules.meters)


def _columns(rules: Rules, left: float, unit: float) -> list[float]:
    """Centers of the upright bars."""
    wide = _column(rules, unit)
    return [left + 20 * unit + (index + 0.5) * wide for index in range(len(rules.meters))]


def _draw_bar(canvas: Canvas, box: tuple[float, float, float, float], share: float, color: Color, alive: bool) -> None:
    """Draw a bar between two corners in pixels, filled from the first one along its longer side."""
    (x, y, to_x, to_y), full = box, min(max(share, 0.0), 1.0)
    _draw_box(canvas, box, EMPTY if alive else mix(GROUND, EMPTY, 0.5))
    upright = to_y < y
    filled = (x, y + (to_y - y) * full, to_x, y) if upright else (x, y, x + (to_x - x) * full, to_y)
    if full > 0:
        _draw_box(canvas, filled, color if alive else mix(GROUND, FAINT, 0.4))


def _draw_box(canvas: Canvas, box: tuple[float, float, float, float], color: Color) -> None:
    left, right = sorted((box[0], box[2]))
    top, bottom = sorted((box[1], box[3]))
    right, bottom = max(right, left + 1), max(bottom, top + 1)
    canvas.box(world_point(canvas, (left, top)), world_point(canvas, (right, bottom)), color)


def draw_agent(canvas: Canvas, one: State, rules: Rules, agent: int, pixel: Point, radius: float) -> None:
    """Draw a disc with the agent's index and its family's color as rim, or a gray cross if it is dead; ``radius`` in
    pixels.
    """
    (x, y), arm = pixel, radius * 0.62
    if not one.agents.alive[agent]:
        for side in (-arm, arm):
            start, end = world_point(canvas, (x - arm, y - side)), world_point(canvas, (x + arm, y + side))
            canvas.line(start, end, GROUND, radius * 0.34 + 2)
            canvas.line(start, end, FAINT, max(radius * 0.34, 1.2))
        return
    family = PALETTE[(agent // rules.family_size) % len(PALETTE)] if rules.family_size > 1 else FAINT
    rim = max(radius * 0.22, 1.2)
    canvas.disc(world_point(canvas, pixel), (radius + 1) / canvas.scale, GROUND)
    canvas.disc(world_point(canvas, pixel), radius / canvas.scale, LIVING, family, rim)
    words = str(agent)
    letters = min(1.25, 2.5 / max(len(words), 2)) * radius
    if letters >= 4.5:
        centered(canvas, pixel, words, letters, INK)


def _draw_activity(canvas: Canvas, one: State, rules: Rules, agent: int, left: Point, unit: float) -> None:
    end = canvas.text(left, activity(one, rules, agent), 10 * unit, WORDS if one.agents.alive[agent] else FAINT)
    if rules.symbols and one.agents.alive[agent]:
        canvas.text((end + 6 * unit, left[1]), f"says {one.agents.symbol[agent]}", 9 * unit, FAINT)


def activity(one: State, rules: Rules, agent: int) -> str:
    """Last activity of an agent, in a word or two."""
    agents, action = one.agents, one.agents.action[agent]
    if not agents.alive[agent]:
        return "dead"
    if agents.refused[agent]:
        return "refused"
    if action != INTERACT:
        return rules.action_names[action]
    kind = rules.kinds[agents.slot[agent] // rules.places_per_kind]
    return f"{kind} {agents.progress[agent]}" if agents.progress[agent] else kind


def _draw_cues(canvas: Canvas, one: State, rules: Rules, agent: int, left: Point, unit: float) -> None:
    """Write as many cues as fit, each behind its mark on the map."""
    (x, y), limit = left, left[0] + 98 * unit
    for index, word in shown_cues(one, rules, agent):
        if x + 7 * unit + _width(word, 8.5 * unit) > limit:
            return
        canvas.disc(world_point(canvas, (x + 2.5 * unit, y)), 2.2 * unit / canvas.scale, PALETTE[index % len(PALETTE)])
        x = canvas.text((x + 7 * unit, y), word, 8.5 * unit, WORDS) + 5 * unit


def shown_cues(one: State, rules: Rules, agent: int) -> list[tuple[int, str]]:
    """Index and short name of the cues that an agent shows."""
    bits = one.agents.cues[agent] if one.agents.alive[agent] else 0
    names = (name.removeprefix("looks_").replace("_", " ") for name in rules.cues)
    return [(index, name) for index, name in enumerate(names) if bits >> index & 1]


def _draw_key(canvas: Canvas, rules: Rules, corner: Point, unit: float) -> None:
    """Draw label and name of the kinds of place, in two columns."""
    short, rows = labels(rules.kinds), (len(rules.deployed) + 1) // 2
    present = [kind for kind in rules.kinds if kind in rules.deployed]
    for index, kind in enumerate(present):
        x = corner[0] + index // rows * 61 * unit
        y = corner[1] + (index % rows + 0.5) * 11 * unit
        canvas.text((x, y), short[rules.kinds.index(kind)], 8.5 * unit, kind_color(rules, kind))
        canvas.text((x + 16 * unit, y), kind, 8.3 * unit, FAINT)


def kind_color(rules: Rules, kind: str) -> Color:
    """Color of the meter that a place raises most."""
    gains = [visit(rules.affordances[kind], name) for name in rules.meter_names]
    return meter_color(gains.index(max(gains))) if max(gains) > 0 else FAINT


def meter_color(index: int) -> Color:
    """Color of a meter's bar."""
    return PALETTE[index % len(PALETTE)]


def labels(names: Sequence[str]) -> list[str]:
    """Return two letters for each name, distinct where possible: initials, or the first and a later letter."""
    result: list[str] = []
    for name in names:
        capitals = "".join(letter for letter in name if letter.isupper())
        tries = [capitals[:2]] if len(capitals) > 1 else []
        tries += [name[0].upper() + letter for letter in name[1:]] or [name.upper()]
        result.append(next((label for label in tries if label not in result), tries[0]))
    return result


def centered(canvas: Canvas, pixel: Point, words: str, height: float, color: Color) -> None:
    """Write words whose center is at a pixel."""
    canvas.text((pixel[0] - _width(words, height) / 2, pixel[1]), words, height, color)


@lru_cache(maxsize=512)
def _width(words: str, height: float) -> float:
    """Width of words in pixels, measured on a scratch canvas."""
    return Canvas((1, 1), GROUND).text((0, 0), words, height, GROUND)


def _tone(one: State, agent: int, value: float) -> Color:
    if not one.agents.alive[agent]:
        return mix(GROUND, FAINT, 0.6)
    return DANGER if value < LOW else WORDS


def world_point(canvas: Canvas, pixel: Point) -> Point:
    """Return the point of the canvas' world that is drawn at a pixel."""
    return (pixel[0] - canvas.origin[0]) / canvas.scale, (pixel[1] - canvas.origin[1]) / canvas.scale
