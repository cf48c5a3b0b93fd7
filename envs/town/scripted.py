"""Scripted policies: a greedy one that looks one visit ahead, the same under fog, and constant actions as lower bounds.

They read the game's record (all places, true meters), not the observation: baselines, sources of data and tests of the
rules, not fair opponents. Under fog, unknown places are believed to be at the cell to be explored next (the free-space
assumption, that the unknown is as hoped: S. Koenig, C. Tovey and Y. Smirnov, "Performance bounds for planning in
unknown terrain", 2003), so that exploration is a walk to a believed place, weighed by the greedy policy like any other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from tensordict import TensorDictBase
from torch import Tensor
from typing_extensions import override

from envs.base.players import Player
from envs.base.world import GROUP
from envs.toolkit.records import map_record
from envs.town.rules import HOURS, INTERACT, UP, WAIT, Rules
from envs.town.state import ABSENT, Layout, State, Tables, holds_place, hour, kind_of, standing_on, walk

FLOOR = 0.05
"""Constant added to a meter before its logarithm is taken: a nearly empty meter counts most."""
MONEY = 0.5
"""Weight of money relative to a need."""


class GreedyPlayer(Player):
    """Policy that pursues the visit with the largest gain in the logarithms of its meters per step of travel, waiting
    and staying.

    Args:
        env: the Town whose record it reads; it must be the one that is stepped.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env, (GROUP, "alive"))

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the action of every agent."""
        state, rules = self.env.state, self.env.rules
        action = greedy_action(state, rules, self.env.tables)
        return tensordict.set((GROUP, "action"), all_heads(action, rules))


class ConstantPlayer(Player):
    """Policy that always takes one action, such as ``rest`` or ``wait``; it waits where that is not enabled."""

    def __init__(self, env: Any, action: str) -> None:
        super().__init__(env, (GROUP, "alive"))
        self.choice = env.rules.action_names.index(action) if action in env.rules.enabled else WAIT

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the action of every agent."""
        action = torch.full_like(tensordict.get((GROUP, "alive")).T, self.choice, dtype=torch.int64)
        return tensordict.set((GROUP, "action"), all_heads(action, self.env.rules))


def greedy_action(state: State, rules: Rules, tables: Tables) -> Tensor:
    """Compute the greedy policy's actions, int64 [A, N], for the learning agents."""
    agents, layout = state.agents, state.layout
    dx, dy = layout.x.unsqueeze(1) - agents.x, layout.y.unsqueeze(1) - agents.y  # [S, A, N]
    distance = (dx.abs() + dy.abs()).float()
    slots = torch.arange(rules.num_slots, device=dx.device)
    kinds = kind_of(slots, rules)
    waiting, ticks = _visit(state, distance, slots, kinds, rules, tables)
    worth = _worth(state, distance, waiting, ticks, kinds, rules, tables)
    worth = torch.where(holds_place(layout.x).unsqueeze(1), worth, -torch.inf)
    if rules.selective:
        worth = torch.where(_lets_in(state, slots, kinds, rules, tables), worth, -torch.inf)
    best = worth.argmax(0, keepdim=True)
    x, y = dx.gather(0, best)[0], dy.gather(0, best)[0]
    closed = waiting.gather(0, best)[0] > 0
    rest = resting(rules)
    action = walk(x, y, torch.where(closed, rest, INTERACT))
    worthwhile = worth.amax(0) > 0
    return torch.where(agents.alive, torch.where(worthwhile, action, rest), WAIT)[: rules.num_agents]


def resting(rules: Rules) -> int:
    """Action of an agent without a goal: rest where the town has it, else wait."""
    return rules.action_names.index("rest") if "rest" in rules.enabled else WAIT


def all_heads(action: Tensor, rules: Rules) -> Tensor:
    """Convert actions [A, N] to the world's form, [N, A] or, with a family channel, [N, A, 2] with symbol 0."""
    action = action.T.contiguous()
    return torch.stack((action, torch.zeros_like(action)), -1) if rules.symbols else action


def _lets_in(state: State, slots: Tensor, kinds: Tensor, rules: Rules, tables: Tables) -> Tensor:
    """True where a slot works and has the required number of other agents now, bool [S, A, N]."""
    here = standing_on(state, rules).unsqueeze(0) == slots.reshape(-1, 1, 1)  # [S, A, N]
    here = here & state.agents.alive
    others = here.sum(1, keepdim=True) - here.int()
    works = slots - kinds * rules.places_per_kind < tables.working[kinds]
    return works.reshape(-1, 1, 1) & (others >= tables.others_required[kinds].reshape(-1, 1, 1))


