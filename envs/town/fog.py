"""Greedy policy under fog: it knows the places that it sees, or has seen, and searches for the others.

It believes unknown places to be at the cell that it would explore next (the free-space assumption, that the unknown is
as hoped: S. Koenig, C. Tovey and Y. Smirnov, "Performance bounds for planning in unknown terrain", 2003), so that
exploration is a walk to a believed place, weighed by the greedy policy like any other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from envs.base.world import GROUP
from envs.toolkit.records import map_record
from envs.town.rules import Rules
from envs.town.scripted import all_heads, greedy_action
from envs.town.state import ABSENT, Layout, State, holds_place
from envs.town.tables import Tables


class Knowledge(NamedTuple):
    """Knowledge of the map of the first K agents, each its own."""

    places: Layout
    """Cells of the known places, [S, K, N]; ``ABSENT`` for the others."""
    cells: Tensor
    """Cells that they have seen since their search last began, row by row, bool [cells, K, N]."""


class FogPlayer(TensorDictModuleBase):
    """Policy whose first agents are greedy with the places that they know; the others are greedy and know all places.

    Args:
        env: the Town whose record it reads; it must be the one that is stepped.
        remembers: True for agents that know the places that they have seen in this episode, though these may have moved
            since, and explore unseen cells; False for agents that know only those in sight and go round the town, which
            needs no memory.
        agents: number K of agents under fog.
    """

    def __init__(self, env: Any, remembers: bool, agents: int = 1) -> None:
        super().__init__()
        self.__dict__["env"] = env  # not as a submodule: a policy does not own its world
        self.in_keys, self.out_keys = [(GROUP, "alive")], [(GROUP, "action")]
        self.remembers, self.agents = remembers, agents
        self.knowledge = nothing_known(env.state, env.rules, agents)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the action of every agent."""
        state, rules, tables = self.env.state, self.env.rules, self.env.tables
        nothing, begins = nothing_known(state, rules, self.agents), state.tally.lifetime[: self.agents] == 0
        known = self.knowledge if self.remembers else nothing
        places = Layout(*(torch.where(begins, ABSENT, cell) for cell in known.places))
        self.knowledge = look(state, Knowledge(places, known.cells & ~begins), rules)
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


def look(state: State, known: Knowledge, rules: Rules) -> Knowledge:
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
