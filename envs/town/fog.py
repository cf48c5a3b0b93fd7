"""A greedy player in the fog: it knows the places that it sees, or has seen, and looks for the others.

What it does not know it believes to be where it would look next (the assumption that the unknown is what one hopes for:
S. Koenig, C. Tovey and Y. Smirnov, "Performance bounds for planning in unknown terrain", 2003), so that going there and
exploring are one thing, weighed by the greedy player like any other way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from envs.town.rules import Rules
from envs.town.scripted import all_heads, greedy_action
from envs.town.state import ABSENT, Layout, State
from envs.world import GROUP


class Knowledge(NamedTuple):
    """What agent 0 knows of the map."""

    places: Layout
    """Cells of the places that it knows, [S, N]; ``ABSENT`` for the others."""
    cells: Tensor
    """Cells that it has seen since it last began to look for something, row by row, bool [cells, N]."""


class FogPlayer(TensorDictModuleBase):
    """Agent 0 is greedy with the places that it knows; the others are greedy and know them all.

    Args:
        env: the Town whose record it reads; it must be the one that is stepped.
        remembers: it knows the places that it has seen in this episode and looks where it has not been; otherwise it
            knows those in sight now and goes round the town, as one can without a memory.
    """

    def __init__(self, env: Any, remembers: bool) -> None:
        super().__init__()
        self.__dict__["env"] = env  # not as a submodule: a policy does not own its world
        self.in_keys, self.out_keys = [(GROUP, "alive")], [(GROUP, "action")]
        self.remembers = remembers
        self.knowledge = nothing_known(env.state, env.rules)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the action of every agent."""
        state, rules, tables = self.env.state, self.env.rules, self.env.tables
        nothing, begins = nothing_known(state, rules), state.tally.lifetime[0] == 0
        known = self.knowledge if self.remembers else nothing
        places = Layout(*(torch.where(begins, ABSENT, cell) for cell in known.places))
        self.knowledge = look(state, Knowledge(places, known.cells & ~begins), rules)
        x, y = nearest_unseen(state, self.knowledge.cells, rules) if self.remembers else way_round(state, rules)
        action = greedy_action(state, rules, tables)
        own = greedy_action(state._replace(layout=believed(state, self.knowledge.places, x, y)), rules, tables)
        return tensordict.set((GROUP, "action"), all_heads(torch.cat((own[:1], action[1:])), rules))


def nothing_known(state: State, rules: Rules) -> Knowledge:
    """Before the first look."""
    unknown = torch.full_like(state.layout.x, ABSENT)
    cells = torch.zeros(rules.width * rules.height, state.step.shape[0], dtype=torch.bool, device=state.step.device)
    return Knowledge(Layout(unknown, unknown), cells)


def look(state: State, known: Knowledge, rules: Rules) -> Knowledge:
    """What agent 0 knows after a look around: places in sight are known, those that are not where they were no longer;
    when there is no cell left to look at it begins anew.
    """
    seen = in_sight(state, *state.layout, rules)
    gone = in_sight(state, *known.places, rules) & ~seen
    x, y = (
        torch.where(seen, now, torch.where(gone, ABSENT, then))
        for now, then in zip(state.layout, known.places, strict=True)
    )
    x_cell, y_cell = all_cells(rules, x.device)
    inside = (x_cell < state.settings.width) & (y_cell < state.settings.height)
    sight = in_sight(state, x_cell, y_cell, rules)
    cells = known.cells | sight | ~inside
    return Knowledge(Layout(x, y), torch.where(cells.all(0), sight | ~inside, cells))


def in_sight(state: State, x: Tensor, y: Tensor, rules: Rules) -> Tensor:
    """Whether agent 0 has cells (``x``, ``y``) [*, N] in its window."""
    view = rules.width + rules.height if rules.view is None else rules.view
    return ((x - state.agents.x[0]).abs() <= view) & ((y - state.agents.y[0]).abs() <= view)


def nearest_unseen(state: State, cells: Tensor, rules: Rules) -> tuple[Tensor, Tensor]:
    """The cell [N] of those that have not been seen that is fewest steps away; the upper left of several."""
    x, y = all_cells(rules, cells.device)
    distance = (x - state.agents.x[0]).abs() + (y - state.agents.y[0]).abs()
    nearest = torch.where(cells, rules.width * rules.height * 2, distance).argmin(0)
    return nearest % rules.width, torch.div(nearest, rules.width, rounding_mode="floor")


def way_round(state: State, rules: Rules) -> tuple[Tensor, Tensor]:
    """The next corner [N] of a way round the town, clockwise and as far from the walls as the window reaches.

    It depends on nothing but where agent 0 is, and shows every cell of a town that is not wider than two windows.
    """
    x, y, width, height = state.agents.x[0], state.agents.y[0], state.settings.width, state.settings.height
    near = torch.full_like(x, rules.view or 0)
    right, bottom = torch.maximum(width - 1 - near, near), torch.maximum(height - 1 - near, near)
    down, left, up = (x >= right) & (y < bottom), (y >= bottom) & (x > near), (x <= near) & (y > near)
    goes_down, goes_left = down, left & ~down
    goes_up = up & ~down & ~left
    to_x = torch.where(goes_left | goes_up, near, right)
    return to_x, torch.where(goes_down | goes_left, bottom, near)


def believed(state: State, places: Layout, x: Tensor, y: Tensor) -> Layout:
    """The known places where they are, the others at the cell (``x``, ``y``) [N]; what the town does not have nowhere.

    That every town has a place of each of its kinds is common knowledge.
    """
    exists, unknown = state.layout.x > ABSENT // 2, places.x <= ABSENT // 2
    return Layout(
        torch.where(exists, torch.where(unknown, x, places.x), ABSENT),
        torch.where(exists, torch.where(unknown, y, places.y), ABSENT),
    )


def all_cells(rules: Rules, device: torch.device) -> tuple[Tensor, Tensor]:
    """The x and y of every cell, row by row, [cells, 1]."""
    cell = torch.arange(rules.width * rules.height, device=device).unsqueeze(1)
    return cell % rules.width, torch.div(cell, rules.width, rounding_mode="floor")