def _visit(
    state: State, distance: Tensor, slots: Tensor, kinds: Tensor, rules: Rules, tables: Tables
) -> tuple[Tensor, Tensor]:
    """Return for every slot [S, A, N] the steps to wait there until it opens, and the steps that a visit then takes."""
    duration = tables.duration[kinds].float().reshape(-1, 1, 1)
    under_way = (state.agents.slot == slots.reshape(-1, 1, 1)) & (distance == 0)
    left = duration - torch.where(under_way, state.agents.progress, 0)
    if not rules.clock:
        return torch.zeros_like(distance), left
    since = torch.remainder(hour(state) + distance - tables.opens[kinds].reshape(-1, 1, 1), HOURS)
    span = tables.span[kinds].reshape(-1, 1, 1)
    is_open = since < span
    return torch.where(is_open, 0.0, HOURS - since), torch.where(is_open, torch.minimum(left, span - since), left)


def _worth(
    state: State, distance: Tensor, waiting: Tensor, ticks: Tensor, kinds: Tensor, rules: Rules, tables: Tables
) -> Tensor:
    """Gain of each visit per step, [S, A, N]; minus infinity where the agent cannot pay."""
    duration = tables.duration[kinds].float().reshape(-1, 1, 1)
    time = distance + waiting + ticks
    if rules.contested:  # agents that stand there already may be served first
        here = standing_on(state, rules)
        taken = (here.unsqueeze(0) == torch.arange(len(kinds), device=here.device).reshape(-1, 1, 1)).float()
        time = time + (taken.sum(1, keepdim=True) - taken) * duration

    # meters at the end of the visit, and of as long a time without it
    meters = state.meters.unsqueeze(1)  # [M, 1, A, N]
    drain = tables.depletion.unsqueeze(1) * state.settings.depletion * time
    effort = (
        -tables.actions[:, UP].reshape(-1, 1, 1, 1) * distance
        - tables.actions[:, INTERACT].reshape(-1, 1, 1, 1) * ticks
    )
    completes = ticks >= duration - torch.where(distance == 0, state.agents.progress, 0)
    gain = tables.tick[:, kinds].reshape(-1, len(kinds), 1, 1) * ticks
    gain = gain + tables.completion[:, kinds].reshape(-1, len(kinds), 1, 1) * completes
    idle = (meters - drain).clamp(0.0, 1.0)
    visited = (meters - drain - effort + gain).clamp(0.0, 1.0)

    # meter by meter: a tensor of their weights would be copied to the device in every step
    gains, used_up = torch.log(FLOOR + visited) - torch.log(FLOOR + idle), meters - drain - effort <= 0
    difference, dies = torch.zeros_like(time), torch.zeros_like(time, dtype=torch.bool)
    for index, meter in enumerate(rules.meters.values()):
        difference = difference + (1.0 if meter.need else MONEY) * gains[index]
        dies = dies | used_up[index] if meter.fatal else dies
    worth = torch.where(dies, difference - 10.0, difference) / time.clamp_min(1.0)
    if "money" not in rules.meters:
        return worth
    cost = tables.price[kinds].reshape(-1, 1, 1) * ticks
    return torch.where(state.meters[rules.meter_names.index("money")] >= cost, worth, -torch.inf)


# --- fog --------------------------------------------------------------------------------------------------------------


class Knowledge(NamedTuple):
    """Knowledge of the map of the first K agents, each its own."""

    places: Layout
    """Cells of the known places, [S, K, N]; ``ABSENT`` for the others."""
    cells: Tensor
    """Cells that they have seen since their search last began, row by row, bool [cells, K, N]."""


