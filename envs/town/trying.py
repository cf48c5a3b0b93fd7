"""Greedy policy among places that look the same, of which only some work: it finds them by trial.

Its habits differ in the use of a success. ``adapts`` is win-stay, lose-shift (H. Robbins, "Some aspects of the
sequential design of experiments", 1952); the others keep the first success, or none.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from envs.base.world import GROUP
from envs.town.rules import INTERACT, Rules
from envs.town.scripted import all_heads, greedy_action
from envs.town.state import ABSENT, Layout, State, holds_place

Habit = Literal["adapts", "stubborn", "forgets"]


class Experience(NamedTuple):
    """Experience of agent 0 in this episode, by kind and place, the places in the order of their cells."""

    tried: Tensor
    """True for places that refused the agent since this kind last served it, bool [K, P, N]."""
    known: Tensor
    """True for places that the agent believes to work, bool [K, P, N]."""
    visits: Tensor
    """Number of visits that it had completed, [N]."""


class TryingPlayer(TensorDictModuleBase):
    """Greedy policy whose agent 0 sees every place, but not which of those that look the same work; the others know.

    Args:
        env: the Town whose record it reads; it must be the one that is stepped.
        habit: choice after a visit: return to the place that served it last (``adapts``) or first (``stubborn``), or
            begin to try again (``forgets``); after a refusal each tries the others.
    """

    def __init__(self, env: Any, habit: Habit) -> None:
        super().__init__()
        self.__dict__["env"] = env  # not as a submodule: a policy does not own its world
        self.in_keys, self.out_keys = [(GROUP, "alive")], [(GROUP, "action")]
        self.habit = habit
        self.unaware = _unaware(env.rules)
        self.experience = no_experience(env.state, env.rules)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the action of every agent."""
        state, rules, tables = self.env.state, self.env.rules, self.env.tables
        places = in_order(state, rules)
        self.experience = learn(state, self.experience, places, self.habit, rules)
        action = greedy_action(state, rules, tables)
        believed = state._replace(layout=hopeful(self.experience, places, rules))
        own = greedy_action(believed, self.unaware, tables)
        return tensordict.set((GROUP, "action"), all_heads(torch.cat((own[:1], action[1:])), rules))


def no_experience(state: State, rules: Rules) -> Experience:
    """Return the experience at the beginning of an episode."""
    shape = (len(rules.kinds), rules.places_per_kind, state.step.shape[0])
    nothing = torch.zeros(shape, dtype=torch.bool, device=state.step.device)
    return Experience(nothing, nothing, torch.zeros_like(state.tally.visits[0]))


def in_order(state: State, rules: Rules) -> Layout:
    """Return the places of each kind in the order of their cells, [K, P, N], their only visible difference."""
    x, y = (cell.unflatten(0, (len(rules.kinds), rules.places_per_kind)) for cell in state.layout)
    order = (y * rules.width + x).argsort(1, descending=True)
    return Layout(x.gather(1, order), y.gather(1, order))


def learn(state: State, experience: Experience, places: Layout, habit: Habit, rules: Rules) -> Experience:
    """Update the experience of agent 0 by the last step."""
    agents, visits = state.agents, state.tally.visits[0]
    begins = state.tally.lifetime[0] == 0
    tried, known = experience.tried & ~begins, experience.known & ~begins
    here = (places.x == agents.x[0]) & (places.y == agents.y[0]) & (agents.action[0] == INTERACT)
    served = here & (visits > experience.visits) & ~begins
    done = served.any(1, keepdim=True)
    tried = (tried | (here & agents.refused[0])) & ~done
    tried = tried & ~(tried | ~holds_place(places.x)).all(1, keepdim=True)  # places that refused may work by now
    if habit == "adapts":
        known = torch.where(done, served, known)
    elif habit == "stubborn":
        known = torch.where(done & ~known.any(1, keepdim=True), served, known)
    # cloned: the record changes in place
    return Experience(tried, known, visits.clone())


def hopeful(experience: Experience, places: Layout, rules: Rules) -> Layout:
    """Return the places that agent 0 considers: of those that look the same the one that it trusts, else all that it
    has not tried.
    """
    alike = torch.tensor([place.working is not None for place in rules.affordances.values()], device=places.x.device)
    trusted = experience.known & ~experience.tried
    hidden = experience.tried | (trusted.any(1, keepdim=True) & ~trusted)
    hidden = hidden & alike.reshape(-1, 1, 1)
    return Layout(*(torch.where(hidden, ABSENT, cell).flatten(0, 1) for cell in places))


def _unaware(rules: Rules) -> Rules:
    """Return the rules as believed by an agent that takes all places for working ones."""
    alike = {kind: dataclasses.replace(place, working=None) for kind, place in rules.affordances.items()}
    return dataclasses.replace(rules, affordances=alike)
