"""Proximal policy optimisation (Schulman et al. 2017): advantages, then epochs of clipped minibatch updates, all on the
device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import set_recurrent_mode
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value.functional import generalized_advantage_estimate

from torchrl_agent import keys
from torchrl_agent.models.agent import Agent
from torchrl_agent.training.acceleration import Accelerated, AccelerationConfig
from torchrl_agent.training.schedules import LearningRateConfig, check_schedule
from torchrl_agent.transforms import RewardScaler

PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
LARGEST_LOG_RATIO = 20.0
"""Probability ratios are kept within exp(+-20), so that no pair of log-probabilities overflows."""
SKIPS_BEFORE_HALT = 3
DEVICE_OPTIONS = ("lr", "fused", "foreach", "capturable")
"""Options of the optimiser that belong to this device and process, not to a checkpoint."""
FRAMES_AT_ONCE = 1 << 16
"""The critic looks at a rollout in pieces of this size, which bounds the memory of its activations."""


class NonFiniteError(RuntimeError):
    """The loss or its gradient was not finite in several updates in a row."""


@dataclass
class PPOConfig:
    """Hyper-parameters of PPO."""

    rollout_steps: int = 64
    """Steps of every world per iteration."""
    minibatch_size: int = 4096
    """Frames per update; must divide rollout_steps * worlds."""
    num_epochs: int = 4
    """Passes over each rollout."""
    learning_rate: LearningRateConfig = field(default_factory=LearningRateConfig)
    gamma: float = 0.99
    """Discount."""
    lmbda: float = 0.95
    """Decay of generalised advantage estimation."""
    clip_epsilon: float = 0.2
    """Range of the probability ratio."""
    clip_value: float | None = None
    """Range of the value's change per iteration; None does not clip."""
    entropy_coeff: float = 0.01
    critic_coeff: float = 0.5
    max_grad_norm: float = 0.5
    normalize_advantage: bool = True
    """Zero mean and unit variance of advantages in each minibatch."""
    target_kl: float | None = None
    """Stop the iteration's updates once the approximate KL exceeds 1.5 times this; None never stops."""
    scale_rewards: bool = True
    """Divide rewards by the running deviation of the discounted return."""
    clip_rewards: float = 10.0
    """Largest absolute scaled reward."""
    adam_epsilon: float = 1e-5
    precision: str = "float32"
    """float32, or autocast to bfloat16, or to float16 with gradient scaling."""


