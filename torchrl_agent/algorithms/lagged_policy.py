"""A player that is older than the learner, by a stated number of iterations: players in processes of their own lag as
those in one do, and a run can be repeated.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from torchrl_agent.models.agent import Agent

State = dict[str, Tensor]


class LaggedPolicy:
    """The copy of an agent that plays. Each rollout, counted from 0, is played by its version :meth:`version_for`: what
    the agent was after so many iterations.

    Args:
        agent: that learns.
        lag: iterations by which a version is at least older than the agent that learns from its rollout.
        refresh_every: iterations between two versions.

    Attributes:
        agent: the copy.
        iterations: that the agent has learned in.
        version: what the copy is.
    """

    def __init__(self, agent: Agent, lag: int, refresh_every: int = 1) -> None:
        self.agent = copy.deepcopy(agent).requires_grad_(False)
        self.lag, self.refresh_every = lag, refresh_every
        self.iterations = self.version = 0
        self._later: dict[int, State] = {}
        """Versions whose time has not come."""

    def version_for(self, rollout: int) -> int:
        """The version that plays a rollout: the newest one that is old enough."""
        return max(0, (rollout - self.lag) // self.refresh_every * self.refresh_every)

    def rollouts_of(self, iterations: int) -> int:
        """How many rollouts can be played with the versions of so many iterations."""
        return self.lag + (iterations // self.refresh_every + 1) * self.refresh_every

    @property
    def ahead(self) -> int:
        """How many rollouts may have been played since the one that is learned from."""
        return self.lag + self.refresh_every

    def still_played(self, stages: Mapping[int, int]) -> dict[int, int]:
        """Of stages, by the iterations after which they began, those in which somebody may yet play, or played last."""
        oldest = self.version_for(self.iterations - 1)
        first = max((number for number in stages if number <= oldest), default=oldest)
        return {number: stage for number, stage in stages.items() if number >= first}

    def publishes(self) -> bool:
        """Whether the agent is a version as it is now."""
        return self.iterations % self.refresh_every == 0

    def learned(self, agent: Agent) -> None:
        """Note that the agent has learned in one more iteration."""
        self.iterations += 1
        if self.publishes():
            self.keep(self.iterations, agent.state_dict())

    def keep(self, version: int, state: Mapping[str, Tensor]) -> None:
        """Keep a version until its time comes."""
        self._later[version] = {name: value.clone() for name, value in state.items()}

    def take_back(self, agent: Agent) -> None:
        """Note that the agent is as it was earlier: so are the versions that have not played."""
        for version in self._later:
            self.keep(version, agent.state_dict())

    def prepare(self, rollout: int) -> None:
        """Let the copy be the version that plays a rollout."""
        wanted = self.version_for(rollout)
        if wanted in self._later:
            self.agent.load_state_dict(self._later[wanted])  # in place: nothing recompiles
            self.version = wanted
        self._later = {version: state for version, state in self._later.items() if version > wanted}

    def state_dict(self) -> dict[str, Any]:
        """The copy, and versions whose time has not come."""
        return {
            "behavior": {name: value.clone() for name, value in self.agent.state_dict().items()},
            "iterations": self.iterations,
            "version": self.version,
            "later": {version: dict(state) for version, state in self._later.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        self.agent.load_state_dict(state["behavior"])
        self.iterations = state["iterations"]
        self.version = state["version"]
        self._later = dict(state["later"])
