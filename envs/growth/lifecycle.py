"""Operations on slots and the passage of modules from stage to stage."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from envs.growth.actions import Tables, any_of, gates, legal_slots
from envs.growth.rules import COSINE, DOWN, HOLD, SIGMOID, UP, Head, Operation, Rules, Stage
from envs.growth.state import Slots, dormant
from envs.toolkit.records import choose


class Effect(NamedTuple):
    """Result of the operations of a step."""

    slots: Slots
    operation: Tensor
    """Operation that took effect, int64 [N]: waiting where the action was illegal."""
    success: Tensor
    """True where the operation is the one that was asked for, bool [N]."""
    germinated: Tensor
    """Slots in which a module begins, bool [S, N]."""
    kept: Tensor
    """Slots that became permanent, bool [S, N]."""


def operate(slots: Slots, action: Tensor, accuracy: Tensor, rules: Rules, tables: Tables) -> Effect:
    """Carry out the action int64 [8, N] of each world where it is legal.

    ``accuracy`` is the last one measured, [N].
    """
    places = torch.arange(rules.slots, device=action.device).unsqueeze(1)
    operation = action[Head.OPERATION]
    legal = (legal_slots(slots, accuracy, rules) & (places == action[Head.SLOT])).any(1)  # [6, N]
    success = legal.gather(0, operation.unsqueeze(0))[0]
    effective = torch.where(success, operation, Operation.WAIT)
    at = places == action[Head.SLOT]

    def here(name: int) -> Tensor:
        return at & (effective == name)

    germinated, kept = here(Operation.GERMINATE), here(Operation.KEEP)
    slots = choose(germinated, _germinated(slots, action, accuracy, tables), slots)
    slots = choose(here(Operation.RETARGET), _retargeted(slots, action, tables), slots)
    slots = choose(here(Operation.PRUNE), _pruned(slots, action, tables), slots)
    slots = enter(slots, kept, Stage.PERMANENT, accuracy)
    slots = _pass_gates(slots, here(Operation.ADVANCE), accuracy)
    return Effect(slots, effective, success, germinated, kept)


def enter(slots: Slots, where: Tensor, stage: Tensor | int, accuracy: Tensor) -> Slots:
    """Put the slots ``where`` (bool [S, N]) in a stage."""
    return slots._replace(
        stage=torch.where(where, stage, slots.stage),
        stage_age=torch.where(where, 0.0, slots.stage_age),
        stage_began_at=torch.where(where, accuracy, slots.stage_began_at),
    )


def prune(slots: Slots, where: Tensor) -> Slots:
    """Switch off the modules ``where`` (bool [S, N]) at once."""
    off = slots._replace(
        stage=torch.full_like(slots.stage, Stage.PRUNED),
        alpha=torch.zeros_like(slots.alpha),
        target=torch.zeros_like(slots.alpha),
        mode=torch.full_like(slots.mode, HOLD),
        stage_age=torch.zeros_like(slots.stage_age),
        contribution=torch.zeros_like(slots.contribution),
        measured=torch.full_like(slots.measured, -1.0),
    )
    return choose(where, off, slots)


def _germinated(slots: Slots, action: Tensor, accuracy: Tensor, tables: Tables) -> Slots:
    """Return the slots as if a module germinated in each."""
    empty = dormant(torch.zeros_like(slots.alpha))
    style = action[Head.STYLE]

    def all_slots(value: Tensor) -> Tensor:
        return value.expand_as(slots.stage)

    return empty._replace(
        stage=torch.full_like(slots.stage, Stage.GERMINATED),
        blueprint=all_slots(action[Head.BLUEPRINT]),
        operator=all_slots(tables.style_operator[style]),
        curve=all_slots(tables.style_curve[style]),
        steepness=all_slots(tables.style_steepness[style]),
        target=all_slots(tables.target[action[Head.TARGET]]),
        tempo=all_slots(tables.tempo[action[Head.TEMPO]]),
        born_at=all_slots(accuracy),
        stage_began_at=all_slots(accuracy),
    )


def _retargeted(slots: Slots, action: Tensor, tables: Tables) -> Slots:
    """Return the slots as if alpha of each moved to another target; a holding one blends again if that is below 1."""
    target = tables.target[action[Head.TARGET]].expand_as(slots.alpha)
    returns = (slots.stage == Stage.HOLDING) & (target < 1)
    slots = slots._replace(
        operator=tables.style_operator[action[Head.STYLE]].expand_as(slots.operator),
        stage=torch.where(returns, Stage.BLENDING, slots.stage),
        stage_age=torch.where(returns, 0.0, slots.stage_age),
    )
    return _aim(slots, target, action, tables)


def _pruned(slots: Slots, action: Tensor, tables: Tables) -> Slots:
    """Return the slots as if each was pruned: at once, or by a blend to alpha 0 first."""
    fresh = any_of(slots.stage, Stage.GERMINATED, Stage.TRAINING)
    at_once = (tables.speed[action[Head.SPEED]] == 0) | (slots.alpha == 0) | fresh
    returns = slots.stage == Stage.HOLDING
    fading = slots._replace(
        stage=torch.where(returns, Stage.BLENDING, slots.stage), stage_age=torch.where(returns, 0.0, slots.stage_age)
    )
    fading = _aim(fading, torch.zeros_like(slots.alpha), action, tables)
    return prune(fading, at_once)


def _aim(slots: Slots, target: Tensor, action: Tensor, tables: Tables) -> Slots:
    """Let alpha move to ``target`` [S, N] with the speed and along the curve of the action; speed 0 is at once."""
    total = tables.speed[action[Head.SPEED]].expand_as(slots.alpha)
    at_once = (total == 0) | (target == slots.alpha)
    mode = torch.where(target > slots.alpha, UP, DOWN)
    return slots._replace(
        alpha=torch.where(at_once, target, slots.alpha),
        start=slots.alpha,
        target=target,
        mode=torch.where(at_once, HOLD, mode),
        curve=tables.curve[action[Head.CURVE]].expand_as(slots.curve),
        steepness=tables.steepness[action[Head.CURVE]].expand_as(slots.steepness),
        total=total,
        done=torch.zeros_like(slots.done),
    )


def tick(slots: Slots, accuracy: Tensor, rules: Rules) -> Slots:
    """Let a step pass: ages, blends, cooldowns, and gates that are passed by themselves."""
    present = slots.stage != Stage.DORMANT
    module = present & ~any_of(slots.stage, *Stage.COOLING)
    slots = slots._replace(
        stage_age=slots.stage_age + present,
        age=slots.age + module,
        measured=torch.where(slots.measured >= 0, slots.measured + 1, slots.measured),
    )
    slots = _blend(slots)
    faded = (slots.stage == Stage.BLENDING) & (slots.target == 0) & (slots.mode == HOLD)
    slots = prune(slots, faded)
    if rules.auto_advance:
        slots = _pass_gates(slots, gates(slots, accuracy, rules), accuracy)
    return _cool(slots, ~faded, rules)


def ease(time: Tensor, curve: Tensor, steepness: Tensor) -> Tensor:
    """Return the fraction of a blend that is done at ``time`` in [0, 1]: linear, cosine, or a logistic function scaled
    so that it runs from 0 to 1.
    """
    cosine = (1 - torch.cos(torch.pi * time)) / 2
    steep = steepness.clamp_min(0.1)
    low, high = 1 / (1 + torch.exp(steep / 2)), 1 / (1 + torch.exp(-steep / 2))
    logistic = (1 / (1 + torch.exp(-steep * (time - 0.5))) - low) / (high - low)
    return torch.where(curve == COSINE, cosine, torch.where(curve == SIGMOID, logistic, time))


def _blend(slots: Slots) -> Slots:
    """Move alpha by one step where it is on its way to a target."""
    moving = (slots.stage == Stage.BLENDING) & (slots.mode != HOLD)
    done = slots.done + moving
    arrived = moving & (done >= slots.total)
    time = (done / slots.total.clamp_min(1)).clamp(0, 1)
    alpha = slots.start + (slots.target - slots.start) * ease(time, slots.curve, slots.steepness)
    alpha = torch.where(arrived, slots.target, alpha)
    return slots._replace(
        done=done, alpha=torch.where(moving, alpha, slots.alpha), mode=torch.where(arrived, HOLD, slots.mode)
    )


def _pass_gates(slots: Slots, where: Tensor, accuracy: Tensor) -> Slots:
    """Put the slots ``where`` into the next stage: training, blending (which begins to move alpha) or holding."""
    begins = where & (slots.stage == Stage.TRAINING)
    slots = enter(slots, where, slots.stage + 1, accuracy)
    return slots._replace(
        start=torch.where(begins, slots.alpha, slots.start),
        mode=torch.where(begins, UP, slots.mode),
        total=torch.where(begins, slots.tempo, slots.total),
        done=torch.where(begins, 0.0, slots.done),
    )


def _cool(slots: Slots, where: Tensor, rules: Rules) -> Slots:
    """Let pruned slots pass through the embargo until they are empty; not those that were pruned in this step."""
    stage, age = slots.stage, slots.stage_age
    over = any_of(stage, Stage.PRUNED, Stage.RESETTING) | ((stage == Stage.EMBARGOED) & (age >= rules.embargo))
    leaves = where & (age >= 1) & over
    after = torch.where(stage == Stage.RESETTING, Stage.DORMANT, stage + 1)
    slots = slots._replace(stage=torch.where(leaves, after, stage), stage_age=torch.where(leaves, 0.0, age))
    return choose(leaves & (stage == Stage.RESETTING), dormant(torch.zeros_like(slots.alpha)), slots)
