"""Base class of the learning algorithms: an agent, its updater and a reward scaler."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from tensordict import TensorDict
from torch import Tensor
from torchrl.envs import EnvBase

from torchrl_agent.algorithms.replay import Replay
from torchrl_agent.core import ranks
from torchrl_agent.core.bounds import check_ranges, choice, count, number, share, weight
from torchrl_agent.models.agent import Agent, Behavior
from torchrl_agent.models.config import ModelConfig
from torchrl_agent.optimization.adam import make_adam
from torchrl_agent.optimization.compilation import AccelerationConfig, CompiledFunction, CudaGraphFunction, fastest
from torchrl_agent.optimization.precision import AUTO, PRECISIONS, SMALLEST_LAYER, resolve, use_float8
from torchrl_agent.optimization.schedules import ADAPTIVE, LearningRateConfig, check_schedule
from torchrl_agent.optimization.sharding import check_shards, own, sharded
from torchrl_agent.optimization.traced_updater import make_updater
from torchrl_agent.transforms import RewardScaler


@dataclass
class AlgorithmConfig:
    """Hyper-parameters that every algorithm has."""

    _target_: str = ""
    """Path of the algorithm's class. In a configuration also a short name: ppo, a2c, impala, dqn, sac, td3."""
    rollout_steps: int = count(64)
    """Rollout length: steps of every world per iteration."""
    learning_rate: LearningRateConfig = field(default_factory=LearningRateConfig)
    gamma: float = share(0.99)
    """Discount factor."""
    max_grad_norm: float = number(0.5, above=0, infinite=True)
    """Gradient clipping: largest norm per group of modules."""
    scale_rewards: bool = True
    """Divide rewards by the discounted return's deviation. The standard deviation is a running one."""
    clip_rewards: float = number(10.0, above=0, infinite=True)
    """Reward clipping: largest absolute scaled reward. Off-policy, of the sum of n of them."""
    adam_epsilon: float = number(1e-5, above=0)
    """Epsilon in the denominator of Adam."""
    weight_decay: float = weight(0.0)
    """Decoupled weight decay (AdamW) of all parameters. Every step shrinks them by this fraction of the learning
    rate."""
    precision: str = choice("float32", (*PRECISIONS, AUTO))
    """Mixed precision. bfloat16 by autocast; float16 also with gradient scaling; float8 for the large layers of
    perception and world model, and bfloat16 for the rest; auto takes what the device is made for."""
    float8_smallest_layer: int = count(SMALLEST_LAYER)
    """Inputs and outputs of the smallest layer in float8."""


