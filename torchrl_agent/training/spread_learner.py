"""Agents of one world in several processes, for worlds with so many that one process cannot act and learn for all.

Every rank steps the whole world, which is deterministic, so its privileged ``state`` is there for a centralized critic.
Networks run for this rank's agents alone, in acting, judging and updates; actions are exchanged in every step.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn
from torch.utils._pytree import tree_map
from torchrl.envs import EnvBase
from typing_extensions import override

from torchrl_agent import keys
from torchrl_agent.algorithms.algorithm import Algorithm
from torchrl_agent.core import ranks
from torchrl_agent.core.abilities import ability
from torchrl_agent.core.errors import TrainingError
from torchrl_agent.models.agent import Agent
from torchrl_agent.training.collector import RolloutCollector
from torchrl_agent.training.learner import Learner
from torchrl_agent.training.metrics import EpisodeWindow


class SpreadAgent(nn.Module):
    """What a collector needs of an agent that acts for some agents of every world.

    Args:
        agent: acts.
        own: its agents, by their places.
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
        """Acts for these, and hears how the others act."""
        return SpreadPolicy(self.agent.policy, self.group, self.own)

    def policy_and_value(self) -> TensorDictModuleBase:
        """The same with the critic's values."""
        return SpreadPolicy(self.agent.policy_and_value(), self.group, self.own)


class SpreadPolicy(TensorDictModuleBase):
    """A policy of a whole group, for this rank's part of it. What is written for the others is 0, but their actions.

    Args:
        policy: of any number of agents.
        group: key of the agents' tensordict, [N, A].
        own: places of this rank's agents.
    """

    def __init__(self, policy: TensorDictModuleBase, group: str, own: slice) -> None:
        super().__init__()
        self.policy, self.group, self.own = policy, group, own
        self.in_keys, self.out_keys = list(policy.in_keys), list(policy.out_keys)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the actions of all, and the rest for these."""
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
    """Raise ValueError unless a world's agents can be shared by the ranks, each of which steps it."""
    agents = ability(env, "num_agents")
    if agents is None or not ability(env, "branchless", False):
        raise ValueError(
            "run.spread_agents is set, but this world has no several agents, or cannot be stepped alike by all: use "
            "run.spread_agents=false."
        )
    ranks.share(agents, "the number of agents of a world")


class SpreadLearner(Learner):
    """A learner that learns from what this rank's agents of every world did; the others' learn from theirs.

    Args:
        env: all worlds.
        agent: of all.
        algorithm: for this rank's rows.
        total_frames, experiment: as for :class:`~torchrl_agent.training.learner.Learner`.
    """

    def __init__(self, env: EnvBase, agent: Agent, algorithm: Algorithm, total_frames: int, experiment: Any) -> None:
        count = env.num_agents // ranks.size()
        self.own = slice(ranks.rank() * count, (ranks.rank() + 1) * count)
        attached, steps = agent.attach(env), algorithm.config.rollout_steps
        rest = (steps, algorithm.acceleration, algorithm.updater.autocast)
        self._group = agent.group
        places = torch.arange(env.batch_size[0] * env.num_agents).view(-1, env.num_agents)
        self._learning = places[:, self.own].flatten().to(algorithm.device)
        with ranks.alone():  # rollouts are as long as those of one process
            collector = RolloutCollector(
                attached,
                SpreadAgent(agent, self.own),
                *rest,
                values=algorithm.reads_values,  # type: ignore[arg-type]
            )
        super().__init__(env, agent, algorithm, collector, total_frames, experiment=experiment)
        self.episodes = EpisodeWindow(max(100, self.num_envs))

    @override
    def collect(self) -> TensorDict:
        """The next rollout [T, N], in which all ranks' worlds went the same way.

        Raises:
            TrainingError: they did not.
        """
        with ranks.dealing("agents"):
            rollout = super().collect()
        ends = rollout.get((keys.NEXT, keys.DONE)).float()
        told = [rollout.get((keys.NEXT, *key)).sum() for key in self.collector.statistics.values()]
        seen = torch.stack([ends.sum(), *told]).double().nan_to_num()
        if not bool((ranks.largest(seen) == -ranks.largest(-seen)).all()):
            raise TrainingError(
                "the worlds of the ranks have come apart, though each should step the same: use machines of one kind, "
                "or run.spread_agents=false."
            )
        return rollout

    @override
    def frames_played(self, rollout: TensorDict) -> int:
        """Frames of a rollout: every rank played the same."""
        return rollout.numel()

    @override
    def rows(self, rollout: TensorDict) -> TensorDictBase:
        """Those of this rank's agents."""
        return super().rows(rollout)[:, self._learning]

    @override
    def log_episodes(self, rollout: TensorDict) -> dict[str, float]:
        """Take in the episodes, which every rank has seen."""
        with ranks.alone():
            return super().log_episodes(rollout)

    @override
    def state_dict(self) -> dict[str, Any]:
        """What one process would save."""
        state = super().state_dict()
        scaler = state["algorithm"]["reward_scaler"]
        if ranks.rank() == 0:  # which has returns [ranks, N, own agents] in a row
            scaler["returns"] = self._in_turn(scaler["returns"], ranks.size(), self.num_envs)
        return state

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from it."""
        algorithm = state["algorithm"]
        returns = self._in_turn(algorithm["reward_scaler"]["returns"], self.num_envs, ranks.size())
        scaler = {**algorithm["reward_scaler"], "returns": returns}
        super().load_state_dict({**state, "algorithm": {**algorithm, "reward_scaler": scaler}})

    def _in_turn(self, rows: Tensor, first: int, second: int) -> Tensor:
        """Rows [first, second, own agents] as rows [second, first, own agents]."""
        return rows.view(first, second, -1, *rows.shape[1:]).transpose(0, 1).reshape(rows.shape)

    @override
    def _worlds(self) -> dict[str, Any]:
        """The worlds, which every rank has, with what each knows of its own agents."""
        with ranks.alone():
            state = super()._worlds()
        if state["root"] is None:
            return state
        mine = tree_map(lambda rows: rows[:, self.own], state["root"][self._group])
        return {**state, "root": {**state["root"], self._group: ranks.join_rows(mine, 1)}}

    @override
    def _load_worlds(self, world: dict[str, Any], root: dict[str, Any]) -> None:
        with ranks.alone():
            super()._load_worlds(world, root)
