"""State of a batch of towns, tensors with the world axis last, and the content of the rules as small tensors, for
look-ups by index on the device.

A is the number of agents, M of meters, K of kinds of affordance, S of slots in the layout (several per kind if a kind
has several places), N of worlds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from envs.town.rules import DOWN, HOURS, LEFT, RIGHT, UP, Character, Rules, Settings, visit

STREAM_WIDTH = 16
"""Width of every stream below, which has 16 * 256 numbers per step."""
STREAM_TRAITS, STREAM_PLACES, STREAM_CONTEST, STREAM_CUES, STREAM_START, STREAM_LAYOUT, STREAM_TRADES = (
    STREAM_WIDTH * number for number in range(7)
)
STREAM_CHARACTERS, STREAM_MOODS = (STREAM_WIDTH * number for number in (7, 8))
"""Streams of random numbers: traits, cells of agents in fixed layouts, contests, noise of cues, first step counts,
shuffling of cells, trading of cells; characters of residents and their moods.
"""
ABSENT = -1000
"""Coordinate of a slot that holds no place."""
TRAITS = ("neuroticism", "greed", "agreeableness", "curiosity")
"""Traits of a character, each in [0, 1], in the order of the state's rows."""
NUM_TRAITS = len(TRAITS)


class Agents(NamedTuple):
    """State of the agents, [A, N]."""

    x: Tensor
    y: Tensor
    alive: Tensor
    slot: Tensor
    """Slot of the running visit, S without one."""
    progress: Tensor
    """Number of steps of that visit so far."""
    action: Tensor
    """Last action (after illegal ones became waiting)."""
    refused: Tensor
    """True if the last request lost a contest or could not be paid."""
    symbol: Tensor
    """Symbol that the agent has posted to its family, 0 for none."""
    cues: Tensor
    """Bit set of the cues that hold, noise included, int32."""


class Layout(NamedTuple):
    """Cells of the places, int32 [S, N]; ``ABSENT`` where a slot is empty."""

    x: Tensor
    y: Tensor


class Events(NamedTuple):
    """Events of the last step, [A, N]."""

    acted: Tensor
    """True if the agent was alive when the step began."""
    died: Tensor
    retired: Tensor


class Tally(NamedTuple):
    """Counts over the running episode, float32 [A, N]."""

    lifetime: Tensor
    visits: Tensor
    """Number of completed visits."""
    illegal: Tensor
    contested: Tensor
    """Number of requests that lost a contest."""
    unpaid: Tensor
    """Number of requests that could not be paid."""


class Residents(NamedTuple):
    """Hidden state of the residents, [R, N]."""

    character: Tensor
    """Index of its character, int32."""
    happy: Tensor
    """Mood of the day, True for happy, bool."""


class Drives(NamedTuple):
    """Drives of the learning agents in the last step, if they are requested (scoring.py)."""

    felt: Tensor
    """Signal of each trait, [4, A, N]."""
    known: Tensor
    """Mask of the kinds of places that have served the agent in this life, bool [K, A, N]."""


class Empty(NamedTuple):
    """Empty record, in place of residents, drives or people that a town lacks."""


class State(NamedTuple):
    """State of a batch of towns; the A agents are the learning ones, then the residents."""

    meters: Tensor
    """Meters, [M, A, N]."""
    agents: Agents
    traits: Tensor
    """Traits, [4, A, N]."""
    layout: Layout
    step: Tensor
    """Number of steps, [N]; step % 24 is the hour."""
    events: Events
    tally: Tally
    settings: Settings
    """Settings from the beginning of the episode, without the people."""
    residents: Any = Empty()
    """:class:`Residents`, or :class:`Empty`."""
    drives: Any = Empty()
    """:class:`Drives`, or :class:`Empty`."""


def standing_on(state: State, rules: Rules) -> Tensor:
    """Slot of the place under each agent, int32 [A, N]; S where there is none."""
    here = (state.layout.x.unsqueeze(1) == state.agents.x) & (state.layout.y.unsqueeze(1) == state.agents.y)
    slots = torch.arange(rules.num_slots, dtype=torch.int32, device=state.step.device).reshape(-1, 1, 1)
    return torch.where(here, slots, rules.num_slots).amin(0)


def admits(slot: Tensor, kind: Tensor, state: State, rules: Rules, tables: Tables) -> Tensor:
    """True where a place admits its visitor, bool [A, N] for agents that stand in ``slot``, of ``kind``: some kinds
    require other agents there, and of some only the first slots work.
    """
    together = (slot.unsqueeze(1) == slot) & state.agents.alive.unsqueeze(1)  # [other, A, N]
    works = slot - kind * rules.places_per_kind < tables.working[kind]
    return works & (together.sum(0) > tables.others_required[kind])


