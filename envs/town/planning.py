"""Players that search the true world: what foresight, goals and knowing the others are worth to one agent.

Agent 0 of every town plays the rollout algorithm (G. Tesauro and G. Galperin, "On-line policy improvement using
Monte-Carlo search", 1996): it tries each candidate for what to do next in copies of the town, lets the greedy player go
on from there, and takes the candidate that earned most. The other agents are greedy. Like all hand-written players
these read the game's record; what they imagine has its own luck, so that nobody foresees chance.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from envs.base.world import GROUP
from envs.toolkit.chance import Chance, seed_chance
from envs.toolkit.records import map_record
from envs.town.dynamics import advance
from envs.town.rules import HOURS, INTERACT, WAIT, Rules
from envs.town.scoring import reward
from envs.town.scripted import all_heads, greedy_action, resting
from envs.town.state import Residents, State, holds_place, hour, is_open, kind_of, walk
from envs.town.tables import Tables

IMAGINED_LUCK = 1_000_003
"""Seed of the luck in imagined towns, which is not that of any town that is played with a usual seed."""
NO_ACTION = -1
LOOK_EVERY = 5
"""Imagined steps between two looks at whether every town's time is up."""
YESTERDAY, STAY = "yesterday", "stay"
Others = Literal["greedy", "repeat", "wait"]


@dataclass(frozen=True)
class SearchConfig:
    """How a planning player searches."""

    candidates: Literal["goals", "actions"] = "goals"
    """What it chooses among: places to go to and use, resting, and the greedy player's choice; or single actions, and
    the greedy player's choice.
    """
    others: Others = "greedy"
    """What it expects of the other agents: what they will really do, that each repeats its last action for ever, or
    that they wait.
    """
    residents: str | None = None
    """What it expects of the residents: None for what they will really do, whose character it then knows; ``stay``;
    ``yesterday`` for what they would do in yesterday's mood; or the name of the character that it gives them all.
    """
    every: int = 8
    """Steps between two searches. A goal is kept until it is reached; then, or after a single action, comes what the
    greedy player does.
    """
    action_steps: int = 8
    """Steps for which a chosen action is taken."""
    horizon: int = 200
    """Imagined steps of each candidate, fewer where life ends before; the greedy player earns about as much from there
    on whatever was chosen, if it is long enough for money to be earned and spent."""


class Intention(NamedTuple):
    """What an agent has chosen to do, [N]; with neither slot nor action it does what the greedy player does."""

    slot: Tensor
    """Slot of the place to go to and use; S for none."""
    action: Tensor
    """Action to take; ``NO_ACTION`` for none."""
    visits: Tensor
    """Visits completed when it was chosen: one more, and the goal is reached."""


class Moods(NamedTuple):
    """Of residents, bool [R, N]."""

    yesterday: Tensor
    today: Tensor


