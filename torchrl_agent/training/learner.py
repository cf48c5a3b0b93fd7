"""The learner: world, agent, algorithm and collector put together, and the state that a checkpoint holds."""

from __future__ import annotations

import logging
import math
import textwrap
from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict
from torchrl.envs import EnvBase

from torchrl_agent.algorithms.algorithm import Algorithm
from torchrl_agent.core import keys, ranks
from torchrl_agent.core.abilities import abilities
from torchrl_agent.core.checkpoint import CheckpointError
from torchrl_agent.core.devices import check_room
from torchrl_agent.models.agent import Agent
from torchrl_agent.modules.specs import group_spec
from torchrl_agent.optimization.schedules import LearningRateConfig, check_schedule
from torchrl_agent.optimization.sharding import own_state, whole_state
from torchrl_agent.training.collector import RolloutCollector, agent_rows, finished_episodes, kept_once, truncates_once
from torchrl_agent.training.governor import Governor, GovernorConfig
from torchrl_agent.training.metrics import EpisodeWindow, Figures, train_metrics
from torchrl_agent.transforms import get_statistics, set_statistics

logger = logging.getLogger(__name__)


class Learner:
    """An agent that learns in a world. :func:`torchrl_agent.loop.iterate` turns its loop::

        env = ArenaEnv(256)
        agent = Agent(env)
        learner = Learner(env, agent, PPO(agent, PPOConfig(), rows=256), total_frames=1_000_000)

    Args:
        env: a batched TorchRL environment.
        agent: actor and critic for it.
        algorithm: the algorithm that improves the agent.
        collector: collects the rollouts in ``agent.attach(env)``; by default ``algorithm.config.rollout_steps`` long,
            compiled as the algorithm is.
        total_frames: number of frames to train for, which is also the length of a learning-rate schedule.
        governor: settings of the governor that rolls collapses back, or None.
        experiment: the experiment that it was made from, or None: only with one can it be saved as a run.

    Attributes:
        frames: number of frames seen so far, by each member of a population, by all ranks together.
        members: number of agents.

    Raises:
        ValueError: rollout and replay do not fit into memory.
    """

    members = 1
    learning: torch.Tensor | None = None
    """Indices of the rows of a rollout to learn from, int64 [rows]; None for all."""

    def __init__(
        self,
        env: EnvBase,
        agent: Agent,
        algorithm: Algorithm,
        collector: RolloutCollector | None = None,
        total_frames: int = 1_000_000,
        governor: GovernorConfig | None = None,
        experiment: Any = None,
    ) -> None:
        self.agent, self.algorithm, self.experiment = agent, algorithm, experiment
        self.total_frames = total_frames
        self.env: EnvBase = agent.attach(env) if collector is None else collector.env
        self.device = algorithm.device
        self.num_envs = self.env.batch_size[0]
        steps = algorithm.config.rollout_steps if collector is None else collector.steps
        if self.members == 1:  # else each begins with its own seed, whatever its rank
            ranks.broadcast_state(agent)
        algorithm.truncates_once = truncates_once(self.env, steps)
        algorithm.set_env(self.env)
        if collector is None:
            self._check_room(steps)
            replays = algorithm.replay is not None
            collector = RolloutCollector(
                self.env,
                algorithm.behavior,
                steps,
                algorithm.acceleration,
                algorithm.updater.autocast,
                replays=replays,
                values=algorithm.reads_values,
            )
        self.collector = collector
        self.episodes = EpisodeWindow(max(100, self.num_envs * ranks.size()))
        self.governor = None if governor is None else Governor(governor, algorithm, self.episodes.size)
        self.frames = 0
        self.number = 0

    def _check_room(self, steps: int) -> None:
        """Raise ValueError if rollout and replay do not fit into the device's free memory."""
        once = [] if self.algorithm.replay is not None else kept_once(self.env, self.agent, steps)
        frame = self.env.fake_tensordict().exclude(*((keys.NEXT, key) for key in once))
        step = sum(value.numel() * value.element_size() for value in frame.values(True, True))
        kept, fix = f"a rollout of {steps} steps of {self.num_envs} worlds", "algorithm.rollout_steps"
        needed = steps * step
        if self.algorithm.replay is not None:
            rows = math.prod(group_spec(self.env).shape)
            size = self.algorithm.replay.size
            kept, fix = f"{kept} with a replay of {size} frames", f"algorithm.replay_size, {fix}"
            needed += size // rows * step
        check_room(needed, self.device, kept, f"{fix} or world.num_envs")

    def frames_played(self, rollout: TensorDict) -> int:
        """Number of frames that all ranks collected while this one collected a rollout."""
        return rollout.numel() * ranks.size()

    def collect(self) -> TensorDict:
        """Collect the next rollout [T, N]."""
        return self.collector.collect()

    def improve(self, rollout: TensorDict, learning_rate: float) -> dict[str, torch.Tensor]:
        """Learn from a rollout; returns diagnostics as device scalars."""
        group = self.agent.group
        rows = rollout if group is None else agent_rows(rollout, group, self.learning)
        self.algorithm.anneal(self.frames / self.total_frames)
        if self.governor is None:
            return self.algorithm.learn(rows, learning_rate)
        self.governor.begin(self.frames)
        diagnostics = self.algorithm.learn(rows, learning_rate * self.governor.learning_rate_factor)
        return {**diagnostics, **self.governor.judge(diagnostics)}

    def best_agent(self) -> Agent:
        """Return the agent to evaluate, to film and to show, as it is now: for a population its best member."""
        return self.agent

    def tolerates_nonfinite(self, rollout: TensorDict) -> bool:
        """True if it can learn from a rollout in which the policy wrote non-finite values, as a population may."""
        return False

    def finished(self, rollout: TensorDict, count: int) -> dict[str, torch.Tensor]:
        """Statistics of the episodes that ended in a rollout, ``count`` of them on this rank, on the CPU."""
        return finished_episodes(rollout, self.collector.statistics, count)

    def log_episodes(self, rollout: TensorDict, finished: dict[str, torch.Tensor]) -> dict[str, float]:
        """Add a rollout's :meth:`finished` episodes to statistics and curriculum; returns the metrics of both."""
        self.episodes.add(finished)
        curriculum = abilities(self.env).update_curriculum(finished)
        return {**self.episodes.metrics(), **{f"curriculum/{name}": value for name, value in curriculum.items()}}

    def end_iteration(self, metrics: dict[str, float], updates: Figures) -> dict[str, float]:
        """Finish an iteration, given metrics of its episodes and diagnostics of its updates; returns further metrics.
        The host waits for the updates only where they decide.
        """
        if self.governor is None:
            return {}
        return self.governor.act({**metrics, **train_metrics(updates.read())}, self.frames)

    @property
    def compile_seconds(self) -> float:
        """Time in seconds spent on first calls, which compile."""
        return sum(part.compile_seconds for part in (*self.collector.accelerated, *self.algorithm.accelerated))

    def modes(self) -> dict[str, str]:
        """Execution modes of rollouts and updates, see :data:`~torchrl_agent.optimization.compilation.MODES`."""
        return {"rollout": self.collector.mode, "update": self.algorithm.mode}

    def statistics(self) -> dict[str, Any]:
        """Normalization statistics as plain numbers."""
        return get_statistics(self.agent.normalizer, self.algorithm.scaler)

    def set_normalization_stats(self, statistics: dict[str, Any]) -> None:
        """Set normalization statistics, or some of them, by the names of :meth:`statistics`.

        Raises:
            ValueError: a name is unknown, or a value does not fit; nothing is changed then.
        """
        set_statistics(self.agent.normalizer, self.algorithm.scaler, {**self.statistics(), **statistics})

    def set_learning_rate(self, rate: float) -> None:
        """Train on at a constant learning rate, instead of the schedule's.

        Raises:
            ValueError: it is not above 0.
        """
        schedule = LearningRateConfig(rate)
        check_schedule(schedule)
        self.algorithm.config.learning_rate = schedule

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values from which :meth:`load_state_dict` continues bit by bit."""
        return {
            "agent": whole_state(self.best_agent().state_dict()),
            "algorithm": self.algorithm.state_dict(),
            "replay": None if self.algorithm.replay is None else self.algorithm.replay.state_dict(),
            "governor": None if self.governor is None else self.governor.state_dict(),
            "frames": self.frames,
            "number": self.number,
            **self.bookkeeping(),
            **self.collector.worlds(),
            **random_state(self.device),
        }

    def bookkeeping(self) -> dict[str, Any]:
        """Episode statistics, as part of :meth:`state_dict`."""
        return {"episodes": self.episodes.state_dict()}

    def load_bookkeeping(self, state: dict[str, Any]) -> None:
        """Restore the statistics of :meth:`bookkeeping`."""
        self.episodes.load_state_dict(state["episodes"])

    def load_agent(self, state: dict[str, Any]) -> None:
        """Restore the agent."""
        self.agent.load_state_dict(own_state(self.agent, state))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue; a world without saved state (one that is not ours) begins new episodes, other ones each time.

        Raises:
            CheckpointError: the checkpoint is of another model or world.
        """
        try:
            self.load_agent(state["agent"])
            self.algorithm.load_state_dict(state["algorithm"])
            if self.algorithm.replay is not None:
                if state.get("replay") is None:  # of an older checkpoint, or one that was copied without its file
                    logger.warning("the checkpoint has no replay (a .replay.pt beside it): it begins empty")
                self.algorithm.replay.load_state_dict(state.get("replay"))
            if self.governor is not None and state["governor"] is not None:
                self.governor.load_state_dict(state["governor"])
            self.collector.load_worlds(state)
            world = abilities(self.env)
            if state.get("curriculum") is not None and world.curriculum is not None:
                world.curriculum.load_state_dict(state["curriculum"])  # of a member that continues alone
                world.begin_stage()
            if state["world"] is None:  # not saved: new episodes, other ones than before these frames
                self.collector.restart(0 if self.experiment is None else self.experiment.seed, state["frames"])
            self.load_bookkeeping(state)
            self.frames, self.number = state["frames"], state["number"]
            load_random_state(state, self.device)
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            reason = textwrap.shorten(str(error), 150, placeholder=" ...")
            raise CheckpointError(
                f"the checkpoint does not fit this configuration ({reason}): leave out changes of world, network and "
                "algorithm, or take the agent along (docs/howto/resume.md)."
            ) from None


def random_state(device: torch.device) -> dict[str, torch.Tensor | None]:
    """State of the random generators of the CPU and of the device; part of a :meth:`Learner.state_dict`."""
    return {
        "random": torch.get_rng_state(),
        "random_cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def load_random_state(state: Mapping[str, Any], device: torch.device) -> None:
    """Restore both random generators; that of a device stays as it is if the state comes from a CPU."""
    torch.set_rng_state(state["random"].cpu())
    if device.type == "cuda" and state["random_cuda"] is not None:
        torch.cuda.set_rng_state(state["random_cuda"].cpu(), device)
