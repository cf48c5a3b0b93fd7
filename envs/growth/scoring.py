"""Rewards, ends, statistics and events of the growth world."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from envs.growth.actions import Tables, any_of
from envs.growth.rules import STAGES, Operation, Rules, Stage
from envs.growth.state import Measures, Slots, State, Tally

POTENTIALS = {Stage.GERMINATED: 1.0, Stage.TRAINING: 2.0, Stage.BLENDING: 3.5, Stage.HOLDING: 5.5, Stage.PERMANENT: 6.0}
"""Potential of a slot by its stage; 0 for all others."""


def rent(slots: Slots, host_parameters: int, tables: Tables) -> Tensor:
    """Compute ``ln(1 + modules / host)``, the logarithmic size of what was grown, [N]. A module counts from blending
    on, by alpha times its parameters.
    """
    present = any_of(slots.stage, *Stage.JOINED)
    size = (tables.parameters.gather(1, slots.blueprint) * slots.alpha * present).sum(0)
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


def contribution(slots: Slots) -> Tensor:
    """Return the sum of the accuracies lost without each module alone, [N]."""
    return (slots.contribution * any_of(slots.stage, *Stage.JOINED)).sum(0)


def rewarded(state: State, rules: Rules) -> State:
    """Return the state with the reward of its last step, which is of one of three kinds.

    ``net``: gain over the twin, minus rent, minus a cost for each operation; at the end the gain once more.
    ``contribution``: the same with the sum of the modules' contributions in place of the gain.
    ``sparse``: at the end alone, the accuracy with permanent modules minus rent.

    A rollback forfeits what was earned: the return of its episode is ``rules.reward_rollback``.
    """
    tally, measures, last = state.tally, state.measures, ends(state, rules)[0]
    if rules.reward == "sparse":
        reward = torch.where(last, rules.reward_final * measures.committed - rules.reward_rent * tally.rent, 0.0)
    else:
        gained = gain(measures) if rules.reward == "net" else contribution(state.slots)
        cost = rules.reward_rent * tally.rent + rules.reward_operation * (tally.operation != Operation.WAIT)
        reward = rules.reward_gain * gained - cost + torch.where(last, rules.reward_final * gained, 0.0)
    reward = torch.where(state.guard.panics, rules.reward_rollback - tally.earned, reward)
    return state._replace(tally=tally._replace(reward=reward, earned=tally.earned + reward))


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
    tally, measures = state.tally, state.measures
    return {
        "accuracy": measures.accuracy,
        "committed_accuracy": measures.committed,
        "gain": gain(measures),
        "contribution": contribution(state.slots),
        "dependence": measures.accuracy - measures.bare - gain(measures),
        "germinated": tally.germinated,
        "pruned": tally.pruned,
        "permanent": tally.kept,
        "operations": tally.operations,
        "rent": tally.rent_total,
        "rollbacks": tally.rollbacks,
        "useful": useful[state.level],
    }


def counted(tally: Tally, before: Slots, after: Slots, operation: Tensor, success: Tensor, rent_now: Tensor) -> Tally:
    """Count what happened to the slots in a step; ``rent_now`` is the rent [N]."""
    live = any_of(before.stage, *Stage.LIVE)
    lost = live & ~any_of(after.stage, Stage.GERMINATED, Stage.TRAINING, *Stage.JOINED)
    begun = (before.stage == Stage.DORMANT) & (after.stage != Stage.DORMANT)
    return tally._replace(
        operation=operation,
        success=success.float(),
        germinated=tally.germinated + begun.sum(0),
        pruned=tally.pruned + lost.sum(0),
        kept=tally.kept + ((before.stage != Stage.PERMANENT) & (after.stage == Stage.PERMANENT)).sum(0),
        operations=tally.operations + (operation != Operation.WAIT),
        rent=rent_now,
        rent_total=tally.rent_total + rent_now,
    )


class Event(NamedTuple):
    """Event of an episode."""

    step: int
    """Step in which it happened, from 1 on."""
    kind: str
    """``germinated``, ``stage``, ``permanent``, ``pruned``, or ``rollback`` of the whole host."""
    slot: int | None = None
    before: str | None = None
    """Stage of the slot before the step."""
    after: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return what there is to say of it, as plain values."""
        return {name: value for name, value in self._asdict().items() if value is not None}


def events(state: State, world: int) -> list[Event]:
    """Return the events of a world's running episode, in the order of time."""
    stages = state.course.stage[: int(state.step[world]), :, world].tolist()
    found, before = [], [Stage.DORMANT] * state.slots.stage.shape[0]
    for step, present in enumerate(stages, 1):
        for slot, (old, new) in enumerate(zip(before, present, strict=True)):
            if new not in (old, -1) and old != -1:
                found.append(Event(step, _kind(old, new), slot, STAGES[old], STAGES[new]))
        before = present
    if bool(state.guard.panics[world]):
        found.append(Event(int(state.step[world]), "rollback"))
    return found


def _kind(before: int, after: int) -> str:
    if before == Stage.DORMANT:
        return "germinated"
    if after in Stage.COOLING and before not in Stage.COOLING:
        return "pruned"
    return "permanent" if after == Stage.PERMANENT else "stage"
