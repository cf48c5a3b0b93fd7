"""Agents as persons: given traits and initial money of those that learn, and the behavior of residents, which do not.

A resident is a scripted agent. A hidden character, drawn at birth, determines its goals by hour and mood of the day,
its errands, and the level of a need at which it serves it. Residents are the last agents of the record; their behavior
is looked up in tables, for all towns at once. They never die.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from envs.toolkit.chance import Chance
from envs.toolkit.records import map_record
from envs.town.rules import INTERACT, WAIT, Rules
from envs.town.state import (
    STREAM_CHARACTERS,
    STREAM_MOODS,
    STREAM_WIDTH,
    TRAITS,
    Residents,
    State,
    Tables,
    holds_place,
    hour,
    step_of,
    walk,
)

DRAWN = -1.0
"""Placeholder of a trait that is drawn at every birth: unlike NaN it is equal to itself."""
HAPPY, SAD = 0.9, 0.1
"""Values of a happy and a sad resident's meter ``mood``, constant over the day."""


class People(NamedTuple):
    """Traits and initial money of agents in fresh towns; A learning agents, N worlds."""

    traits: Tensor
    """Traits [4, A, N]; :data:`DRAWN` for those that are drawn."""
    money: Tensor
    """Initial money [A, N] in addition to the level's, as inherited."""


def anybody(num_agents: int, num_envs: int, device: torch.device) -> People:
    """Return people whose traits are all drawn and whose money is the level's."""
    unknown = torch.full((len(TRAITS), num_agents, num_envs), DRAWN, device=device)
    return People(unknown, torch.zeros(num_agents, num_envs, device=device))


def send(people: People, traits: Mapping[str, Any] | None, money: Any) -> None:
    """Overwrite ``people`` by the given values: numbers, or tensors that fit [N, A].

    Raises:
        ValueError: a trait is unknown, or a value is not a number in [0, 1] for each agent; nothing is changed then.
    """
    if not isinstance(traits, Mapping | None):
        raise ValueError(f"traits are {traits!r}: give them by name, such as traits={{greed: 0.3}}.")
    places = []
    for name, value in (traits or {}).items():
        if name not in TRAITS:
            raise ValueError(f"trait {name!r} is unknown: use {', '.join(TRAITS)}.")
        places.append((people.traits[TRAITS.index(name)], _rows(f"trait {name}", value, people, unknown=True)))
    if money is not None:
        places.append((people.money, _rows("money", money, people, unknown=False)))
    for place, value in places:
        place.copy_(value)


def _rows(what: str, value: Any, people: People, unknown: bool) -> Tensor:
    """Return a value for every agent, [A, N]."""
    agents, worlds = people.money.shape
    try:
        given = torch.as_tensor(value, dtype=torch.float32, device=people.money.device)
        given = given.broadcast_to(worlds, agents).T
    except (TypeError, ValueError, RuntimeError):
        shown = f"of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
        raise ValueError(
            f"{what} is {shown}: give a number, or a tensor that fits [{worlds}, {agents}] worlds and agents."
        ) from None
    fits = (given >= 0) & (given <= 1) | (given.isnan() & unknown)
    if not bool(fits.all()):
        raise ValueError(f"{what} is {given[~fits][0].item():g}: give a number in [0, 1].")
    return given.nan_to_num(DRAWN)


def characters(drawn: Tensor, people: People) -> Tensor:
    """Return traits [4, A, N]: the given ones of learning agents; those not given and those of residents as drawn."""
    count = people.traits.shape[1]
    born = torch.where(people.traits == DRAWN, drawn[:, :count], people.traits)
    return born if count == drawn.shape[1] else torch.cat((born, drawn[:, count:]), 1)


def purses(money: Tensor, people: People) -> Tensor:
    """Return initial money [A, N]: the level's plus the inherited."""
    count = people.money.shape[0]
    born = (money[:count] + people.money).clamp_max(1.0)
    return born if count == money.shape[0] else torch.cat((born, money[count:]))


# --- residents --------------------------------------------------------------------------------------------------------


def learners(state: State, rules: Rules) -> State:
    """Return the same towns with the learning agents only."""
    if not rules.num_residents:
        return state
    count = rules.num_agents
    return state._replace(
        meters=state.meters[:, :count],
        traits=state.traits[:, :count],
        agents=map_record(lambda value: value[:count], state.agents),
        events=map_record(lambda value: value[:count], state.events),
        tally=map_record(lambda value: value[:count], state.tally),
    )


def move_in(state: State, chance: Chance, rules: Rules, tables: Tables) -> State:
    """Draw every resident's character, among those in use, and its first mood."""
    luck = chance.uniform(STREAM_CHARACTERS, 2 * rules.num_residents, STREAM_WIDTH)
    drawn, happy = luck.unflatten(0, (2, rules.num_residents)).unbind(0)
    character = tables.residents.drawn[(drawn * len(rules.drawn)).long()]
    return feel(state._replace(residents=Residents(character, happy < 0.5)), rules)


def wake(state: State, chance: Chance, rules: Rules) -> State:
    """Draw each resident's mood of the day at midnight."""
    happy = chance.uniform(STREAM_MOODS, rules.num_residents, STREAM_WIDTH) < 0.5
    happy = torch.where(hour(state) == 0, happy, state.residents.happy)
    return feel(state._replace(residents=state.residents._replace(happy=happy)), rules)


