"""Protection of hosts from numerical damage: vital signs, snapshots, rollback on the device."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from envs.growth.legality import any_of
from envs.growth.lifecycle import prune
from envs.growth.rules import BLENDING, GERMINATED, HOLDING, PERMANENT, TRAINING, Rules
from envs.growth.state import Adam, Guard, Modules, State, Weights
from envs.toolkit.records import choose, map_record

GUESSING_SHARE, GUESSING_WIDTH = 0.6, 0.065
"""A host guesses at random if its loss is within this fraction of the guess's, and was below that one before."""
ABSOLUTE, DEVIATIONS, MULTIPLE = 5.0, 6.0, 3.0
"""A loss diverges above all three: multiples of the random guess's, standard deviations above the mean, and multiples
of the mean of the host's own history.
"""
PATIENCE = 2
"""Number of divergent checks in a row that roll a host back."""


def panics(loss: Tensor, guard: Guard, classes: int) -> tuple[Tensor, Tensor]:
    """Return the hosts to roll back and those whose loss is anomalous, bool [N] each."""
    guess = math.log(classes)
    full = guard.count >= len(guard.losses)
    mean = guard.losses.mean(0)
    deviation = torch.sqrt((guard.losses - mean).square().mean(0))
    broken = ~torch.isfinite(loss)
    guessing = full & (mean < GUESSING_SHARE * guess) & ((loss - guess).abs() < GUESSING_WIDTH * guess)
    diverged = full & (loss > ABSOLUTE * guess) & (loss > mean + DEVIATIONS * deviation) & (loss > MULTIPLE * mean)
    lasting = diverged & (guard.streak >= PATIENCE - 1)
    return broken | guessing | lasting, broken | guessing | diverged


def govern(state: State, loss: Tensor, kept: Tensor, classes: int, rules: Rules) -> State:
    """Check every host; roll back those that are damaged, and take snapshots of healthy ones.

    Args:
        state: the state after training.
        loss: loss of the present configuration, [N].
        kept: slots that became permanent in this step, bool [S, N].
        classes: number of classes.
        rules: rules of the world.
    """
    guard = state.guard
    panic, anomalous = panics(loss, guard, classes)
    panic = panic & rules.governor
    healthy = ~anomalous
    losses = torch.where(healthy, torch.cat((guard.losses[1:], loss.unsqueeze(0))), guard.losses)
    due = healthy & ((torch.remainder(state.step, rules.snapshot_every) == 0) | kept.any(0))
    guard = guard._replace(
        losses=losses,
        count=guard.count + healthy,
        streak=torch.where(healthy, 0.0, guard.streak + 1),
        saved=choose(due, state.weights, guard.saved),
        saved_permanent=torch.where(due, state.slots.stage == PERMANENT, guard.saved_permanent),
        panics=panic,
    )
    return choose(panic, rolled_back(state._replace(guard=guard)), state._replace(guard=guard))


def rolled_back(state: State) -> State:
    """Return the hosts and permanent modules of the last snapshot, with live modules pruned and moments cleared."""
    slots, saved = state.slots, state.guard.saved
    live = any_of(slots.stage, GERMINATED, TRAINING, BLENDING, HOLDING)
    known = (slots.stage == PERMANENT) & state.guard.saved_permanent
    pairs = zip(saved.modules, state.weights.modules, strict=True)
    modules = Modules(*(_where(known, old, _finite(new)) for old, new in pairs))
    zeros = map_record(torch.zeros_like, state.weights)
    adam = Adam(zeros, zeros, torch.zeros_like(state.step), torch.zeros_like(slots.alpha))
    return state._replace(weights=Weights(saved.host, modules), adam=adam, slots=prune(slots, live))


def _where(slots: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Select by slots [S, N] in weights [S, ..., N]."""
    return torch.where(slots.view(len(slots), *[1] * (new.ndim - 2), -1), new, old)


def _finite(value: Tensor) -> Tensor:
    return torch.nan_to_num(value, 0.0, 0.0, 0.0)
