"""The learner: world, agent, algorithm and collector put together, and the state that a checkpoint holds."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
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
from torchrl_agent.training.collector import WRITTEN_TOGETHER, RolloutCollector, agent_rows, kept_once, truncates_once
from torchrl_agent.training.governor import Governor, GovernorConfig
from torchrl_agent.training.metrics import EpisodeWindow, Figures, train_metrics, window_size
from torchrl_agent.transforms import get_statistics, set_statistics


class Learner:
    """An agent that learns in a world. :func:`torchrl_agent.loop.iterate` turns its loop::

        env = ArenaEnv(256)
        agent = Agent(env)
        learner = Learner(env, agent, PPO(agent, PPOConfig(), rows=256), total_frames=1_000_000)

    Methods stand in the order in which loop and run call them. A learner of several agents overrides
    :meth:`tolerates_nonfinite`, :meth:`improve`, :meth:`log_episodes`, :meth:`end_iteration` and :meth:`best_agent`,
    adds to :attr:`parts` whatever else a checkpoint has to hold, and does in :meth:`load_state_dict` what follows it.

    Args:
        env: a batched TorchRL environment.
        agent: actor and critic for it.
        algorithm: the algorithm that improves the agent.
        collector: collects the rollouts in ``agent.attach(env)``; by default ``algorithm.config.rollout_steps`` long,
            compiled as the algorithm is.
        total_frames: number of frames to train for, which is also the length of a learning-rate schedule.
        governor: settings of the governor that rolls collapses back, or None.
        experiment: the experiment that it was made from, or None: only with one can it be saved as a run.
        learning: indices of the rows of a rollout to learn from, int64 [rows]; None for all.

    Attributes:
        agent: the agent that learns; of several, a copy of the one that :meth:`best_agent` returned last.
        frames: number of frames seen so far, by each member of a population, by all ranks together.
        members: number of agents.
        parts: objects with a state of their own, by name in a checkpoint; None for those that this training lacks.

    Raises:
        ValueError: rollout and replay do not fit into memory.
    """

    members = 1

    def __init__(
        self,
        env: EnvBase,
        agent: Agent,
        algorithm: Algorithm,
        collector: RolloutCollector | None = None,
        total_frames: int = 1_000_000,
        governor: GovernorConfig | None = None,
        experiment: Any = None,
        learning: Tensor | None = None,
    ) -> None:
        self.agent, self.algorithm, self.experiment = agent, algorithm, experiment
        self.total_frames, self.learning = total_frames, learning
        self.env: EnvBase = agent.attach(env) if collector is None else collector.env
        self.device = algorithm.device
        self.num_envs = self.env.batch_size[0]
        steps = algorithm.config.rollout_steps if collector is None else collector.steps
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
        worlds = self.num_envs * collector.num_ranks
        self.episodes = EpisodeWindow(window_size(worlds))
        self.governor = None if governor is None else Governor(governor, algorithm, max(self.episodes.size, worlds))
        self.parts: dict[str, Any] = {"algorithm": algorithm, "replay": algorithm.replay}
        self.parts |= {"governor": self.governor, "episodes": self.episodes}
        self.frames = 0
        self.number = 0

    def _check_room(self, steps: int) -> None:
        """Raise ValueError if rollout and replay do not fit into the device's free memory."""
        once = [] if self.algorithm.replay is not None else kept_once(self.env, self.agent, steps)
        frame = self.env.fake_tensordict().exclude(*((keys.NEXT, key) for key in once))
        step = sum(value.numel() * value.element_size() for value in frame.values(True, True))
        kept, fix = f"a rollout of {steps} steps of {self.num_envs} worlds", "algorithm.rollout_steps"
        together = min(steps, WRITTEN_TOGETHER) if abilities(self.env).branchless else 1  # frames outside the buffers
        needed = (steps + together) * step
        if self.algorithm.replay is not None:
            rows = math.prod(group_spec(self.env).shape)
            size = self.algorithm.replay.size
            kept, fix = f"{kept} with a replay of {size} frames", f"algorithm.replay_size, {fix}"
            needed += size // rows * step
        check_room(needed, self.device, kept, f"{fix} or world.num_envs")

    # --- what the loop calls ------------------------------------------------------------------------------------------

    def tolerates_nonfinite(self, rollout: TensorDict) -> bool:
        """True if it can learn from a rollout in which the policy wrote non-finite values, as a population may."""
        return False

    def improve(self, rollout: TensorDict, learning_rate: float) -> dict[str, Tensor]:
        """Learn from a rollout; returns diagnostics as device scalars."""
        group = self.agent.group
        rows = rollout if group is None else agent_rows(rollout, group, self.learning)
        self.algorithm.anneal(self.frames / self.total_frames)
        if self.governor is None:
            return self.algorithm.learn(rows, learning_rate)
        self.governor.begin(self.frames)
        diagnostics = self.algorithm.learn(rows, learning_rate * self.governor.learning_rate_factor)
        return {**diagnostics, **self.governor.judge(diagnostics)}

    def log_episodes(self, rollout: TensorDict, finished: dict[str, Tensor]) -> dict[str, float]:
        """Add a rollout's ``finished`` episodes to statistics and curriculum; returns the metrics of both."""
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

    def best_agent(self) -> Agent:
        """Return the agent to evaluate, to film and to show, as it is now: for a population its best member."""
        return self.agent

    # --- what a run asks ----------------------------------------------------------------------------------------------

    @property
    def compile_seconds(self) -> float:
        """Time in seconds spent on first calls, which compile."""
        return sum(part.compile_seconds for part in (*self.collector.accelerated, *self.algorithm.accelerated))

    def modes(self) -> dict[str, str]:
        """Execution modes of rollouts and updates, see :data:`~torchrl_agent.optimization.compilation.MODES`."""
        return {"rollout": self.collector.mode, "update": self.algorithm.mode}

    def statistics(self) -> dict[str, Any]:
        """Normalization statistics of :meth:`best_agent` as plain numbers."""
        return get_statistics(self.best_agent().normalizer, self.algorithm.scaler)

    def set_normalization_stats(self, statistics: dict[str, Any]) -> None:
        """Set normalization statistics, or some of them, by the names of :meth:`statistics`.

        Raises:
            ValueError: a name is unknown, a value does not fit, or there are several agents; nothing is changed then.
        """
        if self.members > 1:
            raise ValueError(
                "each member of a population has normalization statistics of its own: set those of one agent."
            )
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
            **{name: None if part is None else part.state_dict() for name, part in self.parts.items()},
            "frames": self.frames,
            "number": self.number,
            **self.collector.worlds(),
            **random_state(self.device),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue; a world without saved state (one that is not ours) begins new episodes, other ones each time.

        Raises:
            CheckpointError: the checkpoint is of another model or world.
        """
        try:
            self.agent.load_state_dict(own_state(self.agent, state["agent"]))
            for name, part in self.parts.items():
                if part is not None:
                    part.load_state_dict(state.get(name))
            self.collector.load_worlds(state)
            world = abilities(self.env)
            if state.get("curriculum") is not None and world.curriculum is not None:
                world.curriculum.load_state_dict(state["curriculum"])  # of a member that continues alone
                world.begin_stage()
            if state["world"] is None:  # not saved: new episodes, other ones than before these frames
                self.collector.restart(0 if self.experiment is None else self.experiment.seed, state["frames"])
            self.frames, self.number = state["frames"], state["number"]
            load_random_state(state, self.device)
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            reason = textwrap.shorten(str(error), 150, placeholder=" ...")
            raise CheckpointError(
                f"the checkpoint does not fit this configuration ({reason}): leave out changes of world, network and "
                "algorithm, or take the agent along (docs/howto/resume.md)."
            ) from None


def random_state(device: torch.device) -> dict[str, Tensor | None]:
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
