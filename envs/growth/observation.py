"""Observation of the agent: measures of the host, and for each slot its module's stage, blend, use and gradients."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from envs.growth.actions import any_of
from envs.growth.rules import (
    BLENDING,
    BLUEPRINTS,
    DORMANT,
    HOLDING,
    OPERATIONS,
    PERMANENT,
    SPEEDS,
    STAGES,
    TRAINING,
    Rules,
)
from envs.growth.state import RECENT, State

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
        *(f"holds {blueprint.name}" for blueprint in BLUEPRINTS),
        *("alpha", "alpha target", "alpha mode", "blend total", "blend done", "blend left", "tempo", "operator"),
        *("contribution", "contribution change", "contribution is known", "accuracy since germination"),
        *("gradient norm", "gradient health", "earlier gradient health", "gradient ratio"),
        *("age in stage", "age"),
    ]
    return (*host, *(f"slot {number} {word}" for number in range(rules.slots) for word in slot))


def observe(state: State, rules: Rules) -> Tensor:
    """Compute the observation, float32 [N, components] within [-1, 1]; -1 stands for what is not known."""
    rows = [*_host(state, rules)]
    slots = _slots(state, rules)  # [words, S, N]
    columns = torch.cat((torch.stack(rows), slots.transpose(0, 1).flatten(0, 1)))
    return columns.T.clamp(-1, 1).contiguous()


def _host(state: State, rules: Rules) -> list[Tensor]:
    measures, slots, books = state.measures, state.slots, state.books
    guess = math.log(state.weights.host.classifier.shape[1])

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
        *(share(TRAINING), share(BLENDING), share(HOLDING, PERMANENT), books.success),
        *((books.operation == operation).float() for operation in range(len(OPERATIONS))),
    ]


def _slots(state: State, rules: Rules) -> Tensor:
    """Compute what is seen of each slot, [words, S, N]; all but the stage is 0 for an empty one."""
    slots, longest, time = state.slots, max(SPEEDS), rules.max_steps
    present = (slots.stage != DORMANT).float()
    stages = [(slots.stage == stage).float() for stage in range(len(STAGES))]
    words = [
        *((slots.blueprint == index).float() for index in range(len(BLUEPRINTS))),
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
