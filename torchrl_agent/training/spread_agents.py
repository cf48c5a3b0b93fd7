"""Agents of one world split over several processes, for worlds with too many agents for one process.

Every rank steps the whole world, which is deterministic, so its privileged ``state`` is there for a centralized critic.
Networks run for this rank's agents alone, in acting, evaluation and updates; actions are exchanged in every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch.utils._pytree import tree_map
from torchrl.envs import EnvBase
from typing_extensions import override

from torchrl_agent.algorithms.algorithm import Algorithm
from torchrl_agent.core import keys, ranks
from torchrl_agent.core.abilities import abilities
from torchrl_agent.core.errors import TrainingError
from torchrl_agent.models.agent import AdaptedAgent
from torchrl_agent.training.collector import RolloutCollector


class SpreadPolicy(TensorDictModuleBase):
    """A policy of a whole group, evaluated for this rank's agents. Entries of the others are 0, except their actions.

    Args:
        policy: policy of any number of agents.
        group: key of the agents' tensordict, [N, A].
        own: indices of this rank's agents.
    """

    def __init__(self, policy: TensorDictModuleBase, group: str, own: slice) -> None:
        super().__init__()
        self.policy, self.group, self.own = policy, group, own
        self.in_keys, self.out_keys = list(policy.in_keys), list(policy.out_keys)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the actions of all agents, and the other entries for this rank's."""
        everybody = tensordict.get(self.group)
        acted = self.policy(tensordict.copy().set(self.group, everybody[:, self.own].copy()))
        for key in self.out_keys:
            value = acted.get(key, None)
            if value is None:
                continue
            whole = value.new_zeros(*everybody.shape, *value.shape[2:])
            whole[:, self.own] = value
            if key == (self.group, keys.ACTION):
                whole = ranks.total(whole)
            tensordict.set(key, whole)
        return tensordict


def check_spread(env: EnvBase) -> None:
    """Raise ValueError unless a world's agents can be split over the ranks, each of which steps it."""
    agents = abilities(env).num_agents
    if agents is None or not abilities(env).branchless:
        raise ValueError(
            "run.spread_agents is set, but this world has no several agents, or cannot be stepped alike by all: use "
            "run.spread_agents=false."
        )
    ranks.share(agents, "the number of agents of a world")


class SpreadCollector(RolloutCollector):
    """Collects in worlds that every rank steps, with the actions of all ranks' agents.

    Args:
        env: all worlds.
        algorithm: the algorithm that learns from the frames of this rank's agents, and whose agent acts for them.

    Attributes:
        own: indices of this rank's agents.
        learning: rows of a rollout that are this rank's agents', int64 [rows].
    """

    def __init__(self, env: EnvBase, algorithm: Algorithm) -> None:
        agent, worlds, count = algorithm.agent, env.batch_size[0], env.num_agents // ranks.size()
        assert agent.group is not None
        self.own = slice(ranks.rank() * count, (ranks.rank() + 1) * count)
        rows = torch.arange(worlds * env.num_agents).view(worlds, -1)
        self.learning = rows[:, self.own].flatten().to(algorithm.device)
        algorithm.worlds = worlds
        acting = AdaptedAgent(agent, partial(SpreadPolicy, group=agent.group, own=self.own), "agents")
        rest = (algorithm.config.rollout_steps, algorithm.acceleration, algorithm.updater.autocast)
        with ranks.alone():  # every rank has all worlds, so rollouts are those of one process
            super().__init__(env, acting, *rest, values=algorithm.reads_values)

    @override
    def collect(self) -> TensorDict:
        """Collect the next rollout [T, N], in which all ranks' worlds are the same.

        Raises:
            TrainingError: the worlds of the ranks differ.
        """
        rollout = super().collect()
        ends = rollout.get((keys.NEXT, keys.DONE)).float()
        sums = [rollout.get((keys.NEXT, *key)).sum() for key in self.statistics.values()]
        seen = torch.stack([ends.sum(), *sums]).double().nan_to_num()
        if not bool((ranks.largest(seen) == -ranks.largest(-seen)).all()):
            raise TrainingError(
                "the worlds of the ranks have come apart, though each should step the same: use machines of one kind, "
                "or run.spread_agents=false."
            )
        return rollout

    @override
    def worlds(self) -> dict[str, Any]:
        """State of the worlds, which every rank has, joined with the root entries of each rank's own agents."""
        with ranks.alone():
            state = super().worlds()
        if state["root"] is None:
            return state
        group = self.agent.group
        mine = tree_map(lambda rows: rows[:, self.own], state["root"][group])
        return {**state, "root": {**state["root"], group: ranks.gather_rows(mine, 1)}}

    @override
    def load_worlds(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`worlds`: every rank has all of them."""
        with ranks.alone():
            super().load_worlds(state)