def kind_of(slot: Tensor, rules: Rules) -> Tensor:
    """Kind of place of slots, in their shape and type; K for S, which is none."""
    return torch.div(slot, rules.places_per_kind, rounding_mode="floor")


def holds_place(x: Tensor) -> Tensor:
    """True where a slot holds a place, bool, from its x, or from the offset along x from an agent to it, which is far
    smaller than that to :data:`ABSENT` even on the widest map (``checks.LARGEST_SIDE``).
    """
    return x > ABSENT // 2


def hour(state: State) -> Tensor:
    """Hour of the day, float32 [N], 0 to 23."""
    step = state.step.float()
    return step - 24.0 * torch.floor(step / 24.0)


def is_open(kind: Tensor, state: State, tables: Tables) -> Tensor:
    """True where places of ``kind`` [A, N] are open now; defined for kind "none" too."""
    since = hour(state) - tables.opens[kind]
    since = torch.where(since < 0, since + 24.0, since)
    return since < tables.span[kind]


def step_of(action: Tensor) -> tuple[Tensor, Tensor]:
    """Displacement (dx, dy) [cells] of an action, int32; 0 for all but moves."""
    return (action == RIGHT).int() - (action == LEFT).int(), (action == DOWN).int() - (action == UP).int()


def walk(dx: Tensor, dy: Tensor, there: Tensor) -> Tensor:
    """Action toward an offset (dx, dy) [cells], horizontally first; ``there`` at the goal. All of one shape."""
    vertical = torch.where(dy < 0, UP, torch.where(dy > 0, DOWN, there))
    return torch.where(dx < 0, LEFT, torch.where(dx > 0, RIGHT, vertical))


# --- tables -----------------------------------------------------------------------------------------------------------


class ResidentTables(NamedTuple):
    """Tables of the C characters by index; character C belongs to no resident and does nothing. Kind K is "none"."""

    now: Tensor
    """Kind of place of the appointment by mood (happy last) and hour, int32 [C + 1, 2, 24]."""
    later: Tensor
    """The same as ``now``, but also in the hours before the appointment."""
    early: Tensor
    """Threshold below which a need is served, [C + 1]."""
    errands: Tensor
    """Kinds of the errands, int32 [C + 1, E]; their number, at least 1, is ``num_errands`` [C + 1]."""
    num_errands: Tensor
    speed: Tensor
    """Speed [cells per step], int32 [C + 1]."""
    teaches: Tensor
    """Kind of place that each teaches, int32 [C + 1]."""
    lies: Tensor
    """True for characters that lie, bool [C + 1]."""
    drawn: Tensor
    """Indices of the characters that residents may have, int32."""
    serves: Tensor
    """Kind of place that raises a meter most, int32 [M]."""
    raises: Tensor
    """Index of the need that a kind raises most, int32 [K + 1]; money is excluded."""


class NoTables(NamedTuple):
    """Empty tables of towns without residents."""


class Tables(NamedTuple):
    """Content of the rules by index, for look-ups on the device; kind K is "none"."""

    tick: Tensor
    """Change of meters by each step of a visit, its price included (the whole visit without multi_tick), [M, K + 1]."""
    completion: Tensor
    """Additional change of meters by the last step (0 without multi_tick), [M, K + 1]."""
    price: Tensor
    """Price per step (per visit without multi_tick), [K + 1]."""
    duration: Tensor
    """Number of steps of a visit (1 without multi_tick), int32 [K + 1]."""
    opens: Tensor
    span: Tensor
    """Opening hour ``opens`` and number of open hours ``span``, [K + 1] each."""
    capacity: Tensor
    """Number of seats per place, int32 [K + 1]."""
    others_required: Tensor
    """Number of other agents that must be there, int32 [K + 1]."""
    working: Tensor
    """Number of places that work, int32 [K + 1]."""
    count: Tensor
    """Number of places, int32 [K + 1]."""
    actions: Tensor
    """Change of meters by the actions themselves: effort and the content's own actions, [M, number of actions]."""
    depletion: Tensor
    """Loss of the meters per step, [M, 1, 1]."""
    needs: Tensor
    """True for meters that are needs that the town can serve, bool [M, 1, 1]."""
    exists: Tensor
    """True for slots that can hold a place, bool [S, 1]."""
    cell_index: Tensor
    """Index of a slot among the places, for random layouts, [S]."""
    cell_x: Tensor
    cell_y: Tensor
    """Cells of fixed layouts, int32 [S, 1] each."""
    residents: Any
    """:class:`ResidentTables`, or :class:`NoTables`."""