def feel(state: State, rules: Rules) -> State:
    """Set the residents' meter to the mood of their day, whatever its other changes."""
    return _with_mood(state, torch.where(state.residents.happy, HAPPY, SAD), rules)


def pretend(state: State, rules: Rules, tables: Tables) -> State:
    """Return the towns with the residents' visible moods: a teacher shows whether its pupil comes nearer, a liar the
    opposite of what it would show otherwise.
    """
    of, character, shown = tables.residents, state.residents.character, state.residents.happy
    if rules.teaching:
        kind = of.teaches[character]
        pupils = torch.arange(rules.num_residents, device=kind.device) % rules.num_agents
        teaches = (kind < len(rules.kinds)) & state.agents.alive[pupils]
        shown = torch.where(teaches, comes_nearer(state, pupils, kind, rules), shown)
    return _with_mood(state, torch.where(shown ^ of.lies[character], HAPPY, SAD), rules)


def comes_nearer(state: State, who: Tensor, kind: Tensor, rules: Rules) -> Tensor:
    """True where an agent ``who`` [R] has just come nearer to the first place of its ``kind`` [R, N], or is there,
    bool [R, N].
    """
    x, y, action = (value[who] for value in (state.agents.x, state.agents.y, state.agents.action))
    place_x, place_y = first_place(state, kind, rules)
    dx, dy = step_of(action)
    distance = (place_x - x).abs() + (place_y - y).abs()
    nearer = distance < (place_x - x + dx).abs() + (place_y - y + dy).abs()
    return (nearer | (distance == 0)) & holds_place(place_x)


def _with_mood(state: State, mood: Tensor, rules: Rules) -> State:
    row, meters = rules.meter_names.index("mood"), state.meters
    mood = torch.cat((meters[row, : rules.num_agents], mood)).unsqueeze(0)
    return state._replace(meters=torch.cat((meters[:row], mood, meters[row + 1 :])))


def goals(state: State, timetable: Tensor, rules: Rules, tables: Tables) -> Tensor:
    """Kind of place that each resident pursues, int32 [R, N], K for none: the entry of its ``timetable`` [C, 2, 24] for
    this hour and mood, else the place for its most pressing need, else its next errand.
    """
    of, none = tables.residents, len(rules.kinds)
    character, happy = state.residents
    planned = timetable[character, happy.long(), hour(state).long()]
    meters = torch.where(tables.needs, state.meters[:, rules.num_agents :], torch.inf)
    lowest, need = meters.min(0)
    needed = torch.where(lowest < of.early[character], of.serves[need], none)
    done = state.tally.visits[rules.num_agents :].int()
    errand = of.errands[character, torch.remainder(done, of.num_errands[character]).long()]
    other = torch.where(needed < none, needed, errand)
    return torch.where(planned < none, planned, other)


def sought(state: State, rules: Rules, tables: Tables) -> Tensor:
    """Index of the meter that each resident pursues, int64 [R, N]: the one that the place of its next appointment
    today, or else its present goal, raises most; its most pressing need where it has no goal.
    """
    kind = goals(state, tables.residents.later, rules, tables)
    pressing = torch.where(tables.needs, state.meters[:, rules.num_agents :], torch.inf).argmin(0)
    return torch.where(kind < len(rules.kinds), tables.residents.raises[kind].long(), pressing)


def first_place(state: State, kind: Tensor, rules: Rules) -> tuple[Tensor, Tensor]:
    """Cell (x, y) of the first place of each ``kind`` [R, N], one that works if any does; an arbitrary cell where the
    kind is none.
    """
    slot = (kind * rules.places_per_kind).clamp_max(rules.num_slots - 1).long()
    x, y = (cell.gather(0, slot) for cell in state.layout)
    return x, y


def ways(state: State, rules: Rules, tables: Tables) -> tuple[Tensor, Tensor, Tensor]:
    """Return the offset (x, y) from each resident to its goal, the first place of a kind, and a mask of those with a
    goal, [R, N].
    """
    kind = goals(state, tables.residents.now, rules, tables)
    x, y = first_place(state, kind, rules)
    has_goal = (kind < len(rules.kinds)) & holds_place(x)
    return x - state.agents.x[rules.num_agents :], y - state.agents.y[rules.num_agents :], has_goal


def act(state: State, rules: Rules, tables: Tables) -> Tensor:
    """Compute the residents' actions, int32 [R, N]: go to their goal and use it, or wait."""
    dx, dy, has_goal = ways(state, rules, tables)
    action = walk(dx, dy, torch.full_like(dx, INTERACT))
    return torch.where(has_goal, action, WAIT).int()


def hurry(state: State, rules: Rules, tables: Tables) -> State:
    """Move faster residents on their way by their remaining cells after the moves of all agents, horizontally first."""
    dx, dy, has_goal = ways(state, rules, tables)
    going = has_goal & (state.agents.action[rules.num_agents :] < INTERACT)
    steps = torch.where(going, tables.residents.speed[state.residents.character] - 1, 0)
    across = torch.maximum(torch.minimum(dx, steps), -steps)
    steps = steps - across.abs()
    down = torch.maximum(torch.minimum(dy, steps), -steps)
    zero = torch.zeros_like(state.agents.x[: rules.num_agents])
    agents = state.agents
    return state._replace(
        agents=agents._replace(x=agents.x + torch.cat((zero, across)), y=agents.y + torch.cat((zero, down)))
    )
