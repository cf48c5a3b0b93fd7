"""Policies that search the true world or learn by trial, to measure the value of foresight, goals, memory and knowledge
of the others for one agent.

Agent 0 of a :class:`PlanningPlayer` acts by the rollout algorithm (G. Tesauro and G. Galperin, "On-line policy
improvement using Monte-Carlo search", 1996): it tries each candidate in copies of the town, continues there with the
greedy policy, and takes the candidate of highest return. The other agents are greedy. Like all scripted policies these
read the game's record; imagined towns have their own random numbers, so that no agent predicts random events.

Agent 0 of a :class:`TryingPlayer` is greedy among places that look the same, of which only some work. Its habits differ
in the use of a success: ``adapts`` is win-stay, lose-shift (H. Robbins, "Some aspects of the sequential design of
experiments", 1952); the others keep the first success, or none.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from tensordict import TensorDictBase
from torch import Tensor
from typing_extensions import override

from envs.base.world import GROUP
from envs.toolkit.chance import Chance, seed_chance
from envs.toolkit.records import map_record
from envs.town.dynamics import advance
from envs.town.rules import HOURS, INTERACT, WAIT, Rules
from envs.town.scoring import reward
from envs.town.scripted import GreedyPlayer, all_heads, greedy_action, resting
from envs.town.state import ABSENT, Layout, Residents, State, Tables, holds_place, hour, is_open, kind_of, walk

IMAGINED_LUCK = 1_000_003
"""Seed of the random numbers in imagined towns, different from the usual seeds of worlds."""
NO_ACTION = -1
LOOK_EVERY = 5
"""Number of imagined steps between two checks for the end of every town's time."""
YESTERDAY, STAY = "yesterday", "stay"
Others = Literal["greedy", "repeat", "wait"]
Habit = Literal["adapts", "stubborn", "forgets"]


# --- search -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SearchConfig:
    """Settings of a planning policy's search."""

    candidates: Literal["goals", "actions"] = "goals"
    """Candidates of the search: places to go to and use, resting, and the greedy policy's choice; or single actions,
    and the greedy policy's choice.
    """
    others: Others = "greedy"
    """Model of the other agents: the policy they really follow, repetition of their last action permanently, or
    waiting.
    """
    residents: str | None = None
    """Model of the residents: None for their true behavior, with their character known; ``stay``; ``yesterday`` for
    their behavior in yesterday's mood; or the name of one character assumed for all.
    """
    every: int = 8
    """Number of steps between two searches. A goal is kept until it is reached; then, or after a single action, the
    greedy policy acts.
    """
    action_steps: int = 8
    """Number of steps for which a chosen action is taken."""
    horizon: int = 200
    """Number of imagined steps of each candidate, fewer where life ends before; beyond it the greedy policy's return
    hardly depends on the choice, if it is long enough for money to be earned and spent."""


class Intention(NamedTuple):
    """Goal or action that an agent has chosen, [N]; with neither slot nor action it follows the greedy policy."""

    slot: Tensor
    """Slot of the place to visit; S for none."""
    action: Tensor
    """Action to take; ``NO_ACTION`` for none."""
    visits: Tensor
    """Number of visits completed at the time of the choice; with one more the goal is reached."""


class Moods(NamedTuple):
    """Moods of residents, True for happy, bool [R, N]."""

    yesterday: Tensor
    today: Tensor


