"""A population whose members meet each other, their past selves and scripted players, in a world of two seats."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torchrl.envs import EnvBase
from typing_extensions import override

from torchrl_agent.algorithms.algorithm import Algorithm
from torchrl_agent.core import keys
from torchrl_agent.population.agent import LeagueAgent
from torchrl_agent.population.algorithm import MembersAlgorithm
from torchrl_agent.population.config import RATING, LeagueConfig, PopulationConfig
from torchrl_agent.population.evolution import EvolutionStep
from torchrl_agent.population.league import League
from torchrl_agent.population.learner import PopulationLearner
from torchrl_agent.population.seats import Seats, check_seats
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
        algorithms: one per member, with its fresh agent and for the rows that it learns from.
        seats: holder of each seat, see :func:`~torchrl_agent.population.league.make_seats`.

    Attributes:
        league: past selves, standings and ratings.

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
        newborn: Callable[[int], Algorithm] | None = None,
    ) -> None:
        self._league_seed, self._league_config, self.seats = seed, league, seats
        # no member learns from the actions of a frozen or a scripted player
        self.learning = seats.members.flatten().to(algorithms[0].device)
        super().__init__(env, algorithms, config, seed, total_frames, experiment, newborn)
        self.home = seats.home
        self._begun = torch.zeros(self.members, dtype=torch.int64)
        """Frames after which each member was last reset, as exploiters are."""
        self._snapshot_at = league.snapshot_every
        if league.against:
            self.league.meet(self.device)
        else:
            self.league.snapshot(0)
        self.league.clean.fill_(True)  # nothing has been played yet

    @override
    def _assign_worlds(self, env: EnvBase, algorithm: MembersAlgorithm) -> None:
        check_seats(env, "this configuration")
        config, known = self._league_config, env.players()
        for name in config.scripted:
            if name not in known:
                raise ValueError(f"league.scripted names {name}, no player of this world: use {', '.join(known)}.")
        stack = algorithm.stack
        self.league = League(config, self.seats, stack, self._league_seed)
        frozen, scripted = (self.league.slots, self.league.present), [known[name] for name in config.scripted]
        algorithm.seat(LeagueAgent(stack, algorithm.template.agent, self.seats, *frozen, scripted))

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
    def measures(self) -> list[str]:
        """Statistics that both seats share, wins, and the rating."""
        return [*(name for name in super().measures() if name in (*BOTH_SEE, keys.EPISODE_WIN)), RATING]

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
        if self.frames >= self._snapshot_at:
            self.league.snapshot(self.frames)
            self._snapshot_at = self.frames + config.snapshot_every
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
            old = self.frames - self._begun[exploiter] >= PATIENCE * self.league.config.snapshot_every
            if won or old:
                self.algorithm.begin_anew(exploiter, self.league.begin_anew(exploiter, self.frames))
                self._write_genes(self.algorithm)
                self._begun[exploiter] = self.frames

    # --- saving -------------------------------------------------------------------------------------------------------

    @override
    def bookkeeping(self) -> dict[str, Any]:
        """State of the population, and of the league."""
        mine = {"begun": self._begun.clone(), "snapshot_at": self._snapshot_at}
        return {**super().bookkeeping(), "league": {**self.league.state_dict(), **mine}}

    @override
    def load_bookkeeping(self, state: dict[str, Any]) -> None:
        """Continue what :meth:`bookkeeping` kept."""
        super().load_bookkeeping(state)
        self.league.load_state_dict(state["league"])
        self._begun.copy_(state["league"]["begun"])
        self._snapshot_at = state["league"]["snapshot_at"]
