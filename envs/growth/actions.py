"""Actions of the growth world: tables of what their values mean, which are legal, and the gates of the lifecycle."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from envs.growth.rules import (
    CURVES,
    HOLD,
    KINDS,
    OPERATIONS,
    PLACEHOLDERS,
    RELEVANT,
    SPEEDS,
    STEEPNESS,
    STYLES,
    TARGETS,
    TEMPOS,
    Operation,
    Rules,
    Stage,
)
from envs.growth.state import Slots


class Tables(NamedTuple):
    """Columns by blueprint, style, tempo, target, speed and curve; float32 unless stated."""

    rank: Tensor
    """Hidden units by blueprint."""
    taps: Tensor
    kind: Tensor
    """Index of the kind by blueprint, int64."""
    parameters: Tensor
    """Number of parameters by slot and blueprint, [S, blueprints]."""
    style_curve: Tensor
    """int64"""
    style_operator: Tensor
    """int64"""
    style_steepness: Tensor
    tempo: Tensor
    target: Tensor
    speed: Tensor
    curve: Tensor
    """int64"""
    steepness: Tensor
    useful: Tensor
    """Number of modules that pay, by the hidden level; the level itself where that is not known."""
    guess: Tensor
    """Loss of a random guess, ``ln(classes)``, of no axis."""
    relevant: Tensor
    """True for the values of heads that can matter, by operation, bool [6, sum of the sizes of all heads but the last].
    """
    placeholder: Tensor
    """True for the placeholder of each of these heads, bool [sum of their sizes]."""


def make_tables(rules: Rules, useful: list[float], classes: int, device: torch.device) -> Tables:
    """Make the tables; ``useful`` is the number of modules that pay by level."""
    offered = rules.offered

    def column(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device)

    def index(values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    return Tables(
        rank=column([blueprint.rank for blueprint in offered]),
        taps=column([blueprint.taps for blueprint in offered]),
        kind=index([KINDS.index(blueprint.kind) for blueprint in offered]),
        parameters=torch.stack([column([each.size(width) for each in offered]) for width in rules.widths]),
        style_curve=index([curve for _, curve, _ in STYLES]),
        style_operator=index([operator for _, _, operator in STYLES]),
        style_steepness=column([STEEPNESS] * len(STYLES)),
        tempo=column(list(TEMPOS)),
        target=column(list(TARGETS)),
        speed=column(list(SPEEDS)),
        curve=index([curve for _, curve, _ in CURVES]),
        steepness=column([steepness for _, _, steepness in CURVES]),
        useful=column(useful),
        guess=column([math.log(classes)])[0],
        **_heads(rules, device),
    )


def _heads(rules: Rules, device: torch.device) -> dict[str, Tensor]:
    """Return relevance and placeholders over the values of all heads but the last in a row."""
    values = [(head, value) for head, size in enumerate(rules.head_sizes[:-1]) for value in range(size)]
    relevant = [[head in RELEVANT[operation] for head, _ in values] for operation in range(len(OPERATIONS))]
    placeholder = [value == PLACEHOLDERS[head] for head, value in values]
    return {"relevant": torch.tensor(relevant, device=device), "placeholder": torch.tensor(placeholder, device=device)}


HEALTHY = 0.7
"""Least gradient health with which a module may blend or become permanent."""
LEAST_IMPROVEMENT, LEAST_CONTRIBUTION, LEAST_RATIO = 0.005, 0.01, 0.1
"""Strict gates: accuracy gained while training, contribution, and the module's gradient beside the host's."""


def legal_slots(slots: Slots, accuracy: Tensor, rules: Rules) -> Tensor:
    """Return the slots at which each operation is legal, bool [6, S, N]; waiting is legal at any."""
    stage = slots.stage
    busy = any_of(stage, Stage.GERMINATED, Stage.TRAINING, *Stage.COOLING).any(0)
    live = any_of(stage, *Stage.LIVE)
    steady = slots.mode == HOLD
    advances = gates(slots, accuracy, rules) & (not rules.auto_advance)
    return torch.stack(
        (
            torch.ones_like(busy).expand_as(stage),
            (stage == Stage.DORMANT) & ~busy,
            any_of(stage, Stage.BLENDING, Stage.HOLDING) & steady,
            live & steady & (slots.age >= rules.min_age),
            (stage == Stage.HOLDING) & may_stay(slots, rules),
            advances,
        )
    )


def gates(slots: Slots, accuracy: Tensor, rules: Rules) -> Tensor:
    """Return the slots whose gate to the next stage is open, up to holding, bool [S, N].

    Args:
        slots: the slots.
        accuracy: accuracy of the last evaluation, [N].
        rules: rules of the world; with ``strict`` training must have improved the host.
    """
    trained = (slots.stage_age >= rules.min_training) & (slots.health >= HEALTHY)
    blended = (slots.target == 1) & (slots.alpha == 1) & (slots.mode == HOLD)
    if rules.strict:
        trained &= (accuracy - slots.born_at >= LEAST_IMPROVEMENT) & (slots.ratio >= LEAST_RATIO)
    stage = slots.stage
    return (stage == Stage.GERMINATED) | ((stage == Stage.TRAINING) & trained) | ((stage == Stage.BLENDING) & blended)


def may_stay(slots: Slots, rules: Rules) -> Tensor:
    """Return the slots whose gate to permanence is open, bool [S, N]: measured, healthy, and useful if strict."""
    result = (slots.measured >= 0) & (slots.health >= HEALTHY)
    return result & (slots.contribution >= LEAST_CONTRIBUTION) if rules.strict else result


def any_of(stage: Tensor, *stages: int) -> Tensor:
    """Return True where a slot is in one of the stages, bool [S, N]."""
    result = stage == stages[0]
    for each in stages[1:]:
        result = result | (stage == each)
    return result


def action_mask(legal: Tensor, rules: Rules) -> Tensor:
    """Return the values of each head that are legal in some action, bool [sum of head sizes, N].

    A head that can matter for no legal operation has one legal value, its placeholder.

    Args:
        legal: slots at which each operation is legal, bool [6, S, N].
        rules: rules of the world.
    """
    operations = legal.any(1)
    places = legal[Operation.WAIT + 1 :].any(0)
    first = torch.arange(len(places), device=places.device).unsqueeze(1) == 0
    places = places | first  # the first slot is the placeholder of waiting
    grows, blends = operations[Operation.GERMINATE], operations[Operation.GERMINATE] | operations[Operation.RETARGET]
    changes = operations[Operation.RETARGET] | operations[Operation.PRUNE]
    when = (grows, blends, grows, blends, changes, changes)
    heads = zip(when, rules.head_sizes[1:-1], PLACEHOLDERS[1:], strict=True)
    middle = [_open(where, size, placeholder) for where, size, placeholder in heads]
    return torch.cat((places, *middle, operations))


def head_mask(mask: Tensor, legal: Tensor, tables: Tables) -> Tensor:
    """Return the legal values of all heads but the last by operation, bool [6, sum of the others, N]: the slots at
    which it is legal, and one value, the placeholder, for each head that cannot matter for it.

    Args:
        mask: legal values of all heads, bool [sum of head sizes, N].
        legal: slots at which each operation is legal, bool [6, S, N].
        tables: constants of the world.
    """
    middle = mask[legal.shape[1] : len(tables.placeholder)]
    free = torch.cat((legal, middle.expand(len(OPERATIONS), -1, -1)), 1)
    return torch.where(tables.relevant.unsqueeze(-1), free, tables.placeholder.unsqueeze(-1))


def _open(where: Tensor, size: int, placeholder: int) -> Tensor:
    """All values in the worlds ``where``, elsewhere the placeholder alone, bool [size, N]."""
    return where | (torch.arange(size, device=where.device).unsqueeze(1) == placeholder)