class FogPlayer(GreedyPlayer):
    """Policy whose first agents are greedy with the places that they know; the others are greedy and know all places.

    Args:
        env: the Town whose record it reads; it must be the one that is stepped.
        remembers: True for agents that know the places that they have seen in this episode, though these may have moved
            since, and explore unseen cells; False for agents that know only those in sight and go round the town, which
            needs no memory.
        agents: number K of agents under fog.
    """

    def __init__(self, env: Any, remembers: bool, agents: int = 1) -> None:
        super().__init__(env)
        self.remembers, self.agents = remembers, agents
        self.knowledge = nothing_known(env.state, env.rules, agents)

    @override
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the action of every agent."""
        state, rules, tables = self.env.state, self.env.rules, self.env.tables
        nothing, begins = nothing_known(state, rules, self.agents), state.tally.lifetime[: self.agents] == 0
        known = self.knowledge if self.remembers else nothing
        places = Layout(*(torch.where(begins, ABSENT, cell) for cell in known.places))
        self.knowledge = update_knowledge(state, Knowledge(places, known.cells & ~begins), rules)
        seen = self.knowledge.cells
        x, y = nearest_unseen(state, seen, rules) if self.remembers else way_round(state, rules, self.agents)
        own = greedy_by_belief(state, believed(state, self.knowledge.places, x, y), rules, tables)
        action = greedy_action(state, rules, tables)
        return tensordict.set((GROUP, "action"), all_heads(torch.cat((own, action[self.agents :])), rules))


def greedy_by_belief(state: State, places: Layout, rules: Rules, tables: Tables) -> Tensor:
    """Compute the greedy policy's actions for the first K agents, which believe the places to be at the cells
    [S, K, N]; int32 or int64 [K, N].
    """
    count = places.x.shape[1]
    # a copy of the town for each agent, in which its belief is true
    copies = map_record(lambda value: value.repeat_interleave(count, -1), state)
    copies = copies._replace(layout=Layout(*(cells.transpose(1, 2).flatten(1) for cells in places)))
    action = greedy_action(copies, rules, tables)[:count]
    return action.unflatten(1, (-1, count)).diagonal(dim1=0, dim2=2).T


def nothing_known(state: State, rules: Rules, agents: int = 1) -> Knowledge:
    """Return the knowledge before the first observation."""
    unknown = torch.full_like(state.layout.x, ABSENT).unsqueeze(1).repeat(1, agents, 1)
    cells = torch.zeros(
        rules.width * rules.height, agents, state.step.shape[0], dtype=torch.bool, device=unknown.device
    )
    return Knowledge(Layout(unknown, unknown), cells)


def update_knowledge(state: State, known: Knowledge, rules: Rules) -> Knowledge:
    """Update the agents' knowledge by their observation: places in sight become known, and places that are gone from
    their known cells unknown; when no unseen cell is left the search begins anew.
    """
    agents = known.cells.shape[1]
    there = Layout(*(cell.unsqueeze(1) for cell in state.layout))  # [S, 1, N]
    seen = in_sight(state, there.x, there.y, rules, agents)
    gone = in_sight(state, *known.places, rules, agents) & ~seen
    x, y = (
        torch.where(seen, now, torch.where(gone, ABSENT, then)) for now, then in zip(there, known.places, strict=True)
    )
    x_cell, y_cell = all_cells(rules, x.device)
    inside = (x_cell < state.settings.width) & (y_cell < state.settings.height)
    sight = in_sight(state, x_cell, y_cell, rules, agents)
    cells = known.cells | sight | ~inside
    return Knowledge(Layout(x, y), torch.where(cells.all(0), sight | ~inside, cells))


def in_sight(state: State, x: Tensor, y: Tensor, rules: Rules, agents: int) -> Tensor:
    """True where a cell (``x``, ``y``) [*, K or 1, N] is in the window of each of the first agents, [*, K, N]."""
    view = rules.width + rules.height if rules.view is None else rules.view
    return ((x - state.agents.x[:agents]).abs() <= view) & ((y - state.agents.y[:agents]).abs() <= view)


def nearest_unseen(state: State, cells: Tensor, rules: Rules) -> tuple[Tensor, Tensor]:
    """Return the nearest unseen cell [K, N] in steps; the upper left of several."""
    x, y = all_cells(rules, cells.device)
    agents = cells.shape[1]
    distance = (x - state.agents.x[:agents]).abs() + (y - state.agents.y[:agents]).abs()
    nearest = torch.where(cells, rules.width * rules.height * 2, distance).argmin(0)
    return nearest % rules.width, torch.div(nearest, rules.width, rounding_mode="floor")


def way_round(state: State, rules: Rules, agents: int = 1) -> tuple[Tensor, Tensor]:
    """Return the next corner [K, N] of a tour of the town, clockwise and as far from the walls as the window reaches.

    It depends on the agent's position only, and shows every cell of a town that is not wider than two windows.
    """
    x, y, settings = state.agents.x[:agents], state.agents.y[:agents], state.settings
    width, height = settings.width, settings.height
    near = torch.full_like(x, rules.view or 0)
    right, bottom = torch.maximum(width - 1 - near, near), torch.maximum(height - 1 - near, near)
    down, left, up = (x >= right) & (y < bottom), (y >= bottom) & (x > near), (x <= near) & (y > near)
    goes_down, goes_left = down, left & ~down
    goes_up = up & ~down & ~left
    to_x = torch.where(goes_left | goes_up, near, right)
    return to_x, torch.where(goes_down | goes_left, bottom, near)


def believed(state: State, places: Layout, x: Tensor, y: Tensor) -> Layout:
    """Return believed cells of places, [S, K, N]: the known cells, the cell (``x``, ``y``) [K, N] for unknown places,
    and ``ABSENT`` for places that the town lacks.

    It is assumed known that every town has a place of each of its kinds.
    """
    exists, unknown = holds_place(state.layout.x).unsqueeze(1), ~holds_place(places.x)
    return Layout(
        torch.where(exists, torch.where(unknown, x, places.x), ABSENT),
        torch.where(exists, torch.where(unknown, y, places.y), ABSENT),
    )


def all_cells(rules: Rules, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return x and y of every cell, row by row, [cells, 1, 1]."""
    cell = torch.arange(rules.width * rules.height, device=device).reshape(-1, 1, 1)
    return cell % rules.width, torch.div(cell, rules.width, rounding_mode="floor")
