"""Actor and critic as TensorDictModules: observations, normaliser, networks, action distribution and state value."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tensordict.nn import (
    InteractionType,
    ProbabilisticTensorDictModule,
    ProbabilisticTensorDictSequential,
    TensorDictModule,
    TensorDictSequential,
)
from torch import nn
from torchrl.data import Categorical, Composite
from torchrl.envs import EnvBase
from torchrl.modules import MLP

from torchrl_agent import keys
from torchrl_agent.models.distributions import MaskedCategorical
from torchrl_agent.transforms import ObservationNormalizer

ACTIVATIONS = {"silu": nn.SiLU, "relu": nn.ReLU, "tanh": nn.Tanh, "elu": nn.ELU, "gelu": nn.GELU}


@dataclass
class ModelConfig:
    """Networks of the actor and the critic."""

    hidden_sizes: list[int] = field(default_factory=lambda: [256, 128, 64])
    """Widths of the hidden layers."""
    activation: str = "silu"
    """silu, relu, tanh, elu or gelu."""
    shared_trunk: bool = False
    """One network with two heads instead of two networks."""
    normalize_observations: bool = True
    """Normalise observations by running statistics, kept inside the policy."""
    clip_observations: float = 10.0
    """Largest absolute normalised observation."""


class ActorCritic(nn.Module):
    """A policy and a value function over the same observations.

    Attributes:
        normalizer: joins and normalises the observations; both networks start with it.
        actor: reads the observations (and ``action_mask`` if the world has one), writes ``logits``, ``action``,
            ``action_log_prob``.
        critic: reads the observations, writes ``state_value`` [..., 1].

    Raises:
        ValueError: the world's actions or observations do not fit these networks, or the configuration is out of range.
    """

    def __init__(self, env: EnvBase, config: ModelConfig) -> None:
        super().__init__()
        check_model(config)
        sizes = observation_sizes(env)
        num_actions = number_of_actions(env)
        masked = keys.ACTION_MASK in env.observation_spec.keys()
        self.normalizer = ObservationNormalizer(
            list(sizes),
            list(sizes.values()),
            keys.NORMALIZED,
            config.clip_observations,
            enabled=config.normalize_observations,
        )
        width = sum(sizes.values())
        if config.shared_trunk:
            trunk = _network(width, config.hidden_sizes[-1], config.hidden_sizes[:-1], config, gain=math.sqrt(2))
            trunk.append(ACTIVATIONS[config.activation]())
            body = [self.normalizer, TensorDictModule(trunk, [keys.NORMALIZED], [keys.FEATURES])]
            entry, hidden, width = keys.FEATURES, [], config.hidden_sizes[-1]
        else:
            body, entry, hidden = [self.normalizer], keys.NORMALIZED, config.hidden_sizes
        policy = _network(width, num_actions, hidden, config, gain=0.01)
        value = _network(width, 1, hidden, config, gain=1.0)
        inputs = {"logits": keys.LOGITS, "mask": keys.ACTION_MASK} if masked else [keys.LOGITS]
        self.actor = ProbabilisticTensorDictSequential(
            *body,
            TensorDictModule(policy, [entry], [keys.LOGITS]),
            ProbabilisticTensorDictModule(
                in_keys=inputs,
                out_keys=[keys.ACTION],
                distribution_class=MaskedCategorical,
                default_interaction_type=InteractionType.RANDOM,
                return_log_prob=True,
                log_prob_key=keys.LOG_PROB,
            ),
        )
        self.critic = TensorDictSequential(*body, TensorDictModule(value, [entry], [keys.VALUE]))
        self.to(env.device)

    @property
    def input_keys(self) -> list[str]:
        """What actor and critic read."""
        return [key for key in self.actor.in_keys if key != keys.LOGITS]


def observation_sizes(env: EnvBase) -> dict[str, int]:
    """The world's vector observations by key, in the order of its spec; episode statistics and masks are none."""
    sizes = {}
    for key, spec in env.observation_spec.items():
        counted = key == keys.ACTION_MASK or key in keys.TORCHRL_STATISTICS.values()
        if counted or isinstance(spec, Composite) or not spec.dtype.is_floating_point:
            continue
        if spec.ndim != len(env.batch_size) + 1:
            raise ValueError(
                f"observation {key!r} has shape {tuple(spec.shape)}: these networks read vectors, [worlds, size]."
            )
        sizes[key] = spec.shape[-1]
    if not sizes:
        raise ValueError(
            "the world has no vector observation: its observation_spec needs a float key of shape [worlds, size]."
        )
    return sizes


def number_of_actions(env: EnvBase) -> int:
    """Number of discrete actions."""
    spec = env.action_spec
    if not isinstance(spec, Categorical):
        raise ValueError(
            f"actions of kind {type(spec).__name__} are not supported: the policy is categorical "
            "(a Gymnasium world with discrete actions needs categorical_action_encoding: true)."
        )
    return int(spec.space.n)


def check_model(config: ModelConfig) -> None:
    """Raise ValueError naming the first setting that cannot work."""
    if config.activation not in ACTIVATIONS:
        raise ValueError(f"model.activation is {config.activation!r}: use one of {', '.join(ACTIVATIONS)}.")
    if any(size < 1 for size in config.hidden_sizes) or not config.hidden_sizes:
        raise ValueError(f"model.hidden_sizes is {list(config.hidden_sizes)}: give at least one positive width.")


def _network(width: int, out: int, hidden: list[int], config: ModelConfig, gain: float) -> nn.Sequential:
    """A multi-layer perceptron with orthogonal weights (gain sqrt(2) inside, ``gain`` at the end) and zero biases."""
    network = MLP(
        width, out, num_cells=list(hidden), depth=len(hidden), activation_class=ACTIVATIONS[config.activation]
    )
    layers = [layer for layer in network if isinstance(layer, nn.Linear)]
    for layer in layers:
        nn.init.orthogonal_(layer.weight, gain if layer is layers[-1] else math.sqrt(2))
        nn.init.zeros_(layer.bias)
    return network
