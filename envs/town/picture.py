"""One town drawn as an RGB frame: the map on the left, the agents' meters on the right."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.drawing import Canvas, Colour, mix
from envs.records import map_record
from envs.town.rules import HOURS, Rules
from envs.town.state import ABSENT, State

GROUND: Colour = (8, 10, 16)
FIELD: Colour = (21, 26, 38)
GRID: Colour = (32, 39, 55)
WORDS: Colour = (214, 222, 235)
FAINT: Colour = (122, 134, 158)
EMPTY: Colour = (52, 58, 74)
FULL: Colour = (38, 194, 140)
LOW: Colour = (240, 160, 60)
DANGER: Colour = (240, 84, 84)
DEAD: Colour = (110, 116, 130)
PALETTE: tuple[Colour, ...] = (
    (86, 180, 233),
    (230, 159, 0),
    (0, 158, 115),
    (204, 121, 167),
    (240, 228, 66),
    (213, 94, 0),
    (0, 114, 178),
    (178, 178, 178),
)
"""Colours that colour-blind eyes tell apart (Okabe and Ito 2008); places and families take them in turn."""
PANEL = 0.36
"""Share of the picture's width that shows meters."""
MOST_PANELS = 8
"""Agents whose meters find room; with more the map takes the whole picture."""


def draw(state: State, world: int, rules: Rules, size: tuple[int, int] = (560, 400)) -> NDArray[np.uint8]:
    """Town number ``world`` of a batch as a picture, uint8 [height, width, 3]; ``size`` is (width, height) in pixels.

    Places are squares with two letters, dim while they are closed; agents are discs with their number and a rim in the
    colour of their family, the dead are crosses; in fog the frame shows what agent 0 sees. Beside a number stand the
    agent's cues, in a town that has them.

    Raises:
        ValueError: there is no such world, or the picture would be too small to show anything.
    """
    worlds = state.step.shape[-1]
    if not 0 <= world < worlds:
        raise ValueError(f"there is no world {world}: use 0 to {worlds - 1}.")
    if min(size) < 64:
        raise ValueError(f"a picture of {size[0]} x {size[1]} pixels is too small: use at least 64 x 64.")
    one = map_record(lambda value: value[..., world].tolist(), state)
    panel = PANEL * size[0] if rules.num_agents <= MOST_PANELS else 0.0
    header = size[1] / 14
    across, down = one.settings.width, one.settings.height
    scale = min((size[0] - panel - 8) / across, (size[1] - header - 6) / down)
    origin = ((size[0] - panel - scale * across) / 2, header + (size[1] - header - scale * down - 4) / 2)
    canvas = Canvas(size, GROUND, origin, scale)
    _draw_map(canvas, one, rules)
    _draw_agents(canvas, one, rules)
    _draw_header(canvas, one, header)
    if panel:
        _draw_meters(canvas, one, rules, size[0] - panel, header)
    return canvas.picture()


def _draw_map(canvas: Canvas, one: State, rules: Rules) -> None:
    across, down = one.settings.width, one.settings.height
    canvas.box((0, 0), (across, down), FIELD)
    for line in range(across + 1):
        canvas.line((line, 0), (line, down), GRID)
    for line in range(down + 1):
        canvas.line((0, line), (across, line), GRID)
    letters = 0.34 * canvas.scale
    for slot, (x, y) in enumerate(zip(one.layout.x, one.layout.y, strict=True)):
        if x <= ABSENT // 2:
            continue
        kind = slot // rules.places_per_kind
        colour = mix(FIELD, PALETTE[kind % len(PALETTE)], 0.75 if _is_open(kind, one, rules) else 0.2)
        canvas.box((x + 0.1, y + 0.1), (x + 0.9, y + 0.9), mix(FIELD, colour, 0.45), colour)
        if letters >= 5:
            canvas.text(_pixel(canvas, x + 0.16, y + 0.28), _short(rules.kinds[kind]), letters, WORDS)
    if rules.view is not None:
        x, y, view = one.agents.x[0], one.agents.y[0], rules.view
        left, top = max(x - view, 0), max(y - view, 0)
        right, bottom = min(x + view + 1, across), min(y + view + 1, down)
        canvas.box((left, top), (right, bottom), None, mix(FIELD, WORDS, 0.6), 1.5)


