"""Events of an episode: what happened to the modules of a host, and when."""

from __future__ import annotations

from typing import Any, NamedTuple

from envs.growth.rules import DORMANT, EMBARGOED, PERMANENT, PRUNED, RESETTING, STAGES
from envs.growth.state import State

COOLING = (PRUNED, EMBARGOED, RESETTING)


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
    found, before = [], [DORMANT] * state.slots.stage.shape[0]
    for step, present in enumerate(stages, 1):
        for slot, (old, new) in enumerate(zip(before, present, strict=True)):
            if new not in (old, -1) and old != -1:
                found.append(Event(step, _kind(old, new), slot, STAGES[old], STAGES[new]))
        before = present
    if bool(state.guard.panics[world]):
        found.append(Event(int(state.step[world]), "rollback"))
    return found


def _kind(before: int, after: int) -> str:
    if before == DORMANT:
        return "germinated"
    if after in COOLING and before not in COOLING:
        return "pruned"
    return "permanent" if after == PERMANENT else "stage"
