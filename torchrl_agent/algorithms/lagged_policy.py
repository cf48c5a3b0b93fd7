"""A behavior policy that is older than the learner by a fixed number of iterations: actors in processes of their own
lag exactly as in one process, so a run can be repeated.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from torchrl_agent.models.agent import Agent

State = dict[str, Tensor]


class LaggedPolicy:
    """The copy of an agent that acts. Each rollout, counted from 0, is collected by version :meth:`version_for`: the
    agent as it was after that number of iterations.

    Args:
        agent: the agent that learns.
        lag: least number of iterations by which a version is older than the agent that learns from its rollout.
        refresh_every: iterations between two versions.

    Attributes:
        agent: the copy.
        iterations: number of iterations that the agent has learned in.
        version: version that the copy holds.
    """

    def __init__(self, agent: Agent, lag: int, refresh_every: int = 1) -> None:
        self.agent = copy.deepcopy(agent).requires_grad_(False)
        self.lag, self.refresh_every = lag, refresh_every
        self.iterations = self.version = 0
        self._later: dict[int, State] = {}
        """Versions that have not acted yet."""

    def version_for(self, rollout: int) -> int:
        """Version that collects a rollout: the newest one that is old enough."""
        return max(0, (rollout - self.lag) // self.refresh_every * self.refresh_every)

    def rollouts_of(self, iterations: int) -> int:
        """Number of rollouts that can be collected with the versions of the given number of iterations."""
        return self.lag + (iterations // self.refresh_every + 1) * self.refresh_every

    @property
    def ahead(self) -> int:
        """Largest number of rollouts collected since the one that is learned from."""
        return self.lag + self.refresh_every

    def still_played(self, stages: Mapping[int, int]) -> dict[int, int]:
        """Stages, by the iterations after which they began, in which an actor may still collect, or collected last."""
        oldest = self.version_for(self.iterations - 1)
        first = max((number for number in stages if number <= oldest), default=oldest)
        return {number: stage for number, stage in stages.items() if number >= first}

    def publishes(self) -> bool:
        """True if the agent as it is now becomes a version."""
        return self.iterations % self.refresh_every == 0

    def learned(self, agent: Agent) -> None:
        """Count one more iteration of the agent, and keep a version of it if one is due."""
        self.iterations += 1
        if self.publishes():
            self.keep(self.iterations, agent.state_dict())

    def keep(self, version: int, state: Mapping[str, Tensor]) -> None:
        """Keep a version until it acts."""
        self._later[version] = {name: value.clone() for name, value in state.items()}

    def take_back(self, agent: Agent) -> None:
        """Set the versions that have not acted to the agent, after it was restored to an earlier state."""
        for version in self._later:
            self.keep(version, agent.state_dict())

    def prepare(self, rollout: int) -> None:
        """Load the version that collects a rollout into the copy."""
        wanted = self.version_for(rollout)
        if wanted in self._later:
            self.agent.load_state_dict(self._later[wanted])  # in place: nothing recompiles
            self.version = wanted
        self._later = {version: state for version, state in self._later.items() if version > wanted}

    def state_dict(self) -> dict[str, Any]:
        """State of the copy, and the versions that have not acted yet."""
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
