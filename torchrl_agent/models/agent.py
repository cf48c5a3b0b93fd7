"""The agent: normalizer, encoder, action distribution and state value put together, the one file that knows all parts.

In a world of several agents all of them share the networks, which read and write the tensordict of the group
(``tensordict["agents"]``, [N, A]) as if each agent were a world; :attr:`Agent.policy` does so for a whole world.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeAlias

import torch
from tensordict import TensorDictBase
from tensordict.nn import (
    ProbabilisticTensorDictSequential,
    TensorDictModule,
    TensorDictModuleBase,
    TensorDictSequential,
)
from tensordict.utils import NestedKey
from torch import Tensor, nn
from torchrl.data import TensorSpec
from torchrl.envs import EnvBase

from torchrl_agent.core import keys
from torchrl_agent.core.abilities import abilities
from torchrl_agent.models.config import ModelConfig, check_model, critic_sizes
from torchrl_agent.models.group_policy import GroupPolicy
from torchrl_agent.models.heads import make_actor_head
from torchrl_agent.models.prediction import Predicting
from torchrl_agent.modules.manager import Manager
from torchrl_agent.modules.memory import RecurrentState
from torchrl_agent.modules.module import AgentModule, Built, ModuleContext, build_custom_modules, custom_networks
from torchrl_agent.modules.networks import ACTIVATIONS, ConcatMLP, GatedConcat, add_layer_norms, mlp
from torchrl_agent.modules.perception import Perception
from torchrl_agent.modules.recomputation import recompute
from torchrl_agent.modules.social_model import SocialModel
from torchrl_agent.modules.specs import action_bounds, action_heads, agent_group, observation_shapes
from torchrl_agent.modules.world_model import PolicyImprovement, WorldModel, WorldModelModule
from torchrl_agent.transforms import ObservationNormalizer

MODULES: dict[str, type[AgentModule]] = {
    "perception": Perception,
    "world_model": WorldModelModule,
    "social_model": SocialModel,
    "manager": Manager,
}
"""The built-in modules, by the name that configurations, files, metrics and commands have for them; those of your own
follow them, and what can be done with either is said by attributes of :class:`AgentModule`.
"""
BUILDERS: tuple[Callable[[ModuleContext], Built], ...] = (
    Perception.build,
    SocialModel.build,
    WorldModelModule.build,
    build_custom_modules,
    Manager.build,
)
"""Builders of the modules between observations and controller, in the order in which the modules run."""


class Agent(Predicting, nn.Module):
    """A policy and a value function.

    ``normalizer`` joins and normalizes the observations, ``encoder`` (which begins with it) computes the features that
    both heads read, ``actor_head`` turns that into actions and ``critic_head`` into values.

    Attributes:
        actor: encoder and actor head; reads the observations (and ``action_mask`` if the world has one), writes
            ``logits`` (``loc`` and ``scale`` of continuous actions), ``action``, ``action_log_prob``.
        policy: the actor for the world's own tensordict; another module only in a world of several agents.
        group: key of the agents' tensordict in a world of several, else None.
        critic: encoder and critic head; writes ``state_value`` [..., 1].
        memory: specs of the states that the agent carries from step to step, by key; see :meth:`attach`.
        agent_modules: the modules between observations and controller, by name, in order.
        auxiliary: losses of these modules.
        head_names: names of the action's heads, if the world has them.

    Raises:
        ValueError: the world's actions or observations do not fit these networks, or the configuration is out of range.
    """

    dealt = "rows"
    """Units that several ranks divide among them while it acts, see ``ranks.dealing``."""
    sequential = False
    """True if it learns from whole sequences, because it has memory or auxiliary losses."""

    def __init__(self, env: EnvBase, config: ModelConfig | None = None, gamma: float = 0.99) -> None:
        super().__init__()
        config = config or ModelConfig()
        check_model(config)
        self.group, self.planner, self.auxiliary_fraction = agent_group(env), config.planner, config.auxiliary_fraction
        shapes = observation_shapes(env)
        if config.manager.enabled:
            shapes.pop(config.manager.traits, None)  # the manager alone reads the agent's character
        heads, self.head_names = _discrete_actions(env, config), tuple(abilities(env).names().get("heads", ()))
        self.normalizer = ObservationNormalizer(
            list(shapes),
            list(shapes.values()),
            keys.NORMALIZED,
            config.clip_observations,
            enabled=config.normalize_observations,
        )
        self.memory: dict[str, TensorSpec] = {}
        self.auxiliary = nn.ModuleList()
        self.agent_modules: dict[str, AgentModule] = {}
        self.perception: Perception | None = None
        self.world_model: WorldModel | None = None
        self.social_model: SocialModel | None = None
        self.custom_modules = nn.ModuleDict()
        self.manager: Manager | None = None
        body, entry, width, hidden = self._make_body(ModuleContext(env, config, shapes, heads, gamma))
        self.encoder = TensorDictSequential(*body)
        self.actor_head, self.critic_head = self._make_heads(env, config, width, entry, hidden)
        self.actor = ProbabilisticTensorDictSequential(*body, *self.actor_head)
        self.critic = TensorDictSequential(*body, self.critic_head)
        self.policy = self._of_world(self.actor)
        self._list_keys()
        if config.layer_norm:
            add_layer_norms(self, custom_networks(self))
        recompute(self._named_parts(), config.recompute)
        self.recomputes = bool(config.recompute)
        self.to(env.device)

    def _list_keys(self) -> None:
        """List the keys that others ask for: plain attributes, which compiled code reads without a guard."""
        modules, written = self.agent_modules.values(), {*self.actor_head[0].out_keys, *self.encoder.out_keys}
        read = dict.fromkeys([*self.actor.in_keys, *self.critic.in_keys])
        self.input_keys: list[str] = [key for key in read if key not in written]
        """Keys that actor and critic read, besides those that they write themselves."""
        labels = [key for module in modules for key in module.recorded_keys]
        self.recorded_keys: list[NestedKey] = [*self.input_keys, *labels]
        """Keys that a rollout must keep for learning, besides actions and outcomes: inputs, goals and labels."""
        self.replayed_keys: list[NestedKey] = [key for module in modules for key in module.replayed_keys]
        """Recorded keys that :meth:`recall` needs."""
        values = [keys.VALUE, *(module.value_key for module in modules)]
        self.value_keys: list[NestedKey] = list(dict.fromkeys(values))
        """Keys of the state values that learning needs: the critic's, and those of modules with their own."""

    def _make_body(self, context: ModuleContext) -> tuple[list[TensorDictModuleBase], NestedKey, int, list[int]]:
        """Modules that run before the heads; key and width of the heads' inputs; hidden layers of the heads."""
        config = context.config
        body: list[TensorDictModuleBase] = [self.normalizer]
        entry: NestedKey = keys.NORMALIZED
        width = sum(shape.numel() for shape in context.shapes.values())
        if config.perception.enabled or config.memory != "none":
            body += self._add_modules(context)
            width, entry = body[-1].size, keys.FEATURES
        else:
            _check_vectors(context.shapes)
        hidden = config.hidden_sizes
        if not config.shared_trunk:
            return body, entry, width, hidden
        shared = len(hidden) - config.head_layers
        *inner, last = hidden[:shared]
        trunk = mlp(width, last, inner, config.activation)
        trunk.append(ACTIVATIONS[config.activation]())
        body.append(TensorDictModule(trunk, [entry], [keys.FEATURES]))
        return body, keys.FEATURES, last, hidden[shared:]

    def _of_world(self, policy: TensorDictModuleBase) -> TensorDictModuleBase:
        """Adapt a policy of one agent to the world's own tensordict."""
        return policy if self.group is None else GroupPolicy(policy, self.group)

    def policy_and_value(self) -> TensorDictModuleBase:
        """Return the policy followed by the critic, on the output of the same encoder: :attr:`policy` that also writes
        ``state_value`` [..., 1].
        """
        return self._of_world(TensorDictSequential(self.actor, self.critic_head))

    def _make_heads(
        self, env: EnvBase, config: ModelConfig, width: int, entry: NestedKey, hidden: list[int]
    ) -> tuple[ProbabilisticTensorDictSequential, TensorDictModuleBase]:
        """Make the heads of policy and state value, which read ``entry``."""
        actor_head = make_actor_head(env, entry, width, hidden, config)
        hidden = critic_sizes(config, hidden)
        if config.world_model.enabled and config.world_model.improvement:
            network, *choice = actor_head
            actor_head = ProbabilisticTensorDictSequential(
                network, PolicyImprovement(config.world_model.improvement), *choice
            )
        return actor_head, CriticHead(*_value_network(env, config, width, entry, hidden), [keys.VALUE])

    def _add_modules(self, context: ModuleContext) -> list[TensorDictModuleBase]:
        """Build the configured modules, in order; the last one concatenates the inputs of the controller."""
        body: list[TensorDictModuleBase] = []
        for build in BUILDERS:
            for name, module in build(context):
                self.agent_modules[name] = context.built[name] = module
                self.auxiliary.extend(module.losses)
                self.memory.update(module.memory)
                if name in context.config.custom_modules:
                    self.custom_modules[name] = module
                else:
                    setattr(self, name, module.weights)
                if module.acts:
                    body.append(module)
                    context.read[module.out_keys[0]] = module.size
        self.sequential = bool(self.memory) or len(self.auxiliary) > 0
        join = GatedConcat(context.read)
        if context.config.manager.intrinsic_coeff:
            # the controller is paid for serving the goal, so it reads it from the first step
            join.open_gate(keys.GOAL_EMBEDDING)
        return [*body, join]

    def parts(self) -> list[list[nn.Parameter]]:
        """Parameters of each module whose gradient is clipped on its own, then all others. The optimizer's state in a
        checkpoint has this order.
        """
        modules = [self.agent_modules[name] for name in (*MODULES, *self.custom_modules) if name in self.agent_modules]
        return self._and_others([list(module.parameters()) for module in modules if module.own_grad_clip])

    def _and_others(self, parts: list[list[nn.Parameter]]) -> list[list[nn.Parameter]]:
        """Append the parameters that are in none of the parts."""
        known = {id(parameter) for part in parts for parameter in part}
        return [*parts, [parameter for parameter in self.parameters() if id(parameter) not in known]]

    def module_names(self) -> dict[nn.Parameter, str]:
        """Name of the module that each parameter belongs to; the parameters of a module's losses are its own, those
        between modules belong to the ``encoder``.
        """
        result = dict.fromkeys(self.parameters(), "encoder")
        *modules, actor, critic = self._named_parts().items()
        for name, parts in (*reversed(modules), actor, critic):
            result.update({parameter: name for part in parts for parameter in part.parameters()})
        return result

    def _named_parts(self) -> dict[str, list[nn.Module]]:
        """Modules with their losses, and the heads, by name."""
        modules = {name: [module, *module.losses] for name, module in self.agent_modules.items()}
        return {**modules, "actor": [self.actor_head], "critic": [self.critic_head]}

    @contextmanager
    def recall(self) -> Iterator[None]:
        """Context in which modules reuse the decisions recorded in the frames instead of deciding anew (see
        ``AgentModule.recall``).
        """
        with ExitStack() as stack:
            for module in self.agent_modules.values():
                stack.enter_context(module.recall())
            yield

    def compute_targets(
        self, rollout: TensorDictBase, reward: Tensor, next_values: Tensor, lmbda: float
    ) -> dict[NestedKey, Tensor]:
        """Compute the targets of the modules' losses from a whole rollout [T, rows] (see
        ``AgentModule.compute_targets``), given the values after each step by :attr:`value_keys`, [T, rows, keys].
        """
        following = rollout.get(keys.NEXT)
        found: dict[NestedKey, Tensor] = {key: following.get(key) for key in (keys.DONE, keys.TERMINATED)}
        found[keys.REWARD] = reward
        by_key = dict(zip(self.value_keys, next_values.split(1, -1), strict=True))
        for module in self.agent_modules.values():
            found.update(module.compute_targets(rollout, reward, by_key[module.value_key], lmbda))
        return found

    def attach(self, env: EnvBase) -> EnvBase:
        """Return the world for this agent: as it is, or with the agent's memory carried from step to step."""
        if not self.memory:
            return env
        return abilities(env).transformed_class(env, RecurrentState(self.memory, self.group))