class PlanningPlayer(GreedyPlayer):
    """Policy by which agent 0 searches and the others are greedy.

    Args:
        env: the Town whose record it reads; it must be the one that is stepped, with all towns begun at the same time.
        config: settings of the search.
    """

    def __init__(self, env: Any, config: SearchConfig | None = None) -> None:
        super().__init__(env)
        self.config = SearchConfig() if config is None else config
        rules, tables = env.rules, env.tables
        self.slots, self.actions = candidates(rules, tables, self.config.candidates)
        self.luck = seed_chance(IMAGINED_LUCK, env.num_envs, env.device).key.repeat_interleave(len(self.slots))
        self.steps = 0
        self.intention: Any = None
        self.moods = remembered_moods(env.state, None) if rules.num_residents else None

    @override
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
        """Return the best candidate of every town; of equal ones the first, which is the greedy policy."""
        best = self.values(state).argmax(-1)
        # cloned: the record changes in place
        return Intention(self.slots[best], self.actions[best], state.tally.visits[0].clone())

    def values(self, state: State) -> Tensor:
        """Compute the return of agent 0 for each candidate in an imagined town, [N, candidates]."""
        config, count, worlds = self.config, len(self.slots), state.step.shape[0]
        rules, tables = dataclasses.replace(self.env.rules, cues={}), self.env.tables  # imagined cues are not used
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
        """Return the towns with the residents of the assumed model."""
        expected, characters = self.config.residents, list(self.env.rules.characters)
        if self.moods is None or expected is None:
            return state
        character, happy = state.residents
        if expected == YESTERDAY:
            begun = state.step < HOURS  # there was no yesterday
            character = torch.where(begun, len(characters), character)
            happy = self.moods.yesterday
        else:
            number = len(characters) if expected == STAY else characters.index(expected)
            character = torch.full_like(character, number)
        return state._replace(residents=Residents(character, happy))

    def pursue(self, intention: Intention, state: State, since: int, greedy: Tensor) -> Tensor:
        """Compute the action of agent 0, [N], ``since`` steps after it chose an intention: its action; or the way to
        its place and the use of it, with rest while it is closed; and ``greedy`` when the goal is reached or the place
        is gone.
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
    """Update the remembered moods of residents with the present ones."""
    happy = state.residents.happy.clone()  # the record changes in place
    if moods is None:
        return Moods(happy, happy)
    morning = hour(state) == 0
    return Moods(torch.where(morning, moods.today, moods.yesterday), torch.where(morning, happy, moods.today))


def candidates(rules: Rules, tables: Tables, kind: str) -> tuple[Tensor, Tensor]:
    """Return slot and action of every candidate, int64 each; the first is the greedy policy's choice."""
    device = tables.exists.device
    slots, actions = tables.exists.squeeze(1).nonzero().squeeze(1), [resting(rules)]
    if kind == "actions":
        slots, actions = slots[:0], [*range(WAIT + 1), *map(rules.action_names.index, rules.enabled)]
    no_slot = torch.full((1 + len(actions),), rules.num_slots, device=device)
    no_action = torch.full((1 + len(slots),), NO_ACTION, device=device)
    own = torch.tensor(actions, device=device)
    return torch.cat((no_slot[:1], slots, no_slot[1:])), torch.cat((no_action, own))


# --- trial and error --------------------------------------------------------------------------------------------------


class Experience(NamedTuple):
    """Experience of agent 0 in this episode, by kind and place, the places in the order of their cells."""

    tried: Tensor
    """True for places that refused the agent since this kind last served it, bool [K, P, N]."""
    known: Tensor
    """True for places that the agent believes to work, bool [K, P, N]."""
    visits: Tensor
    """Number of visits that it had completed, [N]."""


class TryingPlayer(GreedyPlayer):
    """Greedy policy whose agent 0 sees every place, but not which of those that look the same work; the others know.

    Args:
        env: the Town whose record it reads; it must be the one that is stepped.
        habit: choice after a visit: return to the place that served it last (``adapts``) or first (``stubborn``), or
            begin to try again (``forgets``); after a refusal each tries the others.
    """

    def __init__(self, env: Any, habit: Habit) -> None:
        super().__init__(env)
        self.habit = habit
        working = {kind: dataclasses.replace(each, working=None) for kind, each in env.rules.affordances.items()}
        self.unaware = dataclasses.replace(env.rules, affordances=working)  # it takes all places for working ones
        self.experience = no_experience(env.state, env.rules)

    @override
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
