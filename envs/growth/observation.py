"""Observation of the agent: measures of the host, and for each slot its module's stage, blend, use and gradients; and
the picture for people: accuracy beside the twin's, and the slots with their stage and alpha, over time.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from envs.growth.actions import Tables, any_of
from envs.growth.rules import OPERATIONS, SPEEDS, STAGES, Rules, Stage
from envs.growth.state import RECENT, State
from envs.toolkit.drawing import Canvas, Color, check_picture
from envs.toolkit.records import row

CONTRIBUTION_SCALE = 2.0
"""Factor of contributions and their changes, which are observed within [-1, 1]."""
NORM_SCALE = 0.25
"""Factor of the logarithm of gradient norms."""


def names(rules: Rules) -> tuple[str, ...]:
    """Return names of the components in their order."""
    host = [
        *("time", "loss", "accuracy", "gain of all modules"),
        *(f"loss {RECENT - index} steps ago" for index in range(RECENT)),
        *(f"accuracy {RECENT - index} steps ago" for index in range(RECENT)),
        *("slots training", "slots blending", "slots holding", "last operation took effect"),
        *(f"last operation: {operation}" for operation in OPERATIONS),
    ]
    slot = [
        *(f"is {stage}" for stage in STAGES),
        *(f"holds {blueprint.name}" for blueprint in rules.offered),
        *("alpha", "alpha target", "alpha mode", "blend total", "blend done", "blend left", "tempo", "operator"),
        *("contribution", "contribution change", "contribution is known", "accuracy since germination"),
        *("gradient norm", "gradient health", "earlier gradient health", "gradient ratio"),
        *("age in stage", "age"),
    ]
    return (*host, *(f"slot {number} {word}" for number in range(rules.slots) for word in slot))


def observe(state: State, rules: Rules, tables: Tables) -> Tensor:
    """Compute the observation, float32 [N, components] within [-1, 1]; -1 stands for what is not known."""
    rows = [*_host(state, rules, tables.guess)]
    slots = _slots(state, rules)  # [words, S, N]
    columns = torch.cat((torch.stack(rows), slots.transpose(0, 1).flatten(0, 1)))
    return columns.T.clamp(-1, 1).contiguous()


def _host(state: State, rules: Rules, guess: Tensor) -> list[Tensor]:
    measures, slots, tally = state.measures, state.slots, state.tally

    def share(*stages: int) -> Tensor:
        return any_of(slots.stage, *stages).float().mean(0)

    past = torch.where(measures.losses < 0, -1.0, measures.losses / (2 * guess))
    return [
        state.step / rules.max_steps,
        measures.loss / (2 * guess),
        measures.accuracy,
        (measures.accuracy - measures.bare) * CONTRIBUTION_SCALE,
        *past,
        *measures.accuracies,
        *(share(Stage.TRAINING), share(Stage.BLENDING), share(Stage.HOLDING, Stage.PERMANENT), tally.success),
        *((tally.operation == operation).float() for operation in range(len(OPERATIONS))),
    ]


def _slots(state: State, rules: Rules) -> Tensor:
    """Compute what is seen of each slot, [words, S, N]; all but the stage is 0 for an empty one."""
    slots, longest, time = state.slots, max(SPEEDS), rules.max_steps
    present = (slots.stage != Stage.DORMANT).float()
    stages = [(slots.stage == stage).float() for stage in range(len(STAGES))]
    words = [
        *((slots.blueprint == index).float() for index in range(len(rules.offered))),
        *(slots.alpha, slots.target, slots.mode / 2, slots.total / longest, slots.done / longest),
        *((slots.total - slots.done) / longest, slots.tempo / longest, slots.operator / 2),
        slots.contribution * CONTRIBUTION_SCALE,
        slots.velocity * CONTRIBUTION_SCALE,
        (slots.measured >= 0).float(),
        (state.measures.accuracy - slots.born_at) * CONTRIBUTION_SCALE,
        torch.where(slots.norm < 0, -1.0, torch.log(1 + slots.norm.clamp_min(0)) * NORM_SCALE),
        slots.health,
        slots.previous_health,
        torch.where(slots.ratio < 0, -1.0, slots.ratio / 2),
        slots.stage_age / time,
        slots.age / time,
    ]
    return torch.stack((*stages, *(word * present for word in words)))


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


def sketch(state: State, world: int, rules: Rules, size: tuple[int, int] = SIZE) -> Canvas:
    """Return the drawing of world number ``world`` of a batch.

    Above, the accuracy of the network (blue) and of its twin without modules (gray). Below, a band for each slot whose
    color is the stage and whose filled height is alpha.

    Raises:
        ValueError: there is no such world, or the picture would be too small to show anything.
    """
    check_picture(world, state.step.shape[-1], size)
    course, slots, measures, tally = row(world, state.course, state.slots, state.measures, state.tally)
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
            if stage <= Stage.DORMANT:
                continue
            x, floor = left + time * column, upper + 0.8 * band
            canvas.box((x, floor - 0.8 * band * max(alpha, 0.15)), (x + column, floor), COLORS[STAGES[stage]])
        if slots.stage[slot] != Stage.DORMANT:
            blueprint, contribution = rules.blueprints[slots.blueprint[slot]], slots.contribution[slot]
            text = f"{blueprint} {STAGES[slots.stage[slot]]} {contribution:+.2f}"
            canvas.text((left + 6, upper + 0.2 * band), text, 11, WORDS)
    words = f"step {step}   level {level}   accuracy {measures.accuracy:.2f}   twin {measures.twin:.2f}"
    canvas.text((left, 0.06 * height), f"{words}   {OPERATIONS[tally.operation]}", 13, WORDS)
    return canvas
