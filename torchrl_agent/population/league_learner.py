"""A population whose members meet each other, their past selves and scripted players, in a world of two seats."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.envs import EnvBase
from typing_extensions import override

from torchrl_agent.algorithms.algorithm import Algorithm
from torchrl_agent.core import keys
from torchrl_agent.models.agent import AdaptedAgent, Agent
from torchrl_agent.population.agent import PolicyGroup, SeatedPolicy
from torchrl_agent.population.algorithm import MembersAlgorithm
from torchrl_agent.population.config import RATING, LeagueConfig, PopulationConfig
from torchrl_agent.population.evolution import EvolutionStep
from torchrl_agent.population.league import League
from torchrl_agent.population.learner import PopulationLearner
from torchrl_agent.population.seats import Seats, check_seats
from torchrl_agent.training.collector import episode_entries
from torchrl_agent.training.metrics import Figures

EXPLOITED = 0.7
"""Fraction of the points at which an exploiter has succeeded and is reset."""
PATIENCE = 4
"""Number of snapshots after which an exploiter that has not succeeded is reset, too."""
BOTH_SEE = (keys.EPISODE_RETURN, keys.EPISODE_LENGTH, keys.EPISODE_DRAW, keys.EPISODE_COMPLETE)
"""Statistics of a game that are the same from both seats."""


class LeagueLearner(PopulationLearner):
    """Members that learn by playing against each other, against a pool of past selves from which opponents are drawn
    by prioritized fictitious self-play, and against scripted players.

    Frames of a member are those of its worlds; from those in which it meets another member, both learn.

    Args:
        env: worlds of all members, with two seats.
        algorithm: the algorithm of all members, for the rows that they learn from.
        seats: holder of each seat, see :func:`~torchrl_agent.population.league.make_seats`.

    Attributes:
        league: past selves, standings and ratings.

    Raises:
        ValueError: the world has no two seats with a winner, or no such player; a run to be met does not fit.
    """

    def __init__(
        self,
        env: EnvBase,
        algorithm: MembersAlgorithm,
        config: PopulationConfig,
        league: LeagueConfig,
        seats: Seats,
        seed: int = 0,
        total_frames: int = 1_000_000,
        experiment: Any = None,
        newborn: Callable[[int], Algorithm] | None = None,
    ) -> None:
        check_seats(env, "this configuration")
        self.seats, self.league = seats, League(league, seats, algorithm.stack, seed)
        agent = algorithm.template.agent
        adapt = partial(seated, agent=agent, league=self.league, scripted=players(env, league))
        algorithm.behavior = AdaptedAgent(agent, adapt, "members")
        measures = [*(name for name in episode_entries(env) if name in (*BOTH_SEE, keys.EPISODE_WIN)), RATING]
        rest = (seed, total_frames, experiment, newborn)
        super().__init__(env, algorithm, config, *rest, home=seats.home, measures=measures)
        # no member learns from the actions of a frozen or a scripted player
        self.learning = seats.members.flatten().to(self.device)
        self.parts["league"] = self.league
        if league.against:
            self.league.meet(self.device)
        else:
            self.league.snapshot(0)
        self.league.clean.fill_(True)  # nothing has been played yet

    # --- parts of an iteration ----------------------------------------------------------------------------------------

    @override
    def _log_members(self, finished: dict[str, Tensor], worlds: Tensor) -> dict[str, float]:
        self.league.enter(finished, worlds)
        # statistics are from the first seat's view, which is not always that of the member that owns the world
        second = (self.seats.player[worlds, 0] != self.seats.home[worlds]).float()
        lost = 1 - finished[keys.EPISODE_WIN] - finished[keys.EPISODE_DRAW]
        seen = {name: value for name, value in finished.items() if name in BOTH_SEE}
        seen[keys.EPISODE_WIN] = torch.lerp(finished[keys.EPISODE_WIN], lost, second)
        return super()._log_members(seen, worlds)

    @override
    def fitness(self) -> Tensor:
        """Ratings, if members are judged by them, [P]; NaN for members with too few games."""
        if self.evolution.config.fitness != RATING:
            return super().fitness()
        _, games = self.league.taken(slice(None))
        known = games >= self.evolution.config.least_episodes
        return torch.where(known, self.league.ratings.rating[: self.members], math.nan)

    @override
    def best(self) -> int:
        """The member with the highest rating."""
        return int(self.league.ratings.rating[: self.league.mains].argmax())

    @override
    def end_iteration(self, metrics: dict[str, float], updates: Figures) -> dict[str, float]:
        """Rate the players, make an evolution step, keep snapshots and draw opponents, whichever is due."""
        config = self.league.config
        drawing = self.number % config.refresh == 0
        if drawing or self.evolution.is_due(self.frames):
            self.league.rate()
        found = super().end_iteration(metrics, updates)
        of_members = {f"league/{name}": values for name, values in self.league.of_members().items()}
        for member, own in enumerate(self.member_metrics):
            own |= {name: float(values[member]) for name, values in of_members.items()}
        found |= {name: float(values.nanmean()) for name, values in of_members.items()}
        if config.against:
            return found
        self._renew_exploiters()
        if self.frames >= self.league.snapshot_at:
            self.league.snapshot(self.frames)
        elif drawing:
            self.league.draw()
        return {**found, **{f"league/{name}": value for name, value in self.league.summary().items()}}

    @override
    def _apply_step(self, step: EvolutionStep) -> None:
        super()._apply_step(step)
        self.league.follow(step)

    def _renew_exploiters(self) -> None:
        """Reset exploiters that have won, or have not succeeded for long; the pool keeps their snapshots."""
        points, games = self.league.taken(slice(self.league.mains))
        for exploiter in range(self.league.mains, self.members):
            judged = games[exploiter] >= self.evolution.config.least_episodes
            won = judged and points[exploiter] / games[exploiter] >= EXPLOITED
            old = self.frames - self.league.begun[exploiter] >= PATIENCE * self.league.config.snapshot_every
            if won or old:
                self.algorithm.begin_anew(exploiter, self.league.begin_anew(exploiter, self.frames))
                self._write_genes(self.algorithm)


def players(env: EnvBase, config: LeagueConfig) -> list[TensorDictModuleBase]:
    """Scripted players of a world that a league's configuration names.

    Raises:
        ValueError: the world has no such player.
    """
    known = env.players()
    for name in config.scripted:
        if name not in known:
            raise ValueError(f"league.scripted names {name}, no player of this world: use {', '.join(known)}.")
    return [known[name] for name in config.scripted]


def seated(
    policy: TensorDictModuleBase, agent: Agent, league: League, scripted: Sequence[TensorDictModuleBase]
) -> SeatedPolicy:
    """Seat all players: members act by ``policy``, past selves and copies of members by that of their ``agent``."""
    assert agent.group is not None
    seats, device = league.seats, league.stack.flat.device
    frozen = ((league.slots, seats.slots), (league.present, seats.present))
    groups = [PolicyGroup(league.stack, policy, seats.members)]
    groups += [PolicyGroup(stack, agent.policy, rows) for stack, rows in frozen if len(rows)]
    places = [(player, seats.scripted(index).to(device)) for index, player in enumerate(scripted)]
    return SeatedPolicy(groups, places, agent.group)
