"""Scripted policies: a greedy one that looks one visit ahead, and constant actions as lower bounds.

They read the game's record (all places, true meters), not the observation: baselines, sources of data and tests of the
rules, not fair opponents.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from envs.base.world import GROUP
from envs.town.rules import HOURS, INTERACT, UP, WAIT, Rules
from envs.town.state import State, holds_place, hour, kind_of, standing_on, walk
from envs.town.tables import Tables

FLOOR = 0.05
"""Constant added to a meter before its logarithm is taken: a nearly empty meter counts most."""
MONEY = 0.5
"""Weight of money relative to a need."""


class GreedyPlayer(TensorDictModuleBase):
    """Policy that pursues the visit with the largest gain in the logarithms of its meters per step of travel, waiting
    and staying.

    Args:
        env: the Town whose record it reads; it must be the one that is stepped.
    """

    def __init__(self, env: Any) -> None:
        super().__init__()
        self.__dict__["env"] = env  # not as a submodule: a policy does not own its world
        self.in_keys, self.out_keys = [(GROUP, "alive")], [(GROUP, "action")]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the action of every agent."""
        state, rules = self.env.state, self.env.rules
        action = greedy_action(state, rules, self.env.tables)
        return tensordict.set((GROUP, "action"), all_heads(action, rules))


class ConstantPlayer(TensorDictModuleBase):
    """Policy that always takes one action, such as ``rest`` or ``wait``; it waits where that is not enabled."""

    def __init__(self, env: Any, action: str) -> None:
        super().__init__()
        self.in_keys, self.out_keys = [(GROUP, "alive")], [(GROUP, "action")]
        names, heads = env.rules.action_names, 2 if env.rules.symbols else 1
        self.choice = names.index(action) if action in env.rules.enabled else WAIT
        self.heads = heads

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the action of every agent."""
        alive = tensordict.get((GROUP, "alive"))
        action = torch.full_like(alive, self.choice, dtype=torch.int64)
        if self.heads > 1:  # with symbol 0, no message
            action = torch.stack((action, torch.zeros_like(action)), -1)
        return tensordict.set((GROUP, "action"), action)


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
    return works.reshape(-1, 1, 1) & (others >= tables.company[kinds].reshape(-1, 1, 1))


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
