"""Legal actions of the growth world and the gates of its lifecycle, as masks."""

from __future__ import annotations

import torch
from torch import Tensor

from envs.growth.rules import (
    BLENDING,
    BLUEPRINTS,
    CURVES,
    DORMANT,
    EMBARGOED,
    GERMINATE,
    GERMINATED,
    HOLD,
    HOLDING,
    PLACEHOLDERS,
    PRUNE,
    PRUNED,
    RESETTING,
    RETARGET,
    SPEEDS,
    STYLES,
    TARGETS,
    TEMPOS,
    TRAINING,
    WAIT,
    Rules,
)
from envs.growth.state import Slots
from envs.growth.tables import Tables

HEALTHY = 0.7
"""Least gradient health with which a module may blend or become permanent."""
LEAST_IMPROVEMENT, LEAST_CONTRIBUTION, LEAST_RATIO = 0.005, 0.01, 0.1
"""Strict gates: accuracy gained while training, contribution, and the module's gradient beside the host's."""


def legal_slots(slots: Slots, accuracy: Tensor, rules: Rules) -> Tensor:
    """Return the slots at which each operation is legal, bool [6, S, N]; waiting is legal at any."""
    stage = slots.stage
    busy = any_of(stage, GERMINATED, TRAINING, PRUNED, EMBARGOED, RESETTING).any(0)
    live = any_of(stage, GERMINATED, TRAINING, BLENDING, HOLDING)
    steady = slots.mode == HOLD
    advances = gates(slots, accuracy, rules) & (not rules.auto_advance)
    return torch.stack(
        (
            torch.ones_like(busy).expand_as(stage),
            (stage == DORMANT) & ~busy,
            any_of(stage, BLENDING, HOLDING) & steady,
            live & steady & (slots.age >= rules.min_age),
            (stage == HOLDING) & may_stay(slots, rules),
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
    return (stage == GERMINATED) | ((stage == TRAINING) & trained) | ((stage == BLENDING) & blended)


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


def action_mask(legal: Tensor) -> Tensor:
    """Return the values of each head that are legal in some action, bool [sum of head sizes, N].

    A head that can matter for no legal operation has one legal value, its placeholder.

    Args:
        legal: slots at which each operation is legal, bool [6, S, N].
    """
    operations = legal.any(1)
    places = legal[WAIT + 1 :].any(0)
    first = torch.arange(len(places), device=places.device).unsqueeze(1) == 0
    places = places | first  # the first slot is the placeholder of waiting
    grows, blends = operations[GERMINATE], operations[GERMINATE] | operations[RETARGET]
    changes = operations[RETARGET] | operations[PRUNE]
    when = (grows, blends, grows, blends, changes, changes)
    sizes = (len(BLUEPRINTS), len(STYLES), len(TEMPOS), len(TARGETS), len(SPEEDS), len(CURVES))
    middle = [_open(where, size, index) for where, size, index in zip(when, sizes, PLACEHOLDERS[1:], strict=True)]
    return torch.cat((places, *middle, operations))


def conditioned_mask(mask: Tensor, legal: Tensor, operation: Tensor, tables: Tables) -> Tensor:
    """Return the mask of the heads given the operation: the slots at which it is legal, and one value, the placeholder,
    for each head that cannot matter for it.

    Args:
        mask: legal values, bool [N, sum of head sizes].
        legal: slots at which each operation is legal, bool [N, 6, S].
        operation: int64 [N].
        tables: constants of the world.
    """
    relevant, number = tables.relevant[operation], torch.arange(len(operation), device=operation.device)
    places = legal[number, operation]
    free = torch.cat((places, mask[:, places.shape[1] :]), 1)
    return torch.where(relevant, free, tables.placeholder)


def _open(where: Tensor, size: int, placeholder: int) -> Tensor:
    """All values in the worlds ``where``, elsewhere the placeholder alone, bool [size, N]."""
    return where | (torch.arange(size, device=where.device).unsqueeze(1) == placeholder)
