"""Picture of one growing network: accuracy beside its twin's, and the slots with their stage and alpha, over time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from envs.growth.rules import BLUEPRINTS, DORMANT, OPERATIONS, STAGES, Rules
from envs.growth.state import State
from envs.toolkit.drawing import Canvas, Color, check_picture
from envs.toolkit.records import row

SIZE = (640, 400)
"""Width and height of a picture [pixels]."""
GROUND: Color = (16, 20, 30)
FRAME: Color = (60, 68, 90)
WORDS: Color = (200, 206, 220)
HOST: Color = (86, 180, 233)
TWIN: Color = (150, 150, 150)
COLORS: dict[str, Color] = {
    "germinated": (240, 228, 66),
    "training": (230, 159, 0),
    "blending": (0, 158, 115),
    "holding": (86, 180, 233),
    "permanent": (0, 114, 178),
    "pruned": (213, 94, 0),
    "embargoed": (110, 60, 50),
    "resetting": (70, 50, 50),
}
"""Colors of stages, distinguishable for color-blind people (Okabe and Ito)."""


def draw(state: State, world: int, rules: Rules, size: tuple[int, int] = SIZE) -> NDArray[np.uint8]:
    """Draw world number ``world`` of a batch, uint8 [height, width, 3]; ``size`` is (width, height) in pixels.

    Above, the accuracy of the network (blue) and of its twin without modules (gray). Below, a band for each slot whose
    color is the stage and whose filled height is alpha.

    Raises:
        ValueError: there is no such world, or the picture would be too small to show anything.
    """
    check_picture(world, state.step.shape[-1], size)
    course, slots, measures, books = row(world, state.course, state.slots, state.measures, state.books)
    step, level = int(state.step[world]), int(state.level[world])
    canvas = Canvas(size, GROUND)
    width, height = size
    left, right, top, middle = 0.04 * width, 0.96 * width, 0.12 * height, 0.52 * height
    column = (right - left) / rules.max_steps
    canvas.box((left, top), (right, middle), None, FRAME)
    for values, color in ((course.twin, TWIN), (course.accuracy, HOST)):
        known = [(left + (t + 0.5) * column, middle - v * (middle - top)) for t, v in enumerate(values) if v >= 0]
        for start, end in pairwise(known):
            canvas.line(start, end, color, 2)
    band = (height * 0.97 - middle * 1.06) / rules.slots
    for slot in range(rules.slots):
        upper = middle * 1.06 + slot * band
        canvas.box((left, upper), (right, upper + 0.8 * band), None, FRAME)
        for time in range(rules.max_steps):
            stage, alpha = int(course.stage[time][slot]), course.alpha[time][slot]
            if stage <= DORMANT:
                continue
            x, floor = left + time * column, upper + 0.8 * band
            canvas.box((x, floor - 0.8 * band * max(alpha, 0.15)), (x + column, floor), COLORS[STAGES[stage]])
        if slots.stage[slot] != DORMANT:
            text = (
                f"{BLUEPRINTS[slots.blueprint[slot]].name} {STAGES[slots.stage[slot]]} {slots.contribution[slot]:+.2f}"
            )
            canvas.text((left + 6, upper + 0.2 * band), text, 11, WORDS)
    words = f"step {step}   level {level}   accuracy {measures.accuracy:.2f}   twin {measures.twin:.2f}"
    canvas.text((left, 0.06 * height), f"{words}   {OPERATIONS[books.operation]}", 13, WORDS)
    return canvas.picture()