class PPOLoss(ClipPPOLoss):
    """:class:`~torchrl.objectives.ClipPPOLoss` that never waits for the host, compiles as one graph and bounds the
    log-ratio.

    TorchRL's own samples the entropy again when compiled, asks the device whether it is finite when not, and tests the
    value clip as a tensor. Adds ``kl`` (Schulman's unbiased estimate ``mean(ratio - 1 - log ratio)``), ``min_ratio``
    and ``max_ratio``.
    """

    def __init__(self, agent: Agent, config: PPOConfig) -> None:
        super().__init__(
            agent.actor_head,
            agent.critic_head,
            functional=False,
            clip_epsilon=config.clip_epsilon,
            entropy_coeff=config.entropy_coeff,
            critic_coeff=config.critic_coeff,
            loss_critic_type="l2",
            normalize_advantage=config.normalize_advantage,
            log_explained_variance=False,
            clip_value=config.clip_value,
        )
        self.encoder, self.auxiliary = agent.encoder, agent.auxiliary
        self._buffers.pop("clip_value", None)
        self.__dict__["clip_value"] = config.clip_value

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Losses (``loss_*``) and diagnostics of one minibatch [B], or of sequences [B, T]; the encoder runs once."""
        tensordict = self.encoder(tensordict.copy())
        losses = super().forward(tensordict)
        with torch.no_grad():  # the same numbers once more, which compiled code computes only once
            log_ratio = self._log_weight(tensordict, tensordict.batch_size)[0]
        ratio = log_ratio.exp()
        losses.set("kl", (ratio - 1 - log_ratio).mean())
        losses.set("min_ratio", ratio.min())
        for auxiliary in self.auxiliary:
            losses.update(auxiliary(tensordict))
        valid = tensordict.get(keys.VALID, None)
        if valid is not None:  # frames that do not count have only zeros to add to these means
            share = valid.float().mean().clamp_min(1e-8)
            for name in ("kl", "entropy", "clip_fraction"):
                losses.set(name, losses.get(name) / share)
        return losses.exclude("kl_approx", "ESS", "mean_ratio")

    def _log_weight(self, tensordict: TensorDictBase, adv_shape: torch.Size) -> tuple:
        log_weight, *rest = super()._log_weight(tensordict, adv_shape)
        return log_weight.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO), *rest

    def _get_entropy(self, dist: torch.distributions.Distribution, adv_shape: torch.Size) -> Tensor:
        return dist.entropy().unsqueeze(-1)


class PPO:
    """The learner: owns the optimiser, the reward scaler and the compiled functions.

    Args:
        agent: actor and critic.
        config: hyper-parameters.
        rows: worlds per rollout, times their agents.
        acceleration: what to compile.

    Raises:
        ValueError: hyper-parameters that cannot work.
    """

    def __init__(self, agent: Agent, config: PPOConfig, rows: int, acceleration: AccelerationConfig) -> None:
        check_ppo(config, rows, sequences=agent.sequential)
        self.agent, self.config = agent, config
        self.parameters = [parameter for parameter in agent.parameters() if parameter.requires_grad]
        self.device = device = next(agent.parameters()).device
        self.cudagraphs = acceleration.cudagraphs and device.type == "cuda" and config.precision != "float16"
        self.scaler = RewardScaler(rows, config.gamma, config.clip_rewards, enabled=config.scale_rewards).to(device)
        self.loss = PPOLoss(agent, config).to(device)
        self.learning_rate = torch.tensor(config.learning_rate.initial, device=device)
        self.optimizer, self.fused = make_adam(
            self.parameters, self.learning_rate, config.adam_epsilon, self.cudagraphs
        )
        self.grad_scaler = torch.amp.GradScaler(device.type, enabled=config.precision == "float16")
        self.running = torch.ones((), device=device)
        """1 while this iteration's updates go on, 0 once the KL stopped them."""
        self.skips_in_row = torch.zeros((), device=device)
        self.most_skips_in_row = torch.zeros((), device=device)
        self._advantages = Accelerated("the advantage function", self._estimate, acceleration.advantages)
        loss = Accelerated("the loss", self._losses, acceleration.update)
        self.accelerated = (self._advantages, loss)
        self._loss_function = loss
        self._update_minibatch = Accelerated("the update", self._update_eagerly, False, self.cudagraphs)

    # --- one iteration ------------------------------------------------------------------------------------------------

    def learn(self, rollout: TensorDict, learning_rate: float) -> dict[str, Tensor]:
        """Improve the agent on a rollout [T, rows] (see ``agent_rows``); returns diagnostics as device scalars, means
        over the updates made.
        """
        self.learning_rate.fill_(learning_rate)
        if not self.fused:
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate
        self.running.fill_(1.0)
        self.most_skips_in_row.zero_()
        data, explained = self.advantages(rollout)
        history = []
        for _ in range(self.config.num_epochs):
            history += [self._update_minibatch(minibatch) for minibatch in self._minibatches(data)]
            if self.config.target_kl is not None and not bool(self.running):
                break
        self.agent.normalizer.update(self.agent.normalizer.join(data), data.get(keys.VALID, None))
        return {**_summarise(history), "explained_variance": explained, "learning_rate": self.learning_rate.clone()}

    def check(self, metrics: dict[str, float]) -> None:
        """Raise NonFiniteError if several updates in a row had to be skipped (``metrics`` on the host, from
        :meth:`learn`).
        """
        if metrics["skipped_in_row"] >= SKIPS_BEFORE_HALT:
            raise NonFiniteError(
                f"the loss or its gradient was not finite in {int(metrics['skipped_in_row'])} updates in a row; the "
                "last checkpoint is good: resume from it with a lower ppo.learning_rate.initial, or look for NaN in "
                "the world's observations and rewards."
            )

    # --- advantages ---------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def advantages(self, rollout: TensorDict) -> tuple[TensorDict, Tensor]:
        """The rollout's frames in one row [T * rows] (sequences [rows, T] for an agent with memory) with ``advantage``
        and ``value_target``, and the critic's explained variance. Frames of the dead do not count (``keys.VALID``).

        Values of next states are those of the next frame, except at truncations and at the end of the rollout, where
        the critic looks at the true terminal or last observation.
        """
        values = self._values(rollout)
        next_values = self._values(rollout.get(keys.NEXT))
        following, alive = rollout.get(keys.NEXT), rollout.get(keys.ALIVE, None)
        advantage, target, reward, explained = self._advantages(
            values,
            next_values,
            *(following.get(key) for key in (keys.REWARD, keys.DONE, keys.TERMINATED)),
            alive,
        )
        data = rollout.select(*self.agent.recorded_keys, keys.ACTION, keys.LOG_PROB)
        data.update(self.agent.look_back(rollout, reward, next_values, self.config.lmbda))
        data.update({keys.VALUE: values, keys.ADVANTAGE: advantage, keys.VALUE_TARGET: target})
        if alive is not None:
            data.set(keys.VALID, alive)
        return data.transpose(0, 1) if self.agent.sequential else data.reshape(-1), explained

    def _values(self, frames: TensorDictBase) -> Tensor:
        """State values [T, N, 1] in float32."""
        chosen = frames.select(*self.agent.critic.in_keys).reshape(-1)
        # a manager that has to choose a goal for a frame that was never acted in takes the likeliest
        with self._autocast(), set_exploration_type(ExplorationType.DETERMINISTIC):
            values = [self.agent.critic(chunk).get(keys.VALUE) for chunk in chosen.split(FRAMES_AT_ONCE)]
        return torch.cat(values).float().reshape(*frames.shape, 1)

    def _estimate(
        self,
        values: Tensor,
        next_values: Tensor,
        reward: Tensor,
        done: Tensor,
        terminated: Tensor,
        alive: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        self.scaler.update(reward, done, alive)
        reward = self.scaler.scale(reward)
        advantage, target = generalized_advantage_estimate(
            self.config.gamma,
            self.config.lmbda,
            values,
            next_values,
            reward,
            done,
            terminated,
            time_dim=0,
        )
        counted = torch.ones_like(done) if alive is None else alive.unsqueeze(-1)
        explained = 1 - _variance(target - values, counted) / _variance(target, counted).clamp_min(1e-8)
        return advantage, target, reward, explained

    # --- updates ------------------------------------------------------------------------------------------------------

    def _minibatches(self, data: TensorDict) -> Iterator[TensorDict]:
        """Shuffled once on the device, then slices: of frames, or of whole sequences."""
        order = torch.randperm(data.shape[0], device=self.device)
        return iter(data[order].split(self.config.minibatch_size // math.prod(data.shape[1:])))

    def _losses(self, minibatch: TensorDict) -> tuple[Tensor, dict[str, Tensor]]:
        losses = self.loss(minibatch)
        total = sum(value for key, value in losses.items() if key.startswith("loss_"))
        return total, {key: value.detach() for key, value in losses.items()}

    def _update_eagerly(self, minibatch: TensorDict) -> TensorDict:
        """One optimiser step; skipped on the device if the loss or gradient is not finite, or if the KL stopped the
        iteration.
        """
        self.optimizer.zero_grad(set_to_none=True)
        # set here, the modes are what compiled code finds in every call; set inside it, they would be changed for it
        modes = set_exploration_type(ExplorationType.DETERMINISTIC), set_recurrent_mode(minibatch.ndim == 2)
        with self._autocast(), modes[0], modes[1]:
            total, metrics = self._loss_function(minibatch)
        self.grad_scaler.scale(total).backward()
        self.grad_scaler.unscale_(self.optimizer)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.config.max_grad_norm)
        if self.config.target_kl is not None:
            self.running.mul_(metrics["kl"] <= 1.5 * self.config.target_kl)
        finite = total.detach().isfinite()
        bad = ~(finite if self.grad_scaler.is_enabled() else finite & norm.isfinite())  # scaled gradients may overflow
        self.skips_in_row.copy_(torch.where(bad, self.skips_in_row + 1, 0.0))
        self.most_skips_in_row.copy_(torch.maximum(self.most_skips_in_row, self.skips_in_row))
        made = finite & norm.isfinite() & (self.running > 0)
        self._apply_gradients(~made)
        metrics.update(
            grad_norm=norm, made=made.float(), skipped=bad.float(), skipped_in_row=self.most_skips_in_row.clone()
        )
        return TensorDict(metrics)

    def _apply_gradients(self, skip: Tensor) -> None:
        if self.fused and not self.grad_scaler.is_enabled():
            self.optimizer.found_inf = skip.float()  # where it is 1, fused Adam leaves weights, moments and steps alone
            self.optimizer.step()
            return
        if not bool(skip):
            self.grad_scaler.step(self.optimizer)
        self.grad_scaler.update()

    def _autocast(self) -> torch.autocast | nullcontext:
        dtype = PRECISIONS[self.config.precision]
        return nullcontext() if dtype is None else torch.autocast(self.device.type, dtype)

    # --- saving -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict:
        """Optimiser, reward scaler and gradient scaler."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "reward_scaler": self.scaler.state_dict(),
            "grad_scaler": self.grad_scaler.state_dict(),
            "skips_in_row": self.skips_in_row.clone(),
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue from :meth:`state_dict`."""
        mine = [{name: group[name] for name in DEVICE_OPTIONS} for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(state["optimizer"])
        for group, options in zip(self.optimizer.param_groups, mine, strict=True):
            group.update(options)
        self.scaler.load_state_dict(state["reward_scaler"])
        self.grad_scaler.load_state_dict(state["grad_scaler"])
        self.skips_in_row.copy_(state["skips_in_row"])


def make_adam(
    parameters: list[torch.nn.Parameter], learning_rate: Tensor, epsilon: float, capturable: bool
) -> tuple[torch.optim.Adam, bool]:
    """Adam with a learning rate that is a tensor, fused where the device has it; also whether it is fused."""
    try:
        return torch.optim.Adam(parameters, lr=learning_rate, eps=epsilon, fused=True, capturable=capturable), True
    except RuntimeError:
        return torch.optim.Adam(parameters, lr=float(learning_rate), eps=epsilon, foreach=True), False


def _variance(values: Tensor, counted: Tensor) -> Tensor:
    """Variance of the ``counted`` values."""
    number = counted.sum()
    mean = torch.where(counted, values, 0.0).sum() / number
    return torch.where(counted, (values - mean) ** 2, 0.0).sum() / number


def check_ppo(config: PPOConfig, rows: int, sequences: bool = False) -> None:
    """Raise ValueError naming the first hyper-parameter that cannot work."""
    check_schedule(config.learning_rate)
    frames = config.rollout_steps * rows
    positive = ("rollout_steps", "minibatch_size", "num_epochs", "max_grad_norm", "clip_epsilon")
    for name in positive:
        if getattr(config, name) <= 0:
            raise ValueError(f"ppo.{name} is {getattr(config, name)}: it must be above 0.")
    for name in ("gamma", "lmbda"):
        if not 0 <= getattr(config, name) <= 1:
            raise ValueError(f"ppo.{name} is {getattr(config, name)}: it must be within [0, 1].")
    if frames % config.minibatch_size:
        raise ValueError(
            f"ppo.minibatch_size={config.minibatch_size} does not divide the {frames} frames of a rollout "
            f"({config.rollout_steps} steps x {rows} worlds or agents): choose a divisor of {frames}."
        )
    if sequences and config.minibatch_size % config.rollout_steps:
        raise ValueError(
            f"ppo.minibatch_size={config.minibatch_size} is no multiple of ppo.rollout_steps={config.rollout_steps}: "
            "an "
            "agent with memory learns from whole sequences."
        )
    if config.precision not in PRECISIONS:
        raise ValueError(f"ppo.precision is {config.precision!r}: use one of {', '.join(PRECISIONS)}.")


def _summarise(history: list[TensorDict]) -> dict[str, Tensor]:
    """Means over the updates that were made; extremes and counts over all."""
    updates = torch.stack(history)
    made = updates["made"]
    number = made.sum().clamp_min(1)
    extremes = {"max_ratio": updates["max_ratio"].amax(), "min_ratio": updates["min_ratio"].amin()}
    counts = {
        "updates": made.sum(),
        "skipped": updates["skipped"].sum(),
        "skipped_in_row": updates["skipped_in_row"].amax(),
    }
    kept = [key for key in updates.keys() if key not in (*extremes, *counts, "made")]
    means = {key: torch.where(made > 0, updates[key], 0.0).sum() / number for key in kept}
    return means | extremes | counts
