"""Common base of PPO, A2C and IMPALA: values of the critic, advantages, minibatches of frames or whole sequences."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.objectives.value.functional import generalized_advantage_estimate
from typing_extensions import override

from torchrl_agent.algorithms.algorithm import Algorithm, AlgorithmConfig
from torchrl_agent.algorithms.lagged_policy import LaggedPolicy
from torchrl_agent.core import keys, ranks
from torchrl_agent.core.bounds import number, share, weight
from torchrl_agent.core.ranks import explained_variance
from torchrl_agent.losses.policy_gradient import PolicyGradientLoss
from torchrl_agent.models.agent import Agent
from torchrl_agent.optimization.compilation import AccelerationConfig, CompiledFunction, CudaGraphFunction
from torchrl_agent.optimization.schedules import scheduled
from torchrl_agent.optimization.updater import summarize_updates

NEXT_VALUE = "next_value"
"""Values of the observation after each frame, by the agent's ``value_keys``, [..., keys]."""
Signals: TypeAlias = "tuple[Tensor, Tensor, Tensor]"
"""Reward, ``done`` and ``terminated`` that a controller learns from, [T, rows, 1] each."""
Draw: TypeAlias = "Tensor | slice"
"""Indices of the frames or sequences of one minibatch."""
COPIED_AT_ONCE = 1 << 28
"""Bytes of minibatches that are copied out of a rollout together."""
UNROLLED = {"max_fusion_size": 8}
"""Inductor's options for loops over the steps of a rollout: one kernel of 64 steps would take Triton and the assembler
longer than all others of an iteration's updates.
"""
FRAMES_AT_ONCE = 1 << 16
"""Frames per forward pass of the critic over a rollout, which bounds the memory of its activations."""


@dataclass
class ActorCriticConfig(AlgorithmConfig):
    """Hyper-parameters that algorithms with an actor and a critic have."""

    lmbda: float = share(0.95)
    """Lambda of generalized advantage estimation (GAE)."""
    entropy_coeff: float = weight(0.01)
    """Weight of the entropy bonus."""
    final_entropy_coeff: float | None = weight(None)
    """Entropy weight at the end, reached linearly. None keeps it as it is."""
    normalize_entropy: bool = False
    """Take each head's entropy as a fraction of its largest. It is divided by the logarithm of the number of legal
    values, so heads with many and with few are rewarded alike, and one without a choice counts nothing."""
    critic_coeff: float = weight(0.5)
    """Weight of the value loss."""
    lag: int = number(0, least=0)
    """Iterations that the acting policy is behind. 0: it is the one that learns."""


