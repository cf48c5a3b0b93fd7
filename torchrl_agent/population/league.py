"""A population whose members meet each other, their past selves and scripted players, in a world of two seats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.envs import EnvBase

from torchrl_agent import keys
from torchrl_agent.models.agent import Agent
from torchrl_agent.population.agent import MembersAgent, Party, SeatedPolicy
from torchrl_agent.population.algorithm import MembersAlgorithm
from torchrl_agent.population.config import LeagueConfig, PopulationConfig
from torchrl_agent.population.evolution import Look
from torchrl_agent.population.learner import PopulationLearner
from torchrl_agent.population.pool import Pool, draw_weights
from torchrl_agent.population.ratings import Ratings, Standings, bradley_terry
from torchrl_agent.population.seats import Seats, check_seats, seat_table
from torchrl_agent.population.stack import Stack
from torchrl_agent.training.algorithm import Algorithm
from torchrl_agent.training.checkpoint import find_checkpoint, load_checkpoint

FADES = 0.98
"""What a game counts for, an iteration later: members change."""
RATING = "rating"
"""What members of a league may be judged by, besides statistics of episodes."""
EXPLOITED = 0.7
"""Share of the points at which an exploiter has shown what it had to, and begins anew."""
PATIENCE = 4
"""Snapshots after which one that has not begins anew, too."""


def make_seats(config: LeagueConfig, members: int, worlds: int) -> Seats:
    """The seats that a league's configuration asks for, with so many worlds of each member."""
    shares = list(config.scripted.values())
    return seat_table(worlds, members, config.slots, config.past, shares, config.exploiters)


class LeagueAgent(MembersAgent):
    """Members that play against frozen opponents besides.

    Args:
        stack: of members.
        template: the agent whose architecture they have.
        seats: who sits where.
        slots: past selves.
        present: copies of members as they are, whom exploiters meet.
        scripted: players of the world.
    """

    def __init__(
        self,
        stack: Stack,
        template: Agent,
        seats: Seats,
        slots: Stack,
        present: Stack,
        scripted: Sequence[TensorDictModuleBase],
    ) -> None:
        super().__init__(stack, template)
        self.seats, self.slots, self.present = seats, slots, present
        self.__dict__["scripted"] = scripted

    @property
    def policy(self) -> TensorDictModuleBase:
        """Everybody's policies."""
        return self._seated(self.template.policy)

    def policy_and_value(self) -> TensorDictModuleBase:
        """The same with values of those who learn."""
        return self._seated(self.template.policy_and_value())

    def _seated(self, policy: TensorDictModuleBase) -> SeatedPolicy:
        frozen = ((self.slots, self.seats.slots), (self.present, self.seats.present))
        parties = [Party(stack, self.template.policy, rows) for stack, rows in frozen if len(rows)]
        device = self.stack.flat.device
        scripted = [(player, self.seats.scripted(index).to(device)) for index, player in enumerate(self.scripted)]
        assert self.group is not None
        return SeatedPolicy([Party(self.stack, policy, self.seats.members), *parties], scripted, self.group)


