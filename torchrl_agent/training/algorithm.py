"""What every learning algorithm has: an agent, an optimiser that skips bad updates on the device, a reward scaler."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from tensordict import TensorDict
from torch import Tensor
from torchrl.envs import EnvBase
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import set_recurrent_mode

from torchrl_agent.errors import TrainingError
from torchrl_agent.models.agent import Agent, ModelConfig
from torchrl_agent.ranges import INFINITE
from torchrl_agent.training.acceleration import Accelerated, AccelerationConfig, Captured, fastest
from torchrl_agent.training.replay import Replay
from torchrl_agent.training.schedules import LearningRateConfig, check_schedule
from torchrl_agent.transforms import RewardScaler

PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
SKIPS_BEFORE_HALT = 3
DEVICE_OPTIONS = ("lr", "fused", "foreach", "capturable")
"""Options of the optimiser that belong to this device and process, not to a checkpoint."""


class NonFiniteError(TrainingError):
    """The loss or its gradient was not finite in several updates in a row, or a rollout was not.

    Args:
        message: one sentence.
        culprits: keys of what was not finite in a rollout.
    """

    def __init__(self, message: str, culprits: Sequence[tuple[str, ...]] = ()) -> None:
        super().__init__(message)
        self.culprits = list(culprits)


@dataclass
class AlgorithmConfig:
    """Hyper-parameters that every algorithm has."""

    rollout_steps: int = 64
    """Steps of every world per iteration."""
    learning_rate: LearningRateConfig = field(default_factory=LearningRateConfig)
    gamma: float = 0.99
    """Discount."""
    max_grad_norm: float = field(default=0.5, metadata=INFINITE)
    scale_rewards: bool = True
    """Divide rewards by the running deviation of the discounted return."""
    clip_rewards: float = field(default=10.0, metadata=INFINITE)
    """Largest absolute scaled reward."""
    adam_epsilon: float = 1e-5
    precision: str = "float32"
    """float32, or autocast to bfloat16, or to float16 with gradient scaling."""


class Algorithm(ABC):
    """Improves an agent; owns the optimiser, the reward scaler and the compiled functions.

    Args:
        agent: what learns.
        config: hyper-parameters.
        rows: worlds per rollout, times their agents.
        acceleration: what to compile.

    Attributes:
        behaviour: the agent that plays, which is the one that learns unless the algorithm says otherwise.
        accelerated: the functions that may be compiled.
        captured: what of an iteration may be one CUDA graph; a subclass says it.

    Raises:
        ValueError: hyper-parameters that cannot work.
    """

    name: ClassVar[str]
    """Its name in a configuration, and that of its section."""
    truncates_once = False
    """No row of a rollout is truncated twice (see ``training/rollout.py``), so few last observations need a value."""
    captured: Captured
    replay: Replay | None = None
    """Frames that are learnt from again, if it keeps any: large, so they are saved apart."""

    def __init__(self, agent: Agent, config: Any, rows: int, acceleration: AccelerationConfig) -> None:
        check_config(config, self.name)
        self.agent = self.behaviour = agent
        self.config, self.rows = config, rows
        self.parameters = [parameter for parameter in agent.parameters() if parameter.requires_grad]
        parts = [[each for each in part if each.requires_grad] for part in agent.parts()]
        self.parts = [part for part in parts if part]
        self.module_names = agent.module_names()
        self.device = device = next(agent.parameters()).device
        self.scaler = RewardScaler(rows, config.gamma, config.clip_rewards, enabled=config.scale_rewards).to(device)
        self.loss = self.make_loss().to(device)
        self.learning_rate = torch.tensor(config.learning_rate.initial, device=device)
        self._graphs_on = device if acceleration.cudagraphs and device.type == "cuda" else None
        self.optimizer = self.make_optimizer()
        self.grad_scaler = torch.amp.GradScaler(device.type, enabled=config.precision == "float16")
        self.skips_in_row = torch.zeros((), device=device)
        self.most_skips_in_row = torch.zeros((), device=device)
        self._loss_function = Accelerated("the loss", self._losses, acceleration.update)
        self._update_minibatch = Accelerated("the update", self._update_eagerly, compile=False)
        self.accelerated: tuple[Accelerated, ...] = (self._loss_function,)

    @classmethod
    def make_agent(cls, env: EnvBase, model: ModelConfig, config: Any) -> Agent:
        """A fresh agent of the kind that this algorithm improves."""
        return Agent(env, model, config.gamma)

    @abstractmethod
    def make_loss(self) -> torch.nn.Module:
        """The objective: a module from a minibatch to ``loss_*`` and diagnostics."""

    @abstractmethod
    def learn(self, rollout: TensorDict, learning_rate: float) -> dict[str, Tensor]:
        """Improve the agent on a rollout [T, rows] (see ``agent_rows``); returns diagnostics as device scalars, means
        over the updates made.
        """

    @property
    def fused(self) -> bool:
        """Whether the optimiser is a fused one, which can leave everything as it is without asking."""
        return bool(self.optimizer.defaults.get("fused"))

    @property
    def mode(self) -> str:
        """How updates are made, see :data:`~torchrl_agent.training.acceleration.MODES`."""
        return fastest(self.captured, self._loss_function)

    def make_optimizer(self) -> torch.optim.Optimizer:
        """The optimiser, with a learning rate that is :attr:`learning_rate` where the device allows it."""
        return make_adam(self.parameters, self.learning_rate, self.config.adam_epsilon)

    def check(self, metrics: dict[str, float]) -> None:
        """Raise NonFiniteError if several updates in a row had to be skipped (``metrics`` on the host, from
        :meth:`learn`).
        """
        skipped = int(metrics.get("skipped_in_row", 0))
        if skipped >= SKIPS_BEFORE_HALT:
            raise NonFiniteError(
                f"the loss or its gradient was not finite in {skipped} updates in a row: lower "
                f"{self.name}.learning_rate.initial, or look for NaN in the world's observations and rewards."
            )

    # --- updates ------------------------------------------------------------------------------------------------------

    def _begin(self, learning_rate: float) -> None:
        """What comes first in every iteration."""
        self.learning_rate.fill_(learning_rate)
        for group in self.optimizer.param_groups:
            if group["lr"] is not self.learning_rate:
                group["lr"] = learning_rate
        self.most_skips_in_row.zero_()

    def _losses(self, minibatch: TensorDict) -> tuple[Tensor, dict[str, Tensor]]:
        losses = self.loss(minibatch)
        total = sum(value for key, value in losses.items() if key.startswith("loss_"))
        return total, {key: value.detach() for key, value in losses.items()}

    def _update_eagerly(self, minibatch: TensorDict) -> TensorDict:
        """One optimiser step; skipped on the device if the loss or gradient is not finite, or if :meth:`_wanted` says
        so.
        """
        self.optimizer.zero_grad(set_to_none=True)
        # set here, the modes are what compiled code finds in every call; set inside it, they would be changed for it
        modes = set_exploration_type(ExplorationType.DETERMINISTIC), set_recurrent_mode(minibatch.ndim == 2)
        with self.autocast(), modes[0], modes[1]:
            total, metrics = self._loss_function(minibatch)
        self.grad_scaler.scale(total).backward()
        self.grad_scaler.unscale_(self.optimizer)
        norms = self._clip_gradients()
        norm = norms["grad_norm"]
        wanted = self._wanted(metrics)
        finite = total.detach().isfinite()
        bad = ~(finite if self.grad_scaler.is_enabled() else finite & norm.isfinite())  # scaled gradients may overflow
        self.skips_in_row.copy_(torch.where(bad, self.skips_in_row + 1, 0.0))
        self.most_skips_in_row.copy_(torch.maximum(self.most_skips_in_row, self.skips_in_row))
        made = finite & norm.isfinite() & wanted
        self._apply_gradients(~made)
        metrics.update(norms, made=made.float(), skipped=bad.float(), skipped_in_row=self.most_skips_in_row.clone())
        return TensorDict(metrics)

    def _clip_gradients(self) -> dict[str, Tensor]:
        """Clip the gradient of each of the agent's parts by its own norm, or the large ones would leave little of the
        others; returns the norms before that: ``grad_norm`` of the whole and ``grad_norm/<module>`` of each module.
        """
        of_parts, of_modules = [], defaultdict(list)
        for part in self.parts:
            learning = [parameter for parameter in part if parameter.grad is not None]
            if not learning:
                continue
            norms = torch._foreach_norm([parameter.grad for parameter in learning])
            of_parts.append(torch.linalg.vector_norm(torch.stack(norms)))
            torch.nn.utils.clip_grads_with_norm_(learning, self.config.max_grad_norm, of_parts[-1])
            for parameter, norm in zip(learning, norms, strict=True):
                of_modules[self.module_names[parameter]].append(norm)
        named = {f"grad_norm/{name}": torch.linalg.vector_norm(torch.stack(each)) for name, each in of_modules.items()}
        return {"grad_norm": torch.stack(of_parts).norm(), **named}

    def _wanted(self, metrics: dict[str, Tensor]) -> Tensor | bool:
        """Whether this update shall be made, given the loss's diagnostics; may be a tensor on the device."""
        return True

    def _apply_gradients(self, skip: Tensor) -> None:
        """One step of the optimiser, which changes nothing where ``skip`` (bool []) says so."""
        if self.fused:
            self.optimizer.found_inf = skip.float()  # where it is 1, fused Adam leaves weights, moments and steps alone
            self.optimizer.step()
        else:
            before = [each.clone() for each in self._optimized()]
            self.optimizer.step()
            now = self._optimized()
            before += [torch.zeros_like(each) for each in now[len(before) :]]  # moments that the first step has made
            for each, old in zip(now, before, strict=True):
                each.copy_(torch.where(skip.to(each.device), old, each))
        self.grad_scaler.update()

    def _optimized(self) -> list[Tensor]:
        """What a step of the optimiser changes."""
        states = [value for state in self.optimizer.state.values() for value in state.values()]
        return [each.data for each in (*self.parameters, *states) if isinstance(each, Tensor)]

    def autocast(self) -> torch.autocast | nullcontext:
        """The precision in which the networks act and learn, as a context."""
        dtype = PRECISIONS[self.config.precision]
        return nullcontext() if dtype is None else torch.autocast(self.device.type, dtype)

    # --- saving -------------------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """All that learning changes, by name: the tensors themselves, so that what is copied into them holds in
        captured graphs too. Not the running returns of the worlds' episodes, which go with the worlds.
        """
        found: dict[str, Tensor] = {**dict(self.agent.named_parameters()), **dict(self.agent.named_buffers())}
        for number, parameter in enumerate(self.parameters):
            state = self.optimizer.state.get(parameter, {})
            found |= {f"optimizer.{number}.{name}": value for name, value in state.items() if isinstance(value, Tensor)}
        found |= {f"reward_scaler.{name}": value for name, value in self.scaler.running.named_buffers()}
        return {**found, "skips_in_row": self.skips_in_row}

    def state_dict(self) -> dict:
        """Optimiser, reward scaler and gradient scaler."""
        return {
            "name": self.name,
            "optimizer": self.optimizer.state_dict(),
            "reward_scaler": self.scaler.state_dict(),
            "grad_scaler": self.grad_scaler.state_dict(),
            "skips_in_row": self.skips_in_row.clone(),
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue from :meth:`state_dict`.

        Raises:
            ValueError: another algorithm wrote it.
        """
        if state["name"] != self.name:
            raise ValueError(f"algorithm {state['name']} wrote it, this is {self.name}")
        mine = [{name: group.get(name) for name in DEVICE_OPTIONS} for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(state["optimizer"])
        for group, options in zip(self.optimizer.param_groups, mine, strict=True):
            group.update(options)
        self.scaler.load_state_dict(state["reward_scaler"])
        self.grad_scaler.load_state_dict(state["grad_scaler"])
        self.skips_in_row.copy_(state["skips_in_row"])
        self.captured.forget()  # the optimiser's moments have moved


def make_adam(parameters: list[torch.nn.Parameter], learning_rate: Tensor, epsilon: float) -> torch.optim.Adam:
    """Adam with a learning rate that is a tensor, fused, where the device has it."""
    try:
        on_cuda = learning_rate.device.type == "cuda"
        return torch.optim.Adam(parameters, lr=learning_rate, eps=epsilon, fused=True, capturable=on_cuda)
    except RuntimeError:
        return torch.optim.Adam(parameters, lr=float(learning_rate), eps=epsilon, foreach=True)


def check_config(config: Any, name: str) -> None:
    """Raise ValueError naming the first hyper-parameter of section ``name`` that cannot work."""
    check_schedule(config.learning_rate, name)
    check_positive(config, name, "rollout_steps", "max_grad_norm")
    check_share(config, name, "gamma")
    if config.precision not in PRECISIONS:
        raise ValueError(f"{name}.precision is {config.precision!r}: use one of {', '.join(PRECISIONS)}.")


def check_positive(config: Any, section: str, *names: str) -> None:
    """Raise ValueError naming the first of these hyper-parameters that is not above 0."""
    for name in names:
        if getattr(config, name) <= 0:
            raise ValueError(f"{section}.{name} is {getattr(config, name)}: it must be above 0.")


def check_share(config: Any, section: str, *names: str) -> None:
    """Raise ValueError naming the first of these hyper-parameters that is not within [0, 1]."""
    for name in names:
        if not 0 <= getattr(config, name) <= 1:
            raise ValueError(f"{section}.{name} is {getattr(config, name)}: it must be within [0, 1].")


def summarise_updates(updates: TensorDict) -> dict[str, Tensor]:
    """Means of diagnostics [updates] over the updates that were made; extremes (``max_*``, ``min_*``) and counts over
    all.
    """
    made = updates["made"]
    number = made.sum().clamp_min(1)
    extremes = {key: updates[key].amax() for key in updates.keys() if key.startswith("max_")}
    extremes |= {key: updates[key].amin() for key in updates.keys() if key.startswith("min_")}
    counts = {
        "updates": made.sum(),
        "skipped": updates["skipped"].sum(),
        "skipped_in_row": updates["skipped_in_row"].amax(),
    }
    kept = [key for key in updates.keys() if key not in (*extremes, *counts, "made")]
    means = {key: torch.where(made > 0, updates[key], 0.0).sum() / number for key in kept}
    return means | extremes | counts