class ActorCritic(Algorithm):
    """An algorithm that learns a policy and its value from fresh rollouts; a subclass implements :meth:`improve`. See
    :class:`~torchrl_agent.algorithms.algorithm.Algorithm`.

    Attributes:
        iteration: all updates of an iteration, given its rollout; one CUDA graph where it can be captured.
    """

    num_epochs = 1
    """Passes over the frames of a rollout."""
    drawn_at_once: int | None = None
    """Frames or sequences of a minibatch, drawn in random order; None for all of them at once."""
    fills_up = False
    """True if the last minibatch of a pass is shorter, and padded with frames that count in no loss."""
    normalizes_with_others = False
    """True if advantages are normalized over the minibatches of all ranks, before the loss sees a part of them."""
    frames_at_once = FRAMES_AT_ONCE
    player: LaggedPolicy | None = None
    """The older copy of the agent that acts, if ``lag`` is above 0."""

    def __init__(self, agent: Agent, config: Any, rows: int, acceleration: AccelerationConfig | None = None) -> None:
        super().__init__(agent, config, rows, acceleration)
        self.captured = CudaGraphFunction("an iteration's updates", self.improve, self.graphs_on)
        self.iteration: Callable[[TensorDict], dict[str, Tensor]] = self.captured.call
        self.annealed: list[tuple[Tensor, str, float, float]] = []
        """Coefficients that move in the course of a training: their tensor, schedule, first and last value."""
        if config.final_entropy_coeff is not None:
            coefficients = config.entropy_coeff, config.final_entropy_coeff
            self.annealed.append((self.loss.objective.entropy_coeff, "linear", *coefficients))
        if config.lag:
            self.lags()

    def lags(self, refresh_every: int = 1) -> None:
        """Collect rollouts with an older copy of the agent."""
        self.player = LaggedPolicy(self.agent, self.config.lag, refresh_every)
        self.behavior, self.reads_values = self.player.agent, False  # an older critic's values would be older, too

    @override
    def anneal(self, progress: float) -> None:
        """Set the :attr:`annealed` coefficients in place, on the device."""
        for coefficient, schedule, start, end in self.annealed:
            coefficient.fill_(scheduled(schedule, start, end, progress))

    @override
    def learn(self, rollout: TensorDict, learning_rate: float) -> dict[str, Tensor]:
        """Improve the agent on a rollout [T, rows] (see ``agent_rows``); returns diagnostics as device scalars, means
        over the updates made.
        """
        self.updater.begin(learning_rate)
        diagnostics = dict(self.iteration(rollout))
        if self.player is not None:
            lag = self.player.iterations - self.player.version_for(self.player.iterations)
            diagnostics["lag"] = torch.full((), float(lag), device=self.device)
            self.player.learned(self.agent)
            self.player.prepare(self.player.iterations)
        rate = torch.full((), learning_rate, device=self.device)
        adaptive = self.updater.adaptive
        return {**diagnostics, "learning_rate": rate if adaptive is None else rate * adaptive.factor}

    @abstractmethod
    def improve(self, rollout: TensorDict) -> dict[str, Tensor]:
        """Make all updates of an iteration from a rollout [T, rows]; returns diagnostics as device scalars."""

    @override
    def tensors(self) -> dict[str, Tensor]:
        """Tensors that learning changes, those of the acting policy included."""
        if self.player is None:
            return super().tensors()
        older = {**dict(self.player.agent.named_parameters()), **dict(self.player.agent.named_buffers())}
        return {**super().tensors(), **{f"behavior.{name}": value for name, value in older.items()}}

    @override
    def on_rollback(self) -> None:
        """Called after an earlier state was restored: kept versions of the acting policy become that state."""
        if self.player is not None:
            self.player.take_back(self.agent)

    @override
    def state_dict(self) -> dict:
        """State of an algorithm, and of the acting policy."""
        return {**super().state_dict(), **({} if self.player is None else self.player.state_dict())}

    @override
    def load_state_dict(self, state: dict) -> None:
        """Continue from :meth:`state_dict`."""
        super().load_state_dict(state)
        if self.player is not None:
            self.player.load_state_dict(state)

    def policy_gradient(self) -> PolicyGradientLoss:
        """Return the policy gradient with a critic, with the configuration's coefficients."""
        config = self.config
        return PolicyGradientLoss(
            self.agent.actor_head,
            self.agent.critic_head,
            critic_coeff=config.critic_coeff,
            entropy_coeff=config.entropy_coeff,
            normalize_entropy=config.normalize_entropy,
        )

    # --- before the updates -------------------------------------------------------------------------------------------

    def values(self, frames: TensorDictBase, acted: bool = False) -> Tensor:
        """State values in float32, [T, N, keys] by the agent's ``value_keys``, the critic's first. In frames that were
        ``acted`` in, the recorded goals are used; in others, modules that have to choose take their most likely
        choice.
        """
        chosen = frames.select(*self.agent.critic.in_keys, *(self.agent.replayed_keys if acted else [])).reshape(-1)
        recall = self.agent.recall() if acted else nullcontext()
        with self.updater.autocast(), recall, set_exploration_type(ExplorationType.DETERMINISTIC):
            evaluated = [self.agent.critic(chunk) for chunk in chosen.split(self.frames_at_once)]
        values = [torch.cat([each.get(key).float() for each in evaluated]) for key in self.agent.value_keys]
        return torch.cat(values, -1).reshape(*frames.shape, -1)

    def last_values(self, following: TensorDictBase) -> Tensor:
        """Values [T, N, keys] of the observation after each frame, valid where an episode was truncated and in the last
        frame; the others are not used and may be anything.
        """
        done, seen = following.get(keys.DONE), following.select(*self.agent.critic.in_keys)
        pictures = following.get(keys.FINAL, None)
        if self.truncates_once or pictures is not None:
            step = (done & ~following.get(keys.TERMINATED)).squeeze(-1).int().argmax(0)
            final = seen[step, torch.arange(len(step), device=step.device)]
            if pictures is not None:
                final.update(pictures[0])
        else:
            # only the device knows which frames are last: a sync would cost more than evaluating all of them
            return self.values(seen)
        final, last = self.values(torch.stack((final, seen[-1]))).split(1)
        return torch.where(done, final, last)

    def rewards(self, rollout: TensorDictBase) -> tuple[Tensor, Signals]:
        """Rewards [T, rows, 1] in units of their discounted sums' standard deviation, of which they become part; and
        the rewards and ends that the controller learns from, as the agent's modules rewrite them.
        """
        following, alive = rollout.get(keys.NEXT), rollout.get(keys.ALIVE, None)
        done, terminated = following.get(keys.DONE), following.get(keys.TERMINATED)
        self.scaler.update(following.get(keys.REWARD), done, alive)
        reward = self.scaler.scale(following.get(keys.REWARD))
        signals = reward, done, terminated
        for module in self.agent.agent_modules.values():
            signals = module.rewrite_rewards(rollout, *signals)
        return reward, signals

    def recorded(self, rollout: TensorDict, reward: Tensor, next_values: Tensor) -> TensorDict:
        """Entries of a rollout [T, rows] that a loss needs, besides the estimated ones."""
        data = rollout.select(*self.agent.recorded_keys, keys.ACTION, keys.LOG_PROB)
        if self.agent.auxiliary:
            data.update(self.agent.compute_targets(rollout, reward, next_values, self.config.lmbda))
        alive = rollout.get(keys.ALIVE, None)
        return data if alive is None else data.set(keys.VALID, alive)

    # --- the updates and after ----------------------------------------------------------------------------------------

    def draws(self, count: int) -> Sequence[Draw]:
        """Draw the minibatches of one pass over ``count`` frames or sequences; returns their indices."""
        if self.drawn_at_once is None:
            return [slice(None)]
        return ranks.permutation(count, self.device).split(self.drawn_at_once)

    def minibatches(self, data: TensorDict, epochs: int = 1) -> Iterator[TensorDict]:
        """Draw the minibatches of some passes over frames or sequences. Those that fit into :data:`COPIED_AT_ONCE`
        together are copied together, one gather for each entry; a rollout of images would not fit into memory twice.
        """
        bytes_each = sum(value[:1].numel() * value.element_size() for value in data.values(True, True))
        for _ in range(epochs):
            if self.drawn_at_once is None:
                yield data
                continue
            draws, frames = self.draws(len(data)), data
            if self.normalizes_with_others:
                advantage, valid = data.get(keys.ADVANTAGE), data.get(keys.VALID, None)
                frames = data.copy().set(keys.ADVANTAGE, ranks.normalized(advantage, torch.stack(draws), valid))
            together = max(1, COPIED_AT_ONCE // max(1, self.drawn_at_once * bytes_each))
            for first in range(0, len(draws), together):
                drawn = frames[torch.cat(draws[first : first + together])].split(self.drawn_at_once)
                yield from (padded(each, self.drawn_at_once) for each in drawn) if self.fills_up else drawn

    def conclude(self, data: TensorDict, history: TensorDict) -> dict[str, Tensor]:
        """Update the normalizer with the frames, which before the updates would have moved the policy away from the
        behavior policy; returns the diagnostics of the updates [updates], and the value loss in the world's rewards.
        """
        self.agent.normalizer.update(self.agent.normalizer.join(data), data.get(keys.VALID, None))
        metrics = summarize_updates(history)
        if "scaled_value_loss" in metrics:
            metrics["value_loss"] = metrics["scaled_value_loss"] * self.scaler.unit.square()
        return metrics


class OnPolicyActorCritic(ActorCritic):
    """An actor-critic whose advantages are those of the behavior policy, by generalized advantage estimation
    (Schulman et al. 2016).

    Attributes:
        estimate: reward scaling and the advantages' arithmetic, perhaps compiled.
    """

    joins_ranks = True
    reads_values = True

    def __init__(self, agent: Agent, config: Any, rows: int, acceleration: AccelerationConfig | None = None) -> None:
        super().__init__(agent, config, rows, acceleration)
        compile = self.acceleration.advantages_on(self.device)
        estimate = CompiledFunction("the advantage function", self._estimate, compile, UNROLLED)
        self.estimate, self.accelerated = estimate.call, (estimate, *self.accelerated)

    @override
    def improve(self, rollout: TensorDict) -> dict[str, Tensor]:
        """Compute advantages, then make an update with each minibatch of every pass over the frames."""
        data, explained = self.advantages(rollout)
        return {**self.conclude(data, self.passes(data)), **explained}

    def passes(self, data: TensorDict) -> TensorDict:
        """Make the updates of every pass over the frames; returns their diagnostics [updates]."""
        return self.updater.updates(self.minibatches(data, self.num_epochs))

    @torch.no_grad()
    def advantages(self, rollout: TensorDict) -> tuple[TensorDict, dict[str, Tensor]]:
        """Frames of the rollout in one row [T * rows] (sequences [rows, T] for an agent with memory) with ``advantage``
        and ``value_target``, and diagnostics: the critic's ``explained_variance``. Frames of dead agents do not count
        (``keys.VALID``).

        State values are those that the rollout recorded, if it did. Values of next states are those of the next frame,
        except at episodes' ends and at the end of the rollout, where the critic evaluates the true final observation.
        """
        judged = self.judged(rollout)
        value, next_value = judged[keys.VALUE], judged[NEXT_VALUE]
        advantage, target, reward, explained = self.estimate(rollout, value, next_value[..., :1])
        data = self.recorded(rollout, reward, next_value)
        data.update({keys.VALUE: value, keys.ADVANTAGE: advantage, keys.VALUE_TARGET: target})
        data = data.transpose(0, 1) if self.agent.sequential else data.reshape(-1)
        return data, {"explained_variance": explained}

    def judged(self, rollout: TensorDictBase) -> dict[str, Tensor]:
        """Compute the critic's ``state_value`` of the frames of a rollout [T, rows], and :data:`NEXT_VALUE`."""
        following = rollout.get(keys.NEXT)
        done, last = following.get(keys.DONE), self.last_values(following)
        if keys.VALUE in rollout.keys():  # recorded when the agent acted
            values = torch.cat([rollout.get(key).float() for key in self.agent.value_keys], -1)
        else:
            values = self.values(rollout, acted=True)
        next_values = torch.where(done, last, torch.cat((values[1:], last[-1:])))
        return {keys.VALUE: values[..., :1], NEXT_VALUE: next_values}

    def _estimate(self, rollout: TensorDictBase, values: Tensor, next_values: Tensor) -> tuple[Tensor, ...]:
        """Advantages, value targets, scaled rewards and the fraction of variance that the values explain."""
        reward, signals = self.rewards(rollout)
        gamma, lmbda = self.config.gamma, self.config.lmbda
        advantage, target = generalized_advantage_estimate(gamma, lmbda, values, next_values, *signals, time_dim=0)
        alive = rollout.get(keys.ALIVE, None)
        counted = torch.ones_like(values, dtype=torch.bool) if alive is None else alive.unsqueeze(-1)
        return advantage, target, reward, explained_variance(target, values, counted)


def padded(minibatch: TensorDict, size: int) -> TensorDict:
    """Minibatch padded to a size with frames, or sequences, that count in no loss (``keys.VALID``)."""
    if keys.VALID not in minibatch.keys():
        minibatch.set(keys.VALID, torch.ones(minibatch.shape, dtype=torch.bool, device=minibatch.device))
    missing = size - len(minibatch)
    if not missing:
        return minibatch
    filling = minibatch[:1].expand(missing, *minibatch.shape[1:]).clone()
    return torch.cat([minibatch, filling.set(keys.VALID, torch.zeros_like(filling.get(keys.VALID)))])
