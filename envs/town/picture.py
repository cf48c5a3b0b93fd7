"""RGB picture of one town; shapes and labels are distinguishable for color-blind people.

A place has the color of the meter that it raises most, which is the color of that meter's bar in the panel.
"""

from __future__ import annotations

import math
from typing import Any

from envs.base.episode import EpisodeStats
from envs.toolkit.drawing import Canvas, Color, Point, check_picture, mix, regular
from envs.toolkit.marks import Marks, Term, entry
from envs.toolkit.records import row
from envs.town.panel import (
    DANGER,
    FAINT,
    GROUND,
    INK,
    LIVING,
    PALETTE,
    WORDS,
    centered,
    draw_agent,
    draw_panel,
    kind_color,
    labels,
    meter_color,
    shown_cues,
    world_point,
)
from envs.town.rules import HOURS, Rules
from envs.town.state import State, holds_place

SIZE = (640, 512)
"""Width and height of a picture [pixels]."""
SCENE_SIZE = (396, 424)
"""Size of a scene, which has no panel."""
FIELD: Color = (21, 26, 38)
SEEN: Color = (34, 42, 60)
GRID: Color = (40, 48, 68)
WALL: Color = (70, 82, 108)
CLOSED: Color = mix(FIELD, FAINT, 0.35)
WINDOW: Color = (150, 196, 255)

Window = tuple[int, int, int, int]

PANEL = 0.25
"""Fraction of the width that the panel takes."""
NARROWEST = 100
"""Least width of the panel [pixels]; a narrower one would not be readable and is left out."""
ROOMY = 18
"""Least size of a cell [pixels] that holds its label."""


def sketch(
    state: State, episode: EpisodeStats, world: int, rules: Rules, size: tuple[int, int] = SIZE, watched: int | None = 0
) -> Canvas:
    """Return the drawing of world number ``world`` of a batch.

    Places have two letters and are gray while they are closed. Agents are discs with their index and the color of
    their family as rim, the dead are gray crosses, and dots beside a disc are its cues. In fog the brighter ground is
    the window of agent ``watched``, if it is not None.

    Raises:
        ValueError: there is no such world, or the picture would be too small to show anything.
    """
    check_picture(world, state.step.shape[-1], size)
    one, statistics = row(world, state, episode)
    origin, scale = viewport(one.settings.width, one.settings.height, size)
    canvas = Canvas(size, GROUND, origin, scale)
    window = _window(one, rules, watched)
    _draw_ground(canvas, one, window)
    _draw_places(canvas, one, rules, window)
    _draw_agents(canvas, one, rules)
    _draw_header(canvas, one, statistics, rules)
    if has_panel(size):
        left, top, gap = size[0] * (1 - PANEL), _header_height(size), _gap(size)
        draw_panel(canvas, one, rules, (left, top), (size[0] * PANEL - gap, size[1] - top - gap))
    return canvas