def _draw_agents(canvas: Canvas, one: State, rules: Rules) -> None:
    agents, letters = one.agents, 0.3 * canvas.scale
    sharing: dict[tuple[int, int], int] = {}
    for index, (x, y, alive) in enumerate(zip(agents.x, agents.y, agents.alive, strict=True)):
        place = sharing.get((x, y), 0)
        sharing[x, y] = place + 1
        centre = (x + 0.68 - 0.16 * (place % 3), y + 0.68 - 0.12 * (place // 3))
        if not alive:
            for sign in (-1, 1):
                canvas.line(
                    (centre[0] - 0.15, centre[1] - sign * 0.15), (centre[0] + 0.15, centre[1] + sign * 0.15), DEAD, 2
                )
            continue
        rim = PALETTE[(index // rules.family_size) % len(PALETTE)]
        canvas.disc(centre, 0.24, (236, 248, 255), rim, 2)
        if letters >= 5:
            canvas.text(_pixel(canvas, centre[0] - 0.11, centre[1]), str(index), letters, (20, 24, 34))


def _draw_header(canvas: Canvas, one: State, height: float) -> None:
    alive = sum(one.agents.alive)
    entries = [
        ("day", f"{one.step // HOURS + 1}"),
        ("hour", f"{one.step % HOURS:02d}"),
        ("step", f"{one.step}"),
        ("alive", f"{alive}/{len(one.agents.alive)}"),
    ]
    letters, stride = height * 0.5, canvas.size[0] / len(entries)
    for index, (name, value) in enumerate(entries):
        end = canvas.text((8 + index * stride, height / 2), name, letters, FAINT)
        canvas.text((end + letters / 2, height / 2), value, letters, WORDS)


def _draw_meters(canvas: Canvas, one: State, rules: Rules, left: float, top: float) -> None:
    """One block per agent: a bar for every meter, and what it shows."""
    agents, names = len(one.agents.alive), rules.meter_names
    right, block = canvas.size[0] - 8.0, (canvas.size[1] - top - 6) / agents
    row = block / (len(names) + 1.6)
    wide = row >= 7  # room for the names of meters
    for index in range(agents):
        y = top + index * block
        rim = PALETTE[(index // rules.family_size) % len(PALETTE)]
        colour = rim if one.agents.alive[index] else DEAD
        end = canvas.text((left, y + row * 0.7), f"{index}", min(max(row, 8), 14), colour)
        bits = one.agents.cues[index]
        shown = [name for number, name in enumerate(rules.cues) if bits >> number & 1]
        canvas.text((end + 6, y + row * 0.7), ", ".join(shown).replace("_", " "), min(max(row * 0.8, 7), 12), FAINT)
        for number, name in enumerate(names):
            middle = y + row * (number + 2)
            start = left
            if wide:
                canvas.text((left, middle), name, min(row * 0.75, 12), FAINT)
                start = left + (right - left) * 0.42
            _bar(canvas, start, right, middle, row * 0.6, one.meters[number][index])


def _bar(canvas: Canvas, left: float, right: float, middle: float, height: float, share: float) -> None:
    colour = FULL if share >= 0.3 else LOW if share >= 0.15 else DANGER
    ends = (left, right), (left, left + (right - left) * min(max(share, 0.0), 1.0))
    for (start, end), shade in zip(ends, (EMPTY, colour), strict=True):
        if end - start >= 1:
            canvas.box(_place(canvas, start, middle - height / 2), _place(canvas, end, middle + height / 2), shade)


def _is_open(kind: int, one: State, rules: Rules) -> bool:
    opens, closes = rules.affordances[rules.kinds[kind]].hours
    return not rules.clock or (one.step - opens) % HOURS < closes - opens


def _short(kind: str) -> str:
    """Two letters: the capitals of a compound, else the first two."""
    capitals = "".join(letter for letter in kind if letter.isupper())
    return capitals[:2] if len(capitals) > 1 else kind[:2]


def _pixel(canvas: Canvas, x: float, y: float) -> tuple[float, float]:
    return canvas.origin[0] + canvas.scale * x, canvas.origin[1] + canvas.scale * y


def _place(canvas: Canvas, x: float, y: float) -> tuple[float, float]:
    """The point of the map that lies at a pixel."""
    return (x - canvas.origin[0]) / canvas.scale, (y - canvas.origin[1]) / canvas.scale