class LeagueLearner(PopulationLearner):
    """Members that learn by playing against each other, against a pool of past selves from which opponents are drawn
    by prioritized fictitious self-play, and against scripted players.

    Frames of a member are those of its worlds; from those in which it meets another member, both learn.

    Args:
        env: worlds of all members, with two seats.
        algorithms: one per member, with its fresh agent and for the rows that it learns from.
        config: how they evolve.
        league: whom they meet.
        seats: who sits where, see :func:`make_seats`.
        seed: of evolution's and the league's choices.
        total_frames: of each member.
        experiment: what it was made from.

    Attributes:
        pool: past selves.
        standings: points of members, scripted players and snapshots, in this order.
        ratings: of these, as of the last look.

    Raises:
        ValueError: the world has no two seats with a winner, or no such player; a run to be met does not fit.
    """

    def __init__(
        self,
        env: EnvBase,
        algorithms: Sequence[Algorithm],
        config: PopulationConfig,
        league: LeagueConfig,
        seats: Seats,
        seed: int = 0,
        total_frames: int = 1_000_000,
        experiment: Any = None,
    ) -> None:
        self.league, self.seats = league, seats
        self._learning = seats.members.flatten().to(algorithms[0].device)
        """Rows of members."""
        self.random = torch.Generator().manual_seed(seed)
        super().__init__(env, algorithms, config, seed, total_frames, experiment)
        if league.against:
            self._meet(league.against)
        else:
            self._snapshot()
        self.clean.fill_(True)  # nothing has been played yet

    def _seat(self, env: EnvBase, algorithm: MembersAlgorithm) -> None:
        check_seats(env, "this configuration")
        stack, mains = algorithm.stack, self.mains
        known = env.players()
        for name in self.league.scripted:
            if name not in known:
                raise ValueError(f"league.scripted names {name}, no player of this world: use {', '.join(known)}.")
        self.pool = Pool(stack, self.league.pool)
        self.slots = stack.take(torch.arange(self.seats.counts[1]) // self.league.slots)
        self.present_selves = stack.take(torch.arange(self.seats.counts[2]))
        self.first = stack.take(torch.arange(mains, self.members))
        scripted = [known[name] for name in self.league.scripted]
        seated = (self.slots, self.present_selves, scripted)
        algorithm.seat(LeagueAgent(stack, algorithm.template.agent, self.seats, *seated))
        self.standings = Standings(self.members + len(scripted) + self.league.pool)
        self.held = torch.zeros(self.seats.counts[1], dtype=torch.int64)
        self.clean = torch.ones(len(self.seats.player), dtype=torch.bool)
        """Worlds in which nobody was replaced since the game began."""
        self._begun = torch.zeros(self.members, dtype=torch.int64)
        """Frames after which each member began anew, as exploiters do."""
        self._snapshot_at = 0
        self.ratings = self._rate()

    @property
    def mains(self) -> int:
        """Members that are no exploiters."""
        return self.members - self.league.exploiters

    # --- who meets whom -----------------------------------------------------------------------------------------------

    def _meet(self, runs: Sequence[str]) -> None:
        """Let these runs' agents hold the slots."""
        for slot, run in enumerate(runs):
            state = load_checkpoint(find_checkpoint(Path(run)), self.device)["agent"]
            place = self.pool.add(0, slot, self._shares())
            for name, value in self.pool.snapshots.member(place).items():
                part, _, name = name.partition(".")
                if part != "agent":
                    continue
                if name not in state or state[name].shape != value.shape:
                    raise ValueError(f"the agent of {run} has no {name} as these members do: meet agents alike.")
                value.copy_(state[name])
            self._seat_snapshots(torch.arange(slot, len(self.held), self.league.slots), place)

    def _snapshot(self) -> None:
        """Keep all members as they are now, and draw opponents: a snapshot that they meet may have gone."""
        for member in range(self.members):
            self._keep(member)
        self._snapshot_at = self.frames + self.league.snapshot_every
        self._draw()

    def _keep(self, member: int) -> None:
        place = self.pool.add(member, self.frames, self._shares())
        self.standings.forget(self._snapshots_from + place)

    def _draw(self) -> None:
        """Fill the slots of every member, and copy those whom exploiters meet."""
        used = self.pool.used
        shares = self._shares()[: self.mains, used]
        slots = self.league.slots
        if len(self.held):
            weights = draw_weights(shares, self.league.choose)
            drawn = torch.multinomial(weights, slots, replacement=len(used) < slots, generator=self.random)
            self._seat_snapshots(torch.arange(len(self.held)), used[drawn.flatten()])
        if self.seats.counts[2]:
            everybody = torch.arange(self.mains)
            self.present_selves.put(everybody, self.pool.stack, everybody)

    def _seat_snapshots(self, slots: Tensor, places: Tensor | int) -> None:
        before = self.held.clone()
        self.held[slots] = places
        self.slots.put(slots, self.pool.snapshots, self.held[slots])
        changed = self.members + (self.held != before).nonzero().flatten()
        self._interrupt(changed)

    def _interrupt(self, players: Tensor) -> None:
        """Let games that go on not count in which one of these players takes part, as it is another one now."""
        self.clean &= ~torch.isin(self.seats.player, players).any(1)

    def _take_over(self, look: Look) -> None:
        super()._take_over(look)
        self.standings.copy(look.parents[:, 0])
        self._interrupt(look.children.nonzero().flatten())

    def _renew_exploiters(self) -> None:
        """Let exploiters begin anew that have won, or have got nowhere for long; the pool keeps them as they were."""
        for index, exploiter in enumerate(range(self.mains, self.members)):
            age = self.frames - int(self._begun[exploiter])
            if self._won(exploiter) < EXPLOITED and age < PATIENCE * self.league.snapshot_every:
                continue
            self._keep(exploiter)
            self.algorithm.begin_anew(exploiter, self.first.member(index))
            self._write_genes(self.algorithm)
            self.standings.forget(exploiter)
            self._begun[exploiter] = self.frames
            self._interrupt(torch.tensor([exploiter]))

    def _won(self, exploiter: int) -> float:
        points, games = (
            table[exploiter, : self.mains].sum() for table in (self.standings.points, self.standings.games)
        )
        return float(points / games) if games >= self.evolution.config.least_episodes else 0.0

    # --- results ------------------------------------------------------------------------------------------------------

    @property
    def _snapshots_from(self) -> int:
        """Place of the first snapshot in the standings."""
        return self.members + len(self.league.scripted)

    def _shares(self) -> Tensor:
        """Share of the points that members and scripted players take from each snapshot, [players, pool]."""
        first = self._snapshots_from
        return self.standings.shares()[:first, first:]

    def _places(self) -> Tensor:
        """The place in the standings of every player of the seats, int64 [players]."""
        members, _, copies, scripted = self.seats.counts
        return torch.cat(
            (
                torch.arange(members),
                self._snapshots_from + self.held,
                torch.arange(copies),
                members + torch.arange(scripted),
            )
        )

    def rows(self, rollout: TensorDict) -> TensorDictBase:
        """Those of members: from what a frozen or a scripted player does nobody learns."""
        return super().rows(rollout)[:, self._learning]

    def _of_members(self, answers: Tensor) -> Tensor:
        of_rows = answers.reshape(len(answers), -1, *answers.shape[3:])[:, self._learning]
        return super()._of_members(of_rows)

    def _home(self, worlds: Tensor) -> Tensor:
        return self.seats.home[worlds]

    def _enter(self, finished: dict[str, Tensor], worlds: Tensor) -> dict[str, float]:
        points = finished[keys.EPISODE_WIN] + finished[keys.EPISODE_DRAW] / 2
        self.standings.fade(FADES)
        counted = self._counts(finished, worlds)
        players = self._places()[self.seats.player[worlds[counted]]]
        self.standings.enter(players[:, 0], players[:, 1], points[counted])
        # worlds speak from the first seat's view, which is not always the member's whose world it is
        second = (self.seats.player[worlds, 0] != self.seats.home[worlds]).float()
        lost = 1 - finished[keys.EPISODE_WIN] - finished[keys.EPISODE_DRAW]
        seen = {name: value for name, value in finished.items() if name in BOTH_SEE}
        seen[keys.EPISODE_WIN] = torch.lerp(finished[keys.EPISODE_WIN], lost, second)
        return super()._enter(seen, worlds)

    def _counts(self, finished: dict[str, Tensor], worlds: Tensor) -> Tensor:
        """Games that are told of: whole ones, in which nobody was replaced, bool [games]."""
        places = torch.arange(len(worlds))
        first = torch.full((len(self.clean),), len(worlds)).scatter_reduce(0, worlds, places, "amin")
        clean = self.clean[worlds] | (places != first[worlds])
        self.clean[worlds] = True
        return clean & (finished.get(keys.EPISODE_COMPLETE, torch.ones(len(worlds))) > 0)

    def _rate(self) -> Ratings:
        met = [place for place, share in enumerate(self.league.scripted.values(), self.members) if share]
        anchor = met[0] if met else None
        return bradley_terry(self.standings.points, self.standings.games, anchor)

    def measures(self) -> list[str]:
        """What both seats see alike, who wins, and the rating."""
        return [*(name for name in super().measures() if name in (*BOTH_SEE, keys.EPISODE_WIN)), RATING]

    def fitness(self) -> Tensor:
        """Ratings, if members are judged by them, [P]; NaN for who has played too little."""
        if self.evolution.config.fitness != RATING:
            return super().fitness()
        played = self.standings.games[: self.members].sum(1)
        known = played >= self.evolution.config.least_episodes
        return torch.where(known, self.ratings.rating[: self.members], math.nan)

    def best(self) -> int:
        """The member with the highest rating."""
        return int(self.ratings.rating[: self.mains].argmax())

    def conclude(self, metrics: dict[str, float]) -> dict[str, float]:
        """Rate the players, look at the members, keep snapshots and draw opponents, whatever it is time for."""
        drawing = self.number % self.league.refresh == 0
        if drawing or self.evolution.due(self.frames):
            self.ratings = self._rate()
        found = super().conclude(metrics)
        found |= self._describe()
        if self.league.against:
            return found
        self._renew_exploiters()
        if self.frames >= self._snapshot_at:
            self._snapshot()
        elif drawing:
            self._draw()
        return {**found, **self._summary()}

    def _describe(self) -> dict[str, float]:
        """Tell of each member how it fares in the league; means over them."""
        first, members, scripted = self._snapshots_from, self.members, self.league.scripted
        opponents = {
            "past": slice(first, None),
            **{name: slice(members + i, members + i + 1) for i, name in enumerate(scripted)},
        }
        told: dict[str, Tensor] = {"rating": self.ratings.rating[:members]}
        for name, columns in opponents.items():
            points, games = (table[:members, columns].sum(1) for table in (self.standings.points, self.standings.games))
            told[f"win_vs_{name}"] = points / games
        for member, metrics in enumerate(self.member_metrics):
            metrics |= {f"league/{name}": float(values[member]) for name, values in told.items()}
        return {f"league/{name}": float(values.nanmean()) for name, values in told.items()}

    def _summary(self) -> dict[str, float]:
        used = self.pool.used
        weights = draw_weights(self._shares()[: self.mains, used], self.league.choose)
        chances = weights / weights.sum(1, keepdim=True)
        entropy = -(chances * chances.log()).sum(1).mean()
        return {
            "league/rating_best": float(self.ratings.rating[: self.mains].max()),
            "league/pool": float(len(used)),
            "league/misfit": self.ratings.misfit,
            "league/effective_opponents": float(entropy.exp()),
        }

    # --- saving -------------------------------------------------------------------------------------------------------

    def books(self) -> dict[str, Any]:
        """Pool, slots and standings besides."""
        return {
            **super().books(),
            "league": {
                "pool": self.pool.state_dict(),
                **{name: stack.state_dict() for name, stack in self._stacks().items()},
                "standings": self.standings.state_dict(),
                "ratings": self.ratings._asdict(),
                "held": self.held.clone(),
                "clean": self.clean.clone(),
                "begun": self._begun.clone(),
                "snapshot_at": self._snapshot_at,
                "random": self.random.get_state(),
            },
        }

    def load_books(self, state: dict[str, Any]) -> None:
        """Continue them."""
        super().load_books(state)
        league = state["league"]
        self.pool.load_state_dict(league["pool"])
        for name, stack in self._stacks().items():
            stack.load_state_dict(league[name])
        self.standings.load_state_dict(league["standings"])
        self.ratings = Ratings(**{k: v.cpu() if isinstance(v, Tensor) else v for k, v in league["ratings"].items()})
        for name, value in (("held", self.held), ("clean", self.clean), ("begun", self._begun)):
            value.copy_(league[name])
        self._snapshot_at = league["snapshot_at"]
        self.random.set_state(league["random"].cpu())

    def _stacks(self) -> dict[str, Stack]:
        return {"slots": self.slots, "present": self.present_selves, "first": self.first}


BOTH_SEE = (keys.EPISODE_RETURN, keys.EPISODE_LENGTH, keys.EPISODE_DRAW, keys.EPISODE_COMPLETE)
"""Statistics of a game that are the same from both seats."""