def scene(state: State, episode: EpisodeStats, world: int, rules: Rules) -> dict[str, Any]:
    """Return the drawing as vectors, with what can be pointed at: the grid, agents and places."""
    (one,) = row(world, state)
    corner, cell = viewport(one.settings.width, one.settings.height, SCENE_SIZE)
    cells = zip(one.layout.x, one.layout.y, strict=True)
    kinds = [(rules.kinds[slot // rules.places_per_kind], x, y) for slot, (x, y) in enumerate(cells)]
    return {
        **sketch(state, episode, world, rules, SCENE_SIZE, watched=None).vectors(),
        "grid": {
            "corner": [round(number, 1) for number in corner],
            "cell": round(cell, 2),
            "columns": one.settings.width,
            "rows": one.settings.height,
        },
        "reach": rules.view,
        "agents": [list(place) for place in zip(one.agents.x, one.agents.y, one.agents.alive, strict=True)],
        "places": [[kind, x, y, is_open(one, rules, kind)] for kind, x, y in kinds if holds_place(x)],
    }


def marks(rules: Rules) -> dict[str, Any]:
    """Return the drawing of any moment of a town, which a page makes of its record, and what can be pointed at."""
    corner, cell = viewport(rules.width, rules.height, SCENE_SIZE)
    found, step = Marks(SCENE_SIZE, GROUND, corner, cell), entry("state.step", 0, 0)
    found.box((0, 0), (rules.width, rules.height), FIELD, rim=WALL)
    closed = _mark_places(found, rules, step)
    for agent in range(rules.population):
        x, y, alive = (entry(f"state.agents.{part}", agent, 0) for part in ("x", "y", "alive"))
        aside = 0.5 + 0.14 * (agent - (rules.population - 1) / 2) / max(1.0, rules.population / 4)
        found.disc((x + aside, y + 0.65), 0.21, LIVING, rim=FAINT, width=cell / 22, shown=alive)
        found.text((x + aside, y + 0.65), [str(agent)], min(cell * 0.25, 20), INK, shown=alive)
    for index, name in enumerate(rules.meter_names):
        found.entry(name, entry("state.meters", index * rules.population), 1.0, meter_color(index))
    found.entry("hour", step % HOURS)
    grid = {"corner": list(corner), "cell": cell, "columns": rules.width, "rows": rules.height}
    places = [rules.kinds[slot // rules.places_per_kind] for slot in range(rules.num_slots)]
    more = {"grid": grid, "reach": rules.view, "places": places, "closed": closed, "agents": rules.population}
    return {**found.plain(), **more}


def _mark_places(found: Marks, rules: Rules, step: Term) -> dict[str, Any]:
    """Mark the places; return by kind a term that is above 0 while it is closed, of kinds that close."""
    short, colors = labels(rules.kinds), [kind_color(rules, kind) for kind in rules.kinds]
    closed, slots, cell = {}, rules.places_per_kind, found.scale
    for index, kind in enumerate(rules.kinds):
        if kind not in rules.deployed:
            continue
        x, y = (entry(f"state.layout.{axis}", index * slots) for axis in "xy")
        there = x + 1  # a place that is not there is at -1
        looks = [(colors[index], there)]
        opens, closes = rules.affordances[kind].hours
        if rules.clock and closes - opens < HOURS:
            late = (step - opens) % HOURS - (closes - opens - 1)
            closed[kind] = late.plain
            looks.append((CLOSED, there * late))
        outline = _shape(x, y, colors[:index].count(colors[index]))
        for color, shown in looks:
            tone, letters, rim = mix(color, WORDS, 0.75), min(cell * 0.25, 22), max(1.0, cell / 22)
            found.polygon(outline, mix(FIELD, color, 0.38), slots, rim=color, width=rim, shown=shown)
            found.text((x + 0.5, y + 0.23), [short[index]] * slots, letters, tone, slots, shown=shown)
    return closed


def legend(rules: Rules) -> dict[str, Color]:
    """Color of each meter, of each kind of place that the town has, which is that of the meter it raises most, and of
    closed places.
    """
    meters = {name: meter_color(index) for index, name in enumerate(rules.meter_names)}
    kinds = {kind: kind_color(rules, kind) for kind in rules.kinds if kind in rules.deployed}
    return {**meters, **kinds, **({"closed": CLOSED} if rules.clock else {})}


def window_colors(rules: Rules) -> list[Color]:
    """Color of each channel of an agent's window: kinds of places, other agents, walls."""
    return [*(kind_color(rules, kind) for kind in rules.kinds), LIVING, WALL]


def viewport(width: int, height: int, size: tuple[int, int]) -> tuple[Point, float]:
    """Return the pixel of the upper left corner of a map of ``width`` x ``height`` cells, and pixels per cell."""
    top, gap = _header_height(size), _gap(size)
    wide = size[0] * (1 - PANEL * has_panel(size)) - 2 * gap
    high = size[1] - top - gap
    scale = min(wide / width, high / height)
    return (gap + (wide - scale * width) / 2, top + (high - scale * height) / 2), scale


def has_panel(size: tuple[int, int]) -> bool:
    """True if the picture is wide enough for a panel beside the map."""
    return size[0] * PANEL >= NARROWEST


def _header_height(size: tuple[int, int]) -> float:
    return size[1] / 14


def _gap(size: tuple[int, int]) -> float:
    return max(2.0, size[1] / 64)


def _window(one: State, rules: Rules, watched: int | None) -> Window | None:
    """Return the cells that an agent sees in fog: left, top, and the first cells beyond."""
    if watched is None or rules.view is None or not one.agents.alive[watched]:
        return None
    (x, y), reach = (one.agents.x[watched], one.agents.y[watched]), rules.view
    width, height = one.settings.width, one.settings.height
    return max(x - reach, 0), max(y - reach, 0), min(x + reach + 1, width), min(y + reach + 1, height)


def _draw_ground(canvas: Canvas, one: State, window: Window | None) -> None:
    width, height = one.settings.width, one.settings.height
    canvas.box((0, 0), (width, height), FIELD)
    if window is not None:
        canvas.box(window[:2], window[2:], SEEN)
    every = 1 if canvas.scale >= ROOMY / 2 else 5
    for line in range(every, width, every):
        canvas.line((line, 0), (line, height), GRID, 0.7)
    for line in range(every, height, every):
        canvas.line((0, line), (width, line), GRID, 0.7)
    wall = 1 / canvas.scale
    canvas.box((-wall, -wall), (width + wall, height + wall), None, WALL)
    if window is not None:
        canvas.box(window[:2], window[2:], None, WINDOW, 1.4)


def _draw_places(canvas: Canvas, one: State, rules: Rules, window: Window | None) -> None:
    short, taken = labels(rules.kinds), set(zip(one.agents.x, one.agents.y, strict=True))
    colors = [kind_color(rules, kind) for kind in rules.kinds]
    for slot, (x, y) in enumerate(zip(one.layout.x, one.layout.y, strict=True)):
        if not holds_place(x):
            continue
        index = slot // rules.places_per_kind
        seen = window is not None and window[0] <= x < window[2] and window[1] <= y < window[3]
        ground = SEEN if seen else FIELD
        color = colors[index] if is_open(one, rules, rules.kinds[index]) else CLOSED
        same = colors[:index].count(colors[index])
        canvas.polygon(_shape(x, y, same), mix(ground, color, 0.38), color, max(1.0, canvas.scale / 22))
        if canvas.scale < ROOMY:
            _draw_beside(canvas, short[index], (x, y), one, mix(color, WORDS, 0.35))
            continue
        high, letters = (0.23, 0.25) if (x, y) in taken else (0.5, 0.36)
        pixel, tone = canvas.place((x + 0.5, y + high)), mix(color, WORDS, 0.75)
        centered(canvas, pixel, short[index], min(canvas.scale * letters, 22), tone)


def _draw_beside(canvas: Canvas, words: str, cell: tuple[int, int], one: State, color: Color) -> None:
    """Write a label too large for its cell, on the side where there is more room."""
    others = {*zip(one.layout.x, one.layout.y, strict=True), *zip(one.agents.x, one.agents.y, strict=True)}
    letters = min(max(canvas.scale, 9), 11)
    reach = math.ceil(1.5 * letters / canvas.scale)

    def crowd(side: int) -> int:
        beside = [(cell[0] + side * step, cell[1]) for step in range(1, reach + 1)]
        return sum((x, y) in others or not 0 <= x < one.settings.width for x, y in beside)

    side = min((1, -1), key=crowd)
    x, y = canvas.place((cell[0] + 0.5 + side * 0.5, cell[1] + 0.5))
    centered(canvas, (x + side * 0.75 * letters, y), words, letters, color)


def _shape(x: Any, y: Any, index: int) -> list[Any]:
    """Outline of a place, of numbers or of terms: kinds that share a color differ in it."""
    if index == 0:
        return [(x + 0.07, y + 0.07), (x + 0.93, y + 0.07), (x + 0.93, y + 0.93), (x + 0.07, y + 0.93)]
    corners, angle = ((6, 0.0), (8, math.tau / 16), (3, math.tau / 4), (4, 0.0))[(index - 1) % 4]
    return regular((x + 0.5, y + 0.5), 0.49, corners, angle)


def is_open(one: State, rules: Rules, kind: str) -> bool:
    """True if places of a kind are open now."""
    opens, closes = rules.affordances[kind].hours
    return not rules.clock or (one.step - opens) % HOURS < closes - opens


def _draw_agents(canvas: Canvas, one: State, rules: Rules) -> None:
    """Draw the agents; those in one cell divide its area, and a place keeps the upper part for its label."""
    alive, places = one.agents.alive, set(zip(one.layout.x, one.layout.y, strict=True))
    cells: dict[tuple[int, int], list[int]] = {}
    for agent in sorted(range(rules.population), key=lambda agent: alive[agent]):  # the living on top
        cells.setdefault((one.agents.x[agent], one.agents.y[agent]), []).append(agent)
    for (x, y), together in cells.items():
        if canvas.scale < ROOMY:
            _draw_stack(canvas, one, rules, together, canvas.place((x + 0.5, y + 0.5)))
            continue
        above = 0.4 if (x, y) in places else 0.0
        columns = min(len(together), math.ceil(math.sqrt(len(together) / (1 - above))))
        rows = math.ceil(len(together) / columns)
        radius = min(0.29 - 0.1 * above, 0.47 / columns, 0.47 * (1 - above) / rows) * canvas.scale
        for index, agent in enumerate(together):
            across = (index % columns + 0.5) / columns
            down = above + (1 - above) * (index // columns + 0.5) / rows - 0.04 * above
            pixel = canvas.place((x + across, y + down))
            draw_agent(canvas, one, rules, agent, pixel, radius)
            _draw_marks(canvas, [cue for cue, _ in shown_cues(one, rules, agent)], pixel, radius)


def _draw_stack(canvas: Canvas, one: State, rules: Rules, together: list[int], pixel: Point) -> None:
    """Draw the agents of a small cell: a single living one, or a dark disc with the number of the living."""
    radius = max(0.45 * canvas.scale, 6.5)
    alive = sum(one.agents.alive[agent] for agent in together)
    if alive <= 1:
        draw_agent(canvas, one, rules, together[-1], pixel, radius)
        return
    canvas.disc(world_point(canvas, pixel), radius / canvas.scale, INK, LIVING, 1.2)
    centered(canvas, pixel, f"x{alive}", radius * 1.2, LIVING)


def _draw_marks(canvas: Canvas, cues: list[int], pixel: Point, radius: float) -> None:
    """Draw a dot for every cue, along the disc's upper right; the panel explains them."""
    size = max(radius * 0.24, 1.6)
    for index, cue in enumerate(cues):
        angle = math.radians(-75 + 42 * index)
        x, y = pixel[0] + (radius + size) * math.cos(angle), pixel[1] + (radius + size) * math.sin(angle)
        canvas.disc(world_point(canvas, (x, y)), size / canvas.scale, PALETTE[cue % len(PALETTE)], GROUND, 0.7)


def _draw_header(canvas: Canvas, one: State, episode: EpisodeStats, rules: Rules) -> None:
    agents = rules.num_agents
    alive = sum(one.agents.alive[:agents])
    short = len(rules.name) < 6
    entries = (
        ("town" if short else "", rules.name, WORDS),
        ("step", f"{one.step}/{rules.max_steps}", WORDS),
        ("hour", f"{one.step % HOURS}:00", WORDS),
        ("alive", f"{alive}/{agents}", WORDS if alive == agents else DANGER),
        ("return", f"{sum(episode.total_reward) / agents:.1f}", WORDS),
    )
    shares = (0.0, 0.16, 0.4, 0.58, 0.78) if short else (0.0, 0.32, 0.52, 0.67, 0.82)
    width, height = canvas.size[0], _header_height(canvas.size)
    letters, gap = min(height * 0.45, width / 40), _gap(canvas.size)
    for share, (name, value, color) in zip(shares, entries, strict=True):
        end = canvas.text((gap + share * (width - 2 * gap), height / 2), name, letters, FAINT)
        canvas.text((end + letters / 2, height / 2), value, letters, color)
