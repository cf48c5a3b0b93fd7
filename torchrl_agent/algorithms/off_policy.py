"""Common base of DQN, SAC and TD3: a replay on the device, n-step transitions, gradient steps in proportion to the
frames collected, and a target network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.envs import EnvBase
from typing_extensions import override

from torchrl_agent.algorithms.algorithm import Algorithm, AlgorithmConfig, check_config
from torchrl_agent.algorithms.hindsight import HindsightReplay, goal_outcome
from torchrl_agent.algorithms.replay import Replay, n_step_transitions
from torchrl_agent.core import keys
from torchrl_agent.core.bounds import FRAMES, MOST, count, number, share
from torchrl_agent.models.agent import Agent
from torchrl_agent.optimization.compilation import AccelerationConfig, CudaGraphFunction
from torchrl_agent.optimization.traced_updater import TracedUpdater
from torchrl_agent.optimization.tracing import TracedFunction
from torchrl_agent.optimization.updater import summarize_updates


@dataclass
class OffPolicyConfig(AlgorithmConfig):
    """Hyper-parameters that algorithms with a replay have."""

    rollout_steps: int = count(8)
    """Rollout length: steps of every world per iteration. No n-step return reaches beyond them."""
    max_grad_norm: float = number(10.0, above=0, infinite=True)
    batch_size: int = count(1024, FRAMES)
    """Batch size: frames per gradient step."""
    replay_ratio: float = number(4.0, above=0, most=MOST)
    """Gradient samples per environment step. It sets the number of gradient steps."""
    replay_size: int = count(200_000, FRAMES)
    """Capacity of the replay buffer in frames. Whole rollouts."""
    learning_starts: int = number(4096, least=0, most=FRAMES)
    """Frames in the replay before the first update."""
    num_steps: int = count(3)
    """n, rewards of an n-step return. It bootstraps after them."""
    target_interval: int = count(1)
    """Gradient steps between target network updates."""
    target_rate: float = number(0.01, above=0, most=1)
    """Polyak coefficient (tau) of the target network. 1 copies the learning network."""
    priority_exponent: float = share(0.0)
    """Alpha of prioritized replay; 0 draws uniformly. The larger, the more frames with a large error are preferred."""
    importance_exponent: float = share(0.4)
    """Beta of the importance-sampling weights. The larger, the more the loss makes up for priorities."""
    hindsight: float = share(0.0)
    """Fraction of replayed frames with a hindsight goal. It is one that their episode reached later (hindsight
    experience replay); 0.8 is k = 4 of Andrychowicz et al. 2017. For worlds that show a desired and an achieved
    goal, with one-step returns."""


class OffPolicy(Algorithm):
    """An algorithm that learns from a replay; see :class:`~torchrl_agent.algorithms.algorithm.Algorithm`. Its loss has
    a ``target``, the weights of its target network, and by ``averaging(rate)`` gives the rule that updates them.

    Attributes:
        target: update rule of the target network.
        updates_at_once: number of gradient steps made together.
    """

    config: OffPolicyConfig
    replay: Replay
    updates_at_once = 1

    def __init__(self, agent: Agent, config: Any, rows: int, acceleration: AccelerationConfig | None = None) -> None:
        check_off_policy(config, rows)
        if agent.recomputes:
            raise ValueError(f"{self.name} learns without recomputation: leave model.recompute empty, or use ppo.")
        super().__init__(agent, config, rows, acceleration)
        self.target = self.loss.averaging(config.target_rate)
        self.replay = self._make_replay(rows)
        on_host = self.device.type == "cpu"  # a GPU captures these as CUDA graphs
        compiled = self.acceleration.advantages and on_host
        self._transitions = TracedFunction("the n-step function", self._assemble, compiled)
        traced = isinstance(self.updater, TracedUpdater) and on_host and not config.hindsight
        self._once = TracedFunction("the update", lambda nothing: self._learn_once(), traced)
        self.program = self._once if traced else self.program
        self.accelerated = (self._transitions, self._once, self.updater.program)
        graphs_on = None if config.hindsight else self.graphs_on  # the world computes rewards of goals on the host
        self.captured = CudaGraphFunction("the update", lambda: self._once(TensorDict()), graphs_on)
        self.frames = self.updates = 0
        self.owed = 0.0
        """Number of frames that are still to be learned from."""

    def _make_replay(self, rows: int) -> Replay:
        config = self.config
        sizes = config.replay_size, config.rollout_steps * rows, config.priority_exponent
        return HindsightReplay(*sizes, rows, config.hindsight) if config.hindsight else Replay(*sizes)

    @override
    def set_env(self, env: EnvBase) -> None:
        """Take the world's reward function of goals, if hindsight is switched on.

        Raises:
            ValueError: the world has no goals.
        """
        if isinstance(self.replay, HindsightReplay):
            self.replay.outcome = goal_outcome(env)

    @override
    def learn(self, rollout: TensorDict, learning_rate: float) -> dict[str, Tensor]:
        """Add a rollout [T, rows] (see ``agent_rows``) to the replay and learn from it; returns diagnostics as device
        scalars, means over the updates made.
        """
        self.updater.begin(learning_rate)
        self._remember(rollout)
        history = [self._update() for _ in range(self._updates_due(rollout.numel()))]
        rate = torch.full((), learning_rate, device=self.device)
        if not history:
            return {"learning_rate": rate}
        diagnostics = summarize_updates({name: torch.stack([each[name] for each in history]) for name in history[0]})
        return {**diagnostics, "updates": self.updates_at_once * diagnostics["updates"], "learning_rate": rate}

    @torch.no_grad()
    def _remember(self, rollout: TensorDict) -> None:
        self.replay.add(self._transitions(rollout))
        self.frames += rollout.numel()

    def _assemble(self, rollout: TensorDictBase) -> dict[NestedKey, Tensor]:
        """Entries of the rollout's transitions [T * rows], with raw rewards; updates reward scaler and normalizer."""
        following, alive = rollout.get(keys.NEXT), rollout.get(keys.ALIVE, None)
        self.scaler.update(following.get(keys.REWARD), following.get(keys.DONE), alive)
        seen = self.agent.critic.in_keys
        now = rollout.select(*seen, keys.ACTION)
        if alive is not None:
            now.set(keys.VALID, alive)
        wanted = following.select(*seen, keys.REWARD, keys.DONE, keys.TERMINATED)
        transitions = n_step_transitions(now, wanted, self.config.gamma, self.config.num_steps).reshape(-1)
        self.agent.normalizer.update(self.agent.normalizer.join(rollout), alive)
        return dict(transitions.items(True, True))

    def _updates_due(self, frames: int) -> int:
        """Number of updates due by the replay ratio after ``frames`` more frames; 0 while an empty replay fills."""
        if not self.has_begun:
            return 0
        self.owed += frames * self.config.replay_ratio
        used = self.config.batch_size * self.updates_at_once
        count = int(self.owed // used)
        self.owed -= count * used
        return count

    @property
    def has_begun(self) -> bool:
        """True if the replay holds enough frames to learn from."""
        return self.replay.filled >= min(self.config.learning_starts, self.replay.size)

    def _update(self) -> dict[str, Tensor]:
        metrics = self.captured()
        self.updates += 1
        if self.config.target_interval > 1 and self.updates % self.config.target_interval == 0:
            self.target.step()
        return {name: value.clone() for name, value in metrics.items()} if self.captured.captured else metrics

    def _learn_once(self) -> dict[str, Tensor]:
        """Learn, and let the target network follow where it follows every time; returns diagnostics."""
        metrics = self._learn()
        if self.config.target_interval == 1:
            self.target.step()
        return metrics

    def _learn(self) -> dict[str, Tensor]:
        """Learn from a batch of the replay; returns diagnostics."""
        index, batch = self.replay.sample(self.config.batch_size, self.config.importance_exponent)
        following = batch.get(keys.NEXT)  # sums of n rewards, scaled and clipped now: old frames count in today's unit
        following.set(keys.REWARD, self.scaler.scale(following.get(keys.REWARD)))
        metrics = self.updater.update(batch)
        self.replay.update_priorities(index, metrics.pop(keys.TD_ERROR))
        return dict(metrics.items())

    # --- saving -------------------------------------------------------------------------------------------------------

    @override
    def tensors(self) -> dict[str, Tensor]:
        """Tensors that learning changes, those of the target network included."""
        target = self.loss.target.flatten_keys(".")
        return {**super().tensors(), **{f"target.{key}": value for key, value in target.items()}}

    @override
    def state_dict(self) -> dict:
        """State of an algorithm, of the target network and the counters; the replay is saved apart."""
        return {
            **super().state_dict(),
            "target": {str(key): value.clone() for key, value in self.loss.target.flatten_keys(".").items()},
            "counters": {"frames": self.frames, "updates": self.updates, "owed": self.owed},
        }

    @override
    def load_state_dict(self, state: dict) -> None:
        """Continue from :meth:`state_dict`; the replay has a state of its own."""
        super().load_state_dict(state)
        self._once.forget()  # the replay's frames move
        for key, value in self.loss.target.flatten_keys(".").items():
            value.data.copy_(state["target"][str(key)])
        for name, value in state["counters"].items():
            setattr(self, name, value)


def check_off_policy(config: OffPolicyConfig, rows: int) -> None:
    """Raise ValueError naming the first hyper-parameter that cannot work."""
    check_config(config)
    if config.hindsight and config.num_steps != 1:
        raise ValueError(
            f"algorithm.num_steps={config.num_steps} adds up rewards of the goal that was played for, and "
            "algorithm.hindsight replays others: use algorithm.num_steps=1."
        )
    frames = config.rollout_steps * rows
    if config.replay_size < frames:
        raise ValueError(
            f"algorithm.replay_size={config.replay_size} cannot hold a rollout of {frames} frames "
            f"({config.rollout_steps} steps x {rows} worlds or agents): give at least {frames}."
        )
