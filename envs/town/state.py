"""What a batch of towns is at one moment: tensors with the world axis last.

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
"""Every stream below may hand out 16 * 256 numbers per step."""
STREAM_TRAITS, STREAM_PLACES, STREAM_CONTEST, STREAM_CUES, STREAM_START, STREAM_LAYOUT, STREAM_TRADES = (
    STREAM_WIDTH * number for number in range(7)
)
STREAM_CHARACTERS, STREAM_MOODS = (STREAM_WIDTH * number for number in (7, 8))
"""Streams of chance: traits, cells of agents in fixed layouts, contests, noise of cues, first step counts, the
shuffling of cells, the trading of cells; characters of residents and their moods.
"""
ABSENT = -1000
"""Coordinate of a slot that holds no place."""
NUM_TRAITS = len(TRAITS)


class Agents(NamedTuple):
    """The agents, [A, N]."""

    x: Tensor
    y: Tensor
    alive: Tensor
    slot: Tensor
    """Slot of the visit under way, S without one."""
    progress: Tensor
    """Steps of that visit."""
    action: Tensor
    """The action last taken (after illegal ones became waiting)."""
    refused: Tensor
    """The last request lost a contest or could not be paid."""
    symbol: Tensor
    """What the agent has on the family's board, 0 for nothing."""
    cues: Tensor
    """Bit set of the cues that hold, noise included, int32."""


class Layout(NamedTuple):
    """Cells of the places, int32 [S, N]; ``ABSENT`` where a slot is empty."""

    x: Tensor
    y: Tensor


class Events(NamedTuple):
    """What the last step brought, [A, N]."""

    acted: Tensor
    """Was alive when the step began."""
    died: Tensor
    retired: Tensor


class Tally(NamedTuple):
    """What is counted over the running episode, float32 [A, N]."""

    lifetime: Tensor
    visits: Tensor
    """Completed visits."""
    illegal: Tensor
    contested: Tensor
    """Requests that lost a contest."""
    unpaid: Tensor
    """Requests that could not be paid."""


class Residents(NamedTuple):
    """What nobody sees of the residents, [R, N]."""

    character: Tensor
    """Number of its kind, int32."""
    happy: Tensor
    """Its mood of the day, bool."""


class Drives(NamedTuple):
    """What agents that learn felt in the last step, where somebody wants to know (drives.py)."""

    felt: Tensor
    """By trait, [4, A, N]."""
    known: Tensor
    """Kinds of places that have served it in this life, bool [K, A, N]."""


class Nobody(NamedTuple):
    """Where there are none."""


class State(NamedTuple):
    """A batch of towns; the A agents are those that learn and then the residents."""

    meters: Tensor
    """[M, A, N]."""
    agents: Agents
    traits: Tensor
    """[4, A, N]."""
    layout: Layout
    step: Tensor
    """[N]; step % 24 is the hour."""
    events: Events
    tally: Tally
    settings: Settings
    """As they were when the episode began, but for the people."""
    residents: Any = Nobody()
    """:class:`Residents`, or :class:`Nobody`."""
    drives: Any = Nobody()
    """:class:`Drives`, or :class:`Nobody`."""


def spawn(rules: Rules, tables: Tables, settings: Settings, chance: Chance) -> State:
    """Fresh towns: places and agents on cells of their own, at hour 0."""
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
    """The layout, and the agents' cells [A, N]."""
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
    """Whether places let their visitors in, bool [A, N] for agents who stand in ``slot``, of ``kind``: some kinds want
    company, and of some only the first slots work.
    """
    together = (slot.unsqueeze(1) == slot) & state.agents.alive.unsqueeze(1)  # [other, A, N]
    works = slot - kind * rules.places_per_kind < tables.working[kind]
    return works & (together.sum(0) > tables.company[kind])


def kind_of(slot: Tensor, rules: Rules) -> Tensor:
    """Kind of place that slots are for, of any shape and of their type; K for S, which is none."""
    return torch.div(slot, rules.places_per_kind, rounding_mode="floor")


def holds_place(x: Tensor) -> Tensor:
    """Whether slots hold a place, bool: by their x, or by the way along x from an agent to them, which is far shorter
    than that to :data:`ABSENT` even on the widest map (``checks.LARGEST_SIDE``).
    """
    return x > ABSENT // 2


def hour(state: State) -> Tensor:
    """Hour of the day, float32 [N], 0 to 23."""
    step = state.step.float()
    return step - 24.0 * torch.floor(step / 24.0)


def is_open(kind: Tensor, state: State, tables: Tables) -> Tensor:
    """Whether places of ``kind`` [A, N] are open now; there is always an answer for "none"."""
    since = hour(state) - tables.opens[kind]
    since = torch.where(since < 0, since + 24.0, since)
    return since < tables.span[kind]


def step_of(action: Tensor) -> tuple[Tensor, Tensor]:
    """The cells (dx, dy) that an action goes, int32; 0 for all but moves."""
    return (action == RIGHT).int() - (action == LEFT).int(), (action == DOWN).int() - (action == UP).int()


def walk(dx: Tensor, dy: Tensor, there: Tensor) -> Tensor:
    """The action that leads over so many cells, across first; ``there`` where none is left. All of one shape."""
    vertical = torch.where(dy < 0, UP, torch.where(dy > 0, DOWN, there))
    return torch.where(dx < 0, LEFT, torch.where(dx > 0, RIGHT, vertical))