def make_tables(rules: Rules, device: torch.device) -> Tables:
    """Make the tables of ``rules`` on a device."""
    places = [rules.affordances[kind] for kind in rules.kinds]
    multi = rules.multi_tick
    money = rules.meter_names.index("money") if "money" in rules.meters else None
    price = [place.tick_price if multi else place.price for place in places] + [0.0]
    tick, completion = [], []
    for name in rules.meter_names:
        steps = [place.tick.get(name, 0.0) for place in places]
        last = [place.completion.get(name, 0.0) for place in places]
        if not multi:
            steps = [place.duration * value + end for place, value, end in zip(places, steps, last, strict=True)]
            last = [0.0] * len(places)
        tick.append([*steps, 0.0])
        completion.append([*last, 0.0])
    if money is not None:
        tick[money] = [value - cost for value, cost in zip(tick[money], price, strict=True)]
    effort = [
        [*[-meter.move] * 4, -meter.interact, 0.0, *(effects.get(name, 0.0) for effects in rules.actions.values())]
        for name, meter in rules.meters.items()
    ]
    seats = [rules.population if place.capacity is None else place.capacity for place in places]
    exists, cells = _slots(rules)

    def floats(values: list) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device)

    def whole(values: list) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=device)

    return Tables(
        tick=floats(tick),
        completion=floats(completion),
        price=floats(price),
        duration=whole([place.duration if multi else 1 for place in places] + [1]),
        opens=floats([place.hours[0] % HOURS for place in places] + [0]),
        span=floats([place.hours[1] - place.hours[0] if rules.clock else HOURS for place in places] + [0]),
        capacity=whole([*seats, 0]),
        others_required=whole([*(place.others_required for place in places), 0]),
        working=whole([*(place.count if place.working is None else place.working for place in places), 0]),
        count=whole([*(place.count for place in places), 1]),
        actions=floats(effort),
        depletion=floats([meter.depletion for meter in rules.meters.values()]).reshape(-1, 1, 1),
        needs=torch.tensor([name in rules.needs for name in rules.meter_names], device=device).reshape(-1, 1, 1),
        exists=torch.tensor(exists, device=device).unsqueeze(1),
        cell_index=(torch.tensor(exists, device=device).long().cumsum(0) - 1).clamp_min(0),
        cell_x=whole([x for x, _ in cells]).unsqueeze(1),
        cell_y=whole([y for _, y in cells]).unsqueeze(1),
        residents=_resident_tables(rules, device) if rules.num_residents else NoTables(),
    )


def _resident_tables(rules: Rules, device: torch.device) -> ResidentTables:
    characters, none = [*rules.characters.values(), Character()], len(rules.kinds)
    longest = max(1, *(len(character.errands) for character in characters))

    def number(kind: str | None) -> int:
        return none if kind is None else rules.kinds.index(kind)

    def whole(values: list) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=device)

    def timetable(character: Character, start: int) -> list[list[int]]:
        days = (number(character.sad), number(character.happy))
        return [[kind if start <= hour < character.hours[1] else none for hour in range(HOURS)] for kind in days]

    gains = torch.tensor([[visit(rules.affordances[kind], name) for kind in rules.kinds] for name in rules.meter_names])
    there = torch.tensor([kind in rules.deployed for kind in rules.kinds])
    needs = torch.tensor([meter.need for meter in rules.meters.values()]).unsqueeze(1)
    raises = torch.where(needs, gains, -torch.inf).argmax(0)
    errands = [[number(kind) for kind in character.errands] or [none] for character in characters]
    return ResidentTables(
        now=whole([timetable(character, character.hours[0]) for character in characters]),
        later=whole([timetable(character, 0) for character in characters]),
        early=torch.tensor([character.early for character in characters], device=device),
        errands=whole([kinds + kinds[:1] * (longest - len(kinds)) for kinds in errands]),
        num_errands=whole([len(kinds) for kinds in errands]),
        speed=whole([character.speed for character in characters]),
        teaches=whole([number(character.teaches) for character in characters]),
        lies=torch.tensor([character.lies for character in characters], device=device),
        drawn=whole(list(rules.drawn)),
        serves=torch.where(there, gains, -torch.inf).argmax(1).int().to(device),
        raises=torch.cat((raises, raises.new_zeros(1))).int().to(device),
    )


def _slots(rules: Rules) -> tuple[list[bool], list[list[int]]]:
    """Return for each slot of the layout a flag that it can hold a place, and its cell in a fixed layout."""
    exists, cells = [], []
    for kind in rules.kinds:
        count = rules.affordances[kind].count if kind in rules.deployed else 0
        given = rules.affordances[kind].positions if count else None
        exists += [slot < count for slot in range(rules.places_per_kind)]
        cells += [*(given or [[0, 0]] * count), *[[0, 0]] * (rules.places_per_kind - count)]
    return exists, cells