class PlanningPlayer(TensorDictModuleBase):
    """Agent 0 searches, the others are greedy.

    Args:
        env: the Town whose record it reads; it must be the one that is stepped, with all towns begun at the same time.
        config: how it searches.
    """

    def __init__(self, env: Any, config: SearchConfig | None = None) -> None:
        super().__init__()
        self.__dict__["env"] = env  # not as a submodule: a policy does not own its world
        self.in_keys, self.out_keys = [(GROUP, "alive")], [(GROUP, "action")]
        self.config = SearchConfig() if config is None else config
        rules, tables = env.rules, env.tables
        self.slots, self.actions = candidates(rules, tables, self.config.candidates)
        self.luck = seed_chance(IMAGINED_LUCK, env.num_envs, env.device).key.repeat_interleave(len(self.slots))
        self.steps = 0
        self.intention: Any = None
        self.moods = remembered_moods(env.state, None) if rules.num_residents else None

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the action of every agent."""
        env, since = self.env, self.steps % self.config.every
        if self.moods is not None:
            self.moods = remembered_moods(env.state, self.moods)
        if since == 0:
            self.intention = self.search(env.state)
        self.steps += 1
        greedy = greedy_action(env.state, env.rules, env.tables)
        own = self.pursue(self.intention, env.state, since, greedy[0])
        alive = env.state.agents.alive[: env.rules.num_agents]
        action = torch.where(alive, torch.cat((own.unsqueeze(0), greedy[1:])), WAIT)
        return tensordict.set((GROUP, "action"), all_heads(action, env.rules))

    def search(self, state: State) -> Intention:
        """The best candidate of every town; of equals the first, which is to be greedy."""
        best = self.values(state).argmax(-1)
        # cloned: the record changes in place
        return Intention(self.slots[best], self.actions[best], state.tally.visits[0].clone())

    def values(self, state: State) -> Tensor:
        """What each candidate earns agent 0 in an imagined town, [N, candidates]."""
        config, count, worlds = self.config, len(self.slots), state.step.shape[0]
        rules, tables = dataclasses.replace(self.env.rules, cues={}), self.env.tables  # nobody looks at imagined cues
        state = map_record(lambda value: value.repeat_interleave(count, -1), self.believed(state))
        intention = Intention(self.slots.repeat(worlds), self.actions.repeat(worlds), state.tally.visits[0])
        last = state.agents.action[: rules.num_agents]
        last = last if config.others == "repeat" else torch.full_like(last, WAIT)
        chance, value = Chance(self.luck, state.step), torch.zeros_like(state.tally.lifetime[0])
        for ahead in range(config.horizon):
            goes_on = state.step < rules.max_steps
            if ahead % LOOK_EVERY == 0 and not goes_on.any():
                break
            greedy = greedy_action(state, rules, tables)
            own = self.pursue(intention, state, ahead, greedy[0]).unsqueeze(0)
            others = greedy if config.others == "greedy" else last
            chance = chance.tick()
            state = advance(state, torch.cat((own, others[1:])), None, chance, rules, tables)
            value = value + torch.where(goes_on, reward(state, rules)[0], 0.0)
        return value.reshape(worlds, count)

    def believed(self, state: State) -> State:
        """The towns with the residents that it expects."""
        expected, characters = self.config.residents, list(self.env.rules.characters)
        if self.moods is None or expected is None:
            return state
        character, happy = state.residents
        if expected == YESTERDAY:
            begun = state.step < HOURS  # there was none
            character = torch.where(begun, len(characters), character)
            happy = self.moods.yesterday
        else:
            number = len(characters) if expected == STAY else characters.index(expected)
            character = torch.full_like(character, number)
        return state._replace(residents=Residents(character, happy))

    def pursue(self, intention: Intention, state: State, since: int, greedy: Tensor) -> Tensor:
        """What agent 0 does so many steps after it formed an intention, [N]: takes its action; or goes to its place and
        uses it, resting while that is closed; and what is ``greedy`` when that is done or the place is gone.
        """
        rules, layout = self.env.rules, state.layout
        slot = intention.slot.clamp_max(rules.num_slots - 1)
        x, y = (cell.gather(0, slot.unsqueeze(0))[0] for cell in layout)
        there = torch.full_like(greedy, INTERACT)
        if rules.clock:
            kind = kind_of(slot, rules)
            there = torch.where(is_open(kind, state, self.env.tables), there, resting(rules))
        pursues = (intention.slot < rules.num_slots) & holds_place(x)
        pursues = pursues & (state.tally.visits[0] == intention.visits)
        going = walk(x - state.agents.x[0], y - state.agents.y[0], there)
        action = torch.where(pursues, going, greedy)
        if since >= self.config.action_steps:
            return action
        return torch.where(intention.action == NO_ACTION, action, intention.action)


def remembered_moods(state: State, moods: Moods | None) -> Moods:
    """The moods that residents have had, with those of now."""
    happy = state.residents.happy.clone()  # the record changes in place
    if moods is None:
        return Moods(happy, happy)
    morning = hour(state) == 0
    return Moods(torch.where(morning, moods.today, moods.yesterday), torch.where(morning, happy, moods.today))


def candidates(rules: Rules, tables: Tables, kind: str) -> tuple[Tensor, Tensor]:
    """Slot and action of every candidate, int64 each; the first is the greedy player's choice."""
    device = tables.exists.device
    slots, actions = tables.exists.squeeze(1).nonzero().squeeze(1), [resting(rules)]
    if kind == "actions":
        slots, actions = slots[:0], [*range(WAIT + 1), *map(rules.action_names.index, rules.enabled)]
    no_slot = torch.full((1 + len(actions),), rules.num_slots, device=device)
    no_action = torch.full((1 + len(slots),), NO_ACTION, device=device)
    own = torch.tensor(actions, device=device)
    return torch.cat((no_slot[:1], slots, no_slot[1:])), torch.cat((no_action, own))