class Algorithm(ABC):
    """Improves an agent; has an :class:`~torchrl_agent.optimization.updater.Updater` and a reward scaler.

    Args:
        agent: the agent that learns.
        config: hyper-parameters.
        rows: worlds per rollout, times their agents.
        acceleration: what to compile; by default all that can be.

    Attributes:
        loss: the objective, a module from a minibatch to ``loss_*`` and diagnostics.
        updater: makes gradient steps on it.
        behavior: the agent that acts, which is the one that learns unless the algorithm sets another.
        program: the update, as far as it is one function that may be compiled.
        accelerated: the functions that may be compiled.
        captured: the part of an iteration that may be one CUDA graph; a subclass sets it.
        graphs_on: the device that captures it, or None.

    Raises:
        ValueError: hyper-parameters that cannot work.
    """

    name: ClassVar[str]
    """Short name, for tables of results and a configuration's ``tuned``."""
    config_class: ClassVar[type[AlgorithmConfig]] = AlgorithmConfig
    """Hyper-parameters with their defaults: the keys that a configuration may have under ``algorithm``."""
    worlds = 1
    """Number of worlds where ranks split the agents of each world; 1 where they split the rows."""
    truncates_once = False
    """True if no rollout row is truncated twice (``training/collector.py``): few last observations need a value."""
    plays_apart: ClassVar[bool] = False
    """True if, of several processes, one learns and the others are actors."""
    joins_ranks: ClassVar[bool] = False
    """True if several ranks learn with it as one process would."""
    reads_values = False
    """True if rollouts record the critic's values at the time the agent acted."""
    adapts_rate: ClassVar[bool] = False
    """True if its updates measure the KL that an adaptive learning rate follows."""
    captured: CudaGraphFunction
    replay: Replay | None = None
    """Replay buffer, if it has one: large, so it is saved in a file of its own."""

    def __init__(self, agent: Agent, config: Any, rows: int, acceleration: AccelerationConfig | None = None) -> None:
        check_config(config)
        if config.learning_rate.schedule == ADAPTIVE and not self.adapts_rate:
            raise ValueError(
                f"algorithm.learning_rate.schedule={ADAPTIVE} follows the KL that PPO's updates measure: use "
                "algorithm=ppo, or another schedule."
            )
        self.agent = agent
        self.behavior: Behavior = agent
        self.config, self.rows, self.acceleration = config, rows, acceleration or AccelerationConfig()
        self.device = device = next(agent.parameters()).device
        precision = resolve(config.precision, config.float8_smallest_layer, agent, device)
        if precision == "float8":
            use_float8(agent, config.float8_smallest_layer, device)
        self.scaler = RewardScaler(rows, config.gamma, config.clip_rewards, enabled=config.scale_rewards).to(device)
        self.loss = self.make_loss().to(device)
        shards = sharded(agent)
        check_shards(shards, precision)
        self.updater = make_updater(
            self.loss,
            self.make_optimizer([own(parameter) for parameter in agent.parameters() if parameter.requires_grad]),
            [[own(parameter) for parameter in part] for part in agent.parts()],
            {own(parameter): name for parameter, name in agent.module_names().items()},
            shards=shards,
            max_grad_norm=config.max_grad_norm,
            precision=precision,
            compile=self.acceleration.update,
            traced=not (agent.sequential or agent.recomputes),
        )
        graphs = self.acceleration.cudagraphs and ranks.size() == 1  # what ranks say to each other is in no graph
        self.graphs_on = device if graphs and device.type == "cuda" else None
        self.program: CompiledFunction = self.updater.program
        self.accelerated: tuple[CompiledFunction, ...] = (self.program,)

    @classmethod
    def make_agent(cls, env: EnvBase, model: ModelConfig, config: Any) -> Agent:
        """Make a fresh agent of the kind that this algorithm improves."""
        return Agent(env, model, config.gamma)

    @abstractmethod
    def make_loss(self) -> torch.nn.Module:
        """Return the objective: a module from a minibatch to ``loss_*`` and diagnostics."""

    @abstractmethod
    def learn(self, rollout: TensorDict, learning_rate: float) -> dict[str, Tensor]:
        """Improve the agent on a rollout [T, rows] (see ``agent_rows``); returns diagnostics as device scalars, means
        over the updates made.
        """

    def set_env(self, env: EnvBase) -> None:  # noqa: B027 - most algorithms learn from rollouts alone
        """Take from the world whatever learning needs besides rollouts; by default nothing."""

    def anneal(self, progress: float) -> None:  # noqa: B027 - most algorithms have nothing to set
        """Set the scheduled coefficients, besides the learning rate, to their values at the fraction ``progress`` of
        the training; by default nothing.
        """

    @property
    def mode(self) -> str:
        """Execution mode of updates, see :data:`~torchrl_agent.optimization.compilation.MODES`."""
        return fastest(self.captured, self.program)

    def make_optimizer(self, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """Return the optimizer of these parameters, its learning rate a tensor where the device allows it."""
        config = self.config
        return make_adam(parameters, config.learning_rate.initial, config.adam_epsilon, config.weight_decay)

    def check(self, metrics: dict[str, float]) -> None:
        """Raise NonFiniteError if several updates in a row had to be skipped (``metrics`` on the host, from
        :meth:`learn`).
        """
        advice = "lower algorithm.learning_rate.initial, or look for NaN in the world's observations and rewards"
        self.updater.check(metrics, advice)

    # --- saving -------------------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """Tensors that learning changes, by name: the tensors themselves, so that values copied into them hold in
        captured graphs too. The running returns of the worlds' episodes are not among them; they belong to the worlds.
        """
        result: dict[str, Tensor] = {**dict(self.agent.named_parameters()), **dict(self.agent.named_buffers())}
        result |= {f"reward_scaler.{name}": value for name, value in self.scaler.running.named_buffers()}
        return {**result, **self.updater.tensors()}

    def on_rollback(self) -> None:  # noqa: B027  nothing is the right thing for most
        """Called after an earlier state was copied into :meth:`tensors`."""

    def state_dict(self) -> dict:
        """State of optimizer, reward scaler and gradient scaler; the first rank has all worlds' running returns."""
        scaler = self.scaler.state_dict()
        returns = scaler["returns"].unflatten(0, (self.worlds, -1))
        scaler["returns"] = ranks.gather_rows(returns, 1).flatten(0, 1)
        return {"name": self.name, "reward_scaler": scaler, **self.updater.state_dict()}

    def load_state_dict(self, state: dict) -> None:
        """Continue from :meth:`state_dict`.

        Raises:
            ValueError: another algorithm wrote it.
        """
        if state["name"] != self.name:
            raise ValueError(f"algorithm {state['name']} wrote it, this is {self.name}")
        returns = state["reward_scaler"]["returns"].unflatten(0, (self.worlds, -1))
        mine = ranks.own_rows(returns, 1).flatten(0, 1)
        self.scaler.load_state_dict({**state["reward_scaler"], "returns": mine})
        self.updater.load_state_dict(state)
        self.captured.forget()  # the optimizer's moments have moved


def check_config(config: AlgorithmConfig) -> None:
    """Raise ValueError naming the first hyper-parameter that cannot work."""
    check_ranges(config, "algorithm.")
    check_schedule(config.learning_rate)
