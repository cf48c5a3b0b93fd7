"""State of a batch of towns: tensors with the world axis last.

A is the number of agents, M of meters, K of kinds of affordance, S of slots in the layout (several per kind if a kind
has several places), N of worlds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from envs.toolkit.chance import Chance, shuffled_cells
from envs.toolkit.records import map_record
from envs.town.people import TRAITS, characters, purses
from envs.town.rules import DOWN, LEFT, RIGHT, UP, WAIT, Rules, Settings
from envs.town.tables import Tables

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
    """Drives of the learning agents in the last step, if they are requested (drives.py)."""

    felt: Tensor
    """Signal of each trait, [4, A, N]."""
    known: Tensor
    """Mask of the kinds of places that have served the agent in this life, bool [K, A, N]."""


class Nobody(NamedTuple):
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
    residents: Any = Nobody()
    """:class:`Residents`, or :class:`Nobody`."""
    drives: Any = Nobody()
    """:class:`Drives`, or :class:`Nobody`."""


def spawn(rules: Rules, tables: Tables, settings: Settings, chance: Chance) -> State:
    """Make fresh towns at hour 0, with places and agents on cells of their own."""
    agents, worlds = rules.population, len(settings.depletion)
    layout, x, y = place(rules, tables, settings, chance)
    nothing = torch.zeros(agents, worlds, dtype=torch.int32, device=x.device)
    no = torch.zeros_like(nothing, dtype=torch.bool)
    zero = torch.zeros_like(nothing, dtype=torch.float32)
    traits = chance.uniform(STREAM_TRAITS, NUM_TRAITS * agents, STREAM_WIDTH)
    meters = settings.initial.unsqueeze(1).expand(-1, agents, -1)
    if "money" in rules.meters:
        row = rules.meter_names.index("money")
        purse = purses(meters[row], settings.people).unsqueeze(0)
        meters = torch.cat((meters[:row], purse, meters[row + 1 :]))
    return State(
        meters=meters.contiguous(),
        agents=Agents(
            x=x,
            y=y,
            alive=~no,
            slot=nothing + rules.num_slots,
            progress=nothing,
            action=nothing + WAIT,
            refused=no,
            symbol=nothing,
            cues=nothing,
        ),
        traits=characters(traits.reshape(NUM_TRAITS, agents, worlds), settings.people),
        layout=layout,
        step=nothing[0],
        events=Events(acted=no, died=no, retired=no),
        tally=Tally(*[zero] * len(Tally._fields)),
        settings=settings._replace(people=Nobody()),
    )


def place(rules: Rules, tables: Tables, settings: Settings, chance: Chance) -> tuple[Layout, Tensor, Tensor]:
    """Draw the layout, and the agents' cells [A, N]."""
    agents = rules.population
    present = (settings.deployed.repeat_interleave(rules.places_per_kind, 0) > 0) & tables.exists
    if rules.random_layout:
        x, y = shuffled_cells(chance, STREAM_LAYOUT, agents + rules.num_places, settings.width, settings.height)
        places = Layout(x[agents:][tables.cell_index], y[agents:][tables.cell_index])
        x, y = x[:agents], y[:agents]
    else:
        places = Layout(tables.cell_x, tables.cell_y)
        luck = chance.uniform(STREAM_PLACES, 2 * agents, STREAM_WIDTH)
        x, y = (luck[:agents] * settings.width).int(), (luck[agents:] * settings.height).int()
    return map_record(lambda cell: torch.where(present, cell, ABSENT), places), x, y


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
    return works & (together.sum(0) > tables.company[kind])


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