class AdaptedAgent:
    """An agent that acts by an adapted policy: that of several such agents, or of some of a world's agents.

    Args:
        agent: the agent, whose keys a rollout records.
        adapt: function from a policy of the agent to the one that acts.
        dealt: what several ranks divide among them while it acts: ``members`` or ``agents``, see ``ranks.dealing``.
    """

    def __init__(self, agent: Agent, adapt: Callable[[TensorDictModuleBase], TensorDictModuleBase], dealt: str) -> None:
        self.agent, self.adapt, self.dealt = agent, adapt, dealt
        self.group, self.critic = agent.group, agent.critic
        self.recorded_keys, self.input_keys = agent.recorded_keys, agent.input_keys

    @property
    def policy(self) -> TensorDictModuleBase:
        """The policy that acts."""
        return self.adapt(self.agent.policy)

    def policy_and_value(self) -> TensorDictModuleBase:
        """Return the same policy with the critic's values."""
        return self.adapt(self.agent.policy_and_value())


Behavior: TypeAlias = Agent | AdaptedAgent
"""An agent that may act in a collector's worlds."""


def _discrete_actions(env: EnvBase, config: ModelConfig) -> list[int]:
    """Number of choices of each discrete action; empty for continuous actions, which some modules do not support."""
    if action_bounds(env) is None:
        return action_heads(env)
    unable = [name for name, kind in MODULES.items() if kind.for_discrete_actions and getattr(config, name).enabled]
    if unable:
        raise ValueError(
            f"model.{unable[0]} predicts discrete actions, but this world's are continuous: use "
            f"model.{unable[0]}.enabled=false."
        )
    if config.perception.prediction_coeff:
        raise ValueError(
            "model.perception.prediction_coeff predicts what discrete actions lead to, but this world's are "
            "continuous: set it to 0."
        )
    return []


def _value_network(
    env: EnvBase, config: ModelConfig, width: int, entry: NestedKey, hidden: list[int]
) -> tuple[nn.Module, list[NestedKey]]:
    """Make the critic's network; returns it with the keys that it reads."""
    if not config.centralized_critic:
        return mlp(width, 1, hidden, config.activation, 1.0), [entry]
    if keys.STATE not in env.observation_spec.keys():
        raise ValueError("model.centralized_critic is set but the world shows no 'state': switch it off.")
    width += env.observation_spec[keys.STATE].shape[-1]
    hidden = critic_sizes(config, config.hidden_sizes)
    return ConcatMLP(mlp(width, 1, hidden, config.activation, 1.0)), [entry, keys.STATE]


class CriticHead(TensorDictModule):
    """Head of the critic, from the output of the encoder to the state value."""


def _check_vectors(shapes: dict[str, torch.Size]) -> None:
    for key, shape in shapes.items():
        if len(shape) != 1:
            raise ValueError(
                f"observation {key!r} has shape {tuple(shape)} but plain networks read vectors: use "
                "model.perception.enabled=true, which reads pictures too."
            )
