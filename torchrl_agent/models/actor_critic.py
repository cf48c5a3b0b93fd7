"""Actor and critic as TensorDictModules: observations, normaliser, networks, action distribution and state value.

In a world of several agents all of them share the networks, which read and write the tensordict of the group
(``tensordict["agents"]``, [N, A]) as if each agent were a world; :attr:`ActorCritic.policy` does so for a whole world.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tensordict import TensorDictBase
from tensordict.nn import (
    InteractionType,
    ProbabilisticTensorDictModule,
    ProbabilisticTensorDictSequential,
    TensorDictModule,
    TensorDictModuleBase,
    TensorDictSequential,
)
from torch import nn
from torchrl.data import Categorical, Composite, MultiCategorical
from torchrl.envs import EnvBase
from torchrl.modules import MLP

from torchrl_agent import keys
from torchrl_agent.models.distributions import MaskedCategorical, MaskedMultiCategorical
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
        policy: the actor for the world's own tensordict; another module only in a world of several agents.
        group: key of the agents' tensordict in a world of several, else None.
        critic: reads the observations, writes ``state_value`` [..., 1].

    Raises:
        ValueError: the world's actions or observations do not fit these networks, or the configuration is out of range.
    """

    def __init__(self, env: EnvBase, config: ModelConfig) -> None:
        super().__init__()
        check_model(config)
        sizes = observation_sizes(env)
        heads = action_heads(env)
        self.group = agent_group(env)
        masked = keys.ACTION_MASK in group_spec(env).keys()
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
        policy = _network(width, sum(heads), hidden, config, gain=0.01)
        value = _network(width, 1, hidden, config, gain=1.0)
        inputs = {"logits": keys.LOGITS, "mask": keys.ACTION_MASK} if masked else [keys.LOGITS]
        self.actor = ProbabilisticTensorDictSequential(
            *body,
            TensorDictModule(policy, [entry], [keys.LOGITS]),
            ProbabilisticTensorDictModule(
                in_keys=inputs,
                out_keys=[keys.ACTION],
                distribution_class=MaskedCategorical if len(heads) == 1 else MaskedMultiCategorical,
                distribution_kwargs={} if len(heads) == 1 else {"sizes": heads},
                default_interaction_type=InteractionType.RANDOM,
                return_log_prob=True,
                log_prob_key=keys.LOG_PROB,
            ),
        )
        self.critic = TensorDictSequential(*body, TensorDictModule(value, [entry], [keys.VALUE]))
        self.policy = self.actor if self.group is None else GroupPolicy(self.actor, self.group)
        self.to(env.device)

    @property
    def input_keys(self) -> list[str]:
        """What actor and critic read."""
        return [key for key in self.actor.in_keys if key != keys.LOGITS]


class GroupPolicy(TensorDictModuleBase):
    """A policy of one agent as the policy of a group of them: it acts on the group's tensordict."""

    def __init__(self, policy: TensorDictModuleBase, group: str) -> None:
        super().__init__()
        self.policy, self.group = policy, group
        self.in_keys = [(group, key) for key in policy.in_keys if key not in policy.out_keys]
        self.out_keys = [(group, key) for key in policy.out_keys]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the group's actions."""
        self.policy(tensordict.get(self.group))
        return tensordict


def agent_group(env: EnvBase) -> str | None:
    """Key under which the tensors of a world's agents are found; None in a world of one agent with flat keys."""
    return env.action_key[0] if isinstance(env.action_key, tuple) else None


def group_spec(env: EnvBase) -> Composite:
    """What agents see: the whole observation, or that of their group, [N, A]."""
    group = agent_group(env)
    return env.observation_spec if group is None else env.observation_spec[group]


def observation_sizes(env: EnvBase) -> dict[str, int]:
    """The world's vector observations by key, in the order of its spec; episode statistics, masks and potentials are
    none.
    """
    sizes = {}
    group = group_spec(env)
    other = (keys.ACTION_MASK, keys.ALIVE, keys.POTENTIAL, *keys.TORCHRL_STATISTICS.values())
    for key, spec in group.items():
        if key in other or isinstance(spec, Composite) or not spec.dtype.is_floating_point:
            continue
        if spec.ndim != len(group.shape) + 1:
            raise ValueError(
                f"observation {key!r} has shape {tuple(spec.shape)}: these networks read vectors, [worlds, size]."
            )
        sizes[key] = spec.shape[-1]
    if not sizes:
        raise ValueError(
            "the world has no vector observation: its observation_spec needs a float key of shape [worlds, size]."
        )
    return sizes


def action_heads(env: EnvBase) -> list[int]:
    """Number of choices of each discrete action that an agent takes at once."""
    spec = env.full_action_spec[env.action_key]
    if isinstance(spec, MultiCategorical):
        return [int(size) for size in spec.nvec.reshape(-1, spec.shape[-1])[0]]
    if not isinstance(spec, Categorical):
        raise ValueError(
            f"actions of kind {type(spec).__name__} are not supported: the policy is categorical "
            "(a Gymnasium world with discrete actions needs categorical_action_encoding: true)."
        )
    return [int(spec.space.n)]


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
