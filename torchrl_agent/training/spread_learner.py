"""Agents of one world split over several processes, for worlds with too many agents for one process.

Every rank steps the whole world, which is deterministic, so its privileged ``state`` is there for a centralized critic.
Networks run for this rank's agents alone, in acting, evaluation and updates; actions are exchanged in every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn
from torch.utils._pytree import tree_map
from torchrl.envs import EnvBase
from typing_extensions import override

from torchrl_agent.algorithms.algorithm import Algorithm
from torchrl_agent.core import keys, ranks
from torchrl_agent.core.abilities import abilities
from torchrl_agent.core.errors import TrainingError
from torchrl_agent.models.agent import Agent
from torchrl_agent.training.collector import RolloutCollector
from torchrl_agent.training.learner import Learner
from torchrl_agent.training.metrics import EpisodeWindow


class SpreadAgent(nn.Module):
    """Collector's view of an agent that acts for some agents of every world.

    Args:
        agent: the agent that acts.
        own: indices of this rank's agents.
    """

    def __init__(self, agent: Agent, own: slice) -> None:
        super().__init__()
        self.__dict__["agent"] = agent
        assert agent.group is not None
        self.own, self.group = own, agent.group
        self.recorded_keys, self.input_keys = agent.recorded_keys, agent.input_keys
        self.__dict__["critic"] = agent.critic

    @property
    def policy(self) -> TensorDictModuleBase:
        """Policy that acts for this rank's agents, and receives the actions of the others."""
        return SpreadPolicy(self.agent.policy, self.group, self.own)

    def policy_and_value(self) -> TensorDictModuleBase:
        """Return the same policy with the critic's values."""
        return SpreadPolicy(self.agent.policy_and_value(), self.group, self.own)


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
        agent: agent for all of their agents.
        own: indices of this rank's agents.
        algorithm: the algorithm that learns from them.
    """

    def __init__(self, env: EnvBase, agent: Agent, own: slice, algorithm: Algorithm) -> None:
        self.own, steps = own, algorithm.config.rollout_steps
        rest = (steps, algorithm.acceleration, algorithm.updater.autocast)
        with ranks.alone():  # rollouts are as long as those of one process
            super().__init__(env, SpreadAgent(agent, own), *rest, values=algorithm.reads_values)  # type: ignore[arg-type]

    @override
    def collect(self) -> TensorDict:
        """Collect the next rollout [T, N], in which all ranks' worlds are the same.

        Raises:
            TrainingError: the worlds of the ranks differ.
        """
        with ranks.dealing("agents"):
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


class SpreadLearner(Learner):
    """A learner that learns from the frames of this rank's agents of every world; other ranks learn from theirs.

    Args:
        env: all worlds.
        agent: agent for all of them.
        algorithm: algorithm for this rank's rows.
        total_frames, experiment: as for :class:`~torchrl_agent.training.learner.Learner`.
    """

    def __init__(self, env: EnvBase, agent: Agent, algorithm: Algorithm, total_frames: int, experiment: Any) -> None:
        count = env.num_agents // ranks.size()
        self.own = slice(ranks.rank() * count, (ranks.rank() + 1) * count)
        places = torch.arange(env.batch_size[0] * env.num_agents).view(-1, env.num_agents)
        self.learning = places[:, self.own].flatten().to(algorithm.device)
        collector = SpreadCollector(agent.attach(env), agent, self.own, algorithm)
        super().__init__(env, agent, algorithm, collector, total_frames, experiment=experiment)
        self.episodes = EpisodeWindow(max(100, self.num_envs))

    @override
    def frames_played(self, rollout: TensorDict) -> int:
        """Number of frames of a rollout: every rank collected the same ones."""
        return rollout.numel()

    @override
    def finished(self, rollout: TensorDict, count: int) -> dict[str, Tensor]:
        """Statistics of the episodes, all of which every rank has."""
        with ranks.alone():
            return super().finished(rollout, count)

    @override
    def state_dict(self) -> dict[str, Any]:
        """State that one process would save."""
        state = super().state_dict()
        scaler = state["algorithm"]["reward_scaler"]
        if ranks.rank() == 0:  # which has returns [ranks, N, own agents] in a row
            scaler["returns"] = self._in_turn(scaler["returns"], ranks.size(), self.num_envs)
        return state

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        algorithm = state["algorithm"]
        returns = self._in_turn(algorithm["reward_scaler"]["returns"], self.num_envs, ranks.size())
        scaler = {**algorithm["reward_scaler"], "returns": returns}
        super().load_state_dict({**state, "algorithm": {**algorithm, "reward_scaler": scaler}})

    def _in_turn(self, rows: Tensor, first: int, second: int) -> Tensor:
        """Reorder rows [first, second, own agents] to rows [second, first, own agents]."""
        return rows.view(first, second, -1, *rows.shape[1:]).transpose(0, 1).reshape(rows.shape)
