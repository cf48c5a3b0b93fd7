"""Rewards, ends and statistics of the growth world."""

from __future__ import annotations

import torch
from torch import Tensor

from envs.growth.actions import Tables, any_of
from envs.growth.rules import BLENDING, DORMANT, GERMINATED, HOLDING, PERMANENT, TRAINING, WAIT, Rules
from envs.growth.state import Books, Measures, Slots, State

POTENTIALS = {GERMINATED: 1.0, TRAINING: 2.0, BLENDING: 3.5, HOLDING: 5.5, PERMANENT: 6.0}
"""Potential of a slot by its stage; 0 for all others."""


def rent(slots: Slots, host_parameters: int, tables: Tables) -> Tensor:
    """Compute ``ln(1 + modules / host)``, the logarithmic size of what was grown, [N]. A module counts from blending
    on, by alpha times its parameters.
    """
    present = any_of(slots.stage, BLENDING, HOLDING, PERMANENT)
    size = (tables.parameters[slots.blueprint] * slots.alpha * present).sum(0)
    return torch.log(1 + size / host_parameters)


def potential(slots: Slots) -> Tensor:
    """Compute the mean of all slots' potentials as a fraction of the largest one, [N]: for potential-based shaping."""
    result = torch.zeros_like(slots.alpha)
    for stage, value in POTENTIALS.items():
        result = torch.where(slots.stage == stage, value, result)
    return result.mean(0) / max(POTENTIALS.values())


def gain(measures: Measures) -> Tensor:
    """Return the accuracy beyond the twin's, [N]."""
    return measures.accuracy - measures.twin


def rewarded(state: State, rules: Rules) -> State:
    """Return the state with the reward of its last step, which is of one of two kinds.

    ``net``: gain over the twin, minus rent, minus a cost for each operation; at the end the gain once more.
    ``sparse``: at the end alone, the accuracy with permanent modules minus rent.

    A rollback forfeits what was earned: the return of its episode is ``rules.reward_rollback``.
    """
    books, measures, last = state.books, state.measures, ends(state, rules)[0]
    if rules.reward == "sparse":
        reward = torch.where(last, rules.reward_final * measures.committed - rules.reward_rent * books.rent, 0.0)
    else:
        gained = gain(measures)
        cost = rules.reward_rent * books.rent + rules.reward_operation * (books.operation != WAIT)
        reward = rules.reward_gain * gained - cost + torch.where(last, rules.reward_final * gained, 0.0)
    reward = torch.where(state.guard.panics, rules.reward_rollback - books.earned, reward)
    return state._replace(books=books._replace(reward=reward, earned=books.earned + reward))


def ends(state: State, rules: Rules) -> tuple[Tensor, Tensor]:
    """Return (terminated, truncated), bool [N] each: time is up, which is observed, or the host was rolled back."""
    over = (state.step >= rules.max_steps) | state.guard.panics
    return over, torch.zeros_like(over)


def statistics(state: State, useful: Tensor) -> dict[str, Tensor]:
    """Return the statistics of the running episodes, float32 [N].

    Args:
        state: the state.
        useful: number of modules that pay, by the hidden level, float32 [levels].
    """
    books, measures, slots = state.books, state.measures, state.slots
    active = any_of(slots.stage, BLENDING, HOLDING, PERMANENT)
    return {
        "accuracy": measures.accuracy,
        "committed_accuracy": measures.committed,
        "gain": gain(measures),
        "contribution": (slots.contribution * active).sum(0),
        "dependence": measures.accuracy - measures.bare - gain(measures),
        "germinated": books.germinated,
        "pruned": books.pruned,
        "permanent": books.kept,
        "operations": books.operations,
        "rent": books.rent_total,
        "rollbacks": books.rollbacks,
        "useful": useful[state.level],
    }


def counted(books: Books, before: Slots, after: Slots, operation: Tensor, success: Tensor, rent_now: Tensor) -> Books:
    """Count what happened to the slots in a step; ``rent_now`` is the rent [N]."""
    live = any_of(before.stage, GERMINATED, TRAINING, BLENDING, HOLDING)
    lost = live & ~any_of(after.stage, GERMINATED, TRAINING, BLENDING, HOLDING, PERMANENT)
    begun = (before.stage == DORMANT) & (after.stage != DORMANT)
    return books._replace(
        operation=operation,
        success=success.float(),
        germinated=books.germinated + begun.sum(0),
        pruned=books.pruned + lost.sum(0),
        kept=books.kept + ((before.stage != PERMANENT) & (after.stage == PERMANENT)).sum(0),
        operations=books.operations + (operation != WAIT),
        rent=rent_now,
        rent_total=books.rent_total + rent_now,
    )
