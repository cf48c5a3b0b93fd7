"""Protocol of the agent's modules. Built-in and custom modules obey the same one, and the agent loops over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from tensordict.utils import NestedKey
from torch import Tensor, nn
from torchrl.data import TensorSpec
from torchrl.envs import EnvBase

from torchrl_agent.core import keys
from torchrl_agent.trust.targets import build


class AgentModule(TensorDictModuleBase):
    """A module between the observations and the inputs of the controller.

    It reads keys of the agent's tensordict (observations, ``belief``, outputs of the modules before it) and writes
    ``size`` features [..., size] for the controller under its first out key. A custom module may be any
    TensorDictModule with ``size`` (see ``modules/module.py``); the defaults of this class stand in for what it lacks.

    Attributes:
        size: width of the features that the controller reads.
        memory: specs of the states that it carries from step to step, by key; it reads them, and writes the next ones
            under ``("next", key)``.
        losses: modules from sequences [B, T], in which all modules have run, to a tensordict of ``loss_*``, which are
            added to the algorithm's. A plain list: the agent registers them.
        recorded_keys: keys that a rollout must keep for its losses, besides the agent's inputs.
        replayed_keys: those of them that hold decisions of the module, reused in :meth:`recall`.
        value_key: key of the values of the next states for :meth:`compute_targets`: the critic's, or its own.
        side_outputs: keys that it writes for other modules, besides its first out key.
        exported_keys: outputs of the module exported alone, besides its first out key.
        acts: True if the policy runs it; otherwise it is only trained.
        own_grad_clip: True if its gradient is clipped by its own norm, not with the actor's, critic's and encoder's.
        runs_in_imagination: True if it runs on imagined beliefs too; the world model does not predict the inputs of
            other modules.
        recalls: True inside :meth:`recall`.
        learns_alone: True if it can be pre-trained: its one loss needs no more than recorded frames.
        reads_normalized: True if it reads normalized observations, so that their statistics belong to it.
        predicts_rewards: True if it predicts scaled rewards, so that their unit belongs to it.
        for_discrete_actions: True if it predicts what discrete actions lead to.
        allows_float8: True if its large layers may multiply in float8.
    """

    size: int
    recorded_keys: Sequence[NestedKey] = ()
    replayed_keys: Sequence[NestedKey] = ()
    value_key: NestedKey = keys.VALUE
    side_outputs: Sequence[NestedKey] = ()
    exported_keys: Sequence[NestedKey] = ()
    acts: bool = True
    own_grad_clip: bool = True
    runs_in_imagination: bool = False
    recalls: bool = False
    learns_alone: bool = False
    reads_normalized: bool = False
    predicts_rewards: bool = False
    for_discrete_actions: bool = False
    allows_float8: bool = False

    def __init__(self) -> None:
        super().__init__()
        self.memory: dict[str, TensorSpec] = {}
        self.losses: list[nn.Module] = []

    @staticmethod
    def switch_on(model: Any) -> None:
        """Change a ``ModelConfig`` so that the module is built and has losses, for its pre-training."""

    @property
    def weights(self) -> nn.Module:
        """Module that is saved, exported and pre-trained under its name."""
        return self

    def compute_targets(
        self, rollout: TensorDictBase, reward: Tensor, next_value: Tensor, lmbda: float
    ) -> dict[NestedKey, Tensor]:
        """Compute the targets of its losses that need a whole rollout.

        Args:
            rollout: [T, rows], with :attr:`recorded_keys`.
            reward: scaled rewards [T, rows, 1].
            next_value: values after each step [T, rows, 1], by its :attr:`value_key`.
        """
        return {}

    def rewrite_rewards(
        self, rollout: TensorDictBase, reward: Tensor, done: Tensor, terminated: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rewards that the controller learns from, and ends of its episodes, [T, rows, 1] each; by default the world's.
        The module itself learns from the world's. Where it rewrites rewards the critic's values are of the rewritten
        ones, so it cannot be combined with a world model.

        Args:
            rollout: [T, rows], with :attr:`recorded_keys`.
            reward: scaled rewards, as modules before this one rewrote them.
            done: ends of episodes.
            terminated: ends without bootstrapping.
        """
        return reward, done, terminated

    @contextmanager
    def recall(self) -> Iterator[None]:
        """Context in which it reuses the decisions recorded in the frames instead of deciding anew."""
        self.recalls = True
        try:
            yield
        finally:
            self.recalls = False


@dataclass
class ModuleContext:
    """Inputs for building a module."""

    env: EnvBase
    config: Any
    """The agent's ``ModelConfig``."""
    shapes: dict[str, torch.Size]
    """Shapes of the observations, in the order in which they are concatenated."""
    heads: list[int]
    """Number of choices of each discrete action; empty where actions are continuous."""
    gamma: float
    """Discount factor."""
    read: dict[NestedKey, int] = field(default_factory=dict)
    """Keys that the controller reads so far, and their widths."""
    built: dict[str, Any] = field(default_factory=dict)
    """Modules built so far, by name."""


def complete(module: TensorDictModuleBase) -> TensorDictModuleBase:
    """Add to a custom module the attributes of the protocol that it lacks."""
    learns = hasattr(module, "loss")
    defaults = {name: getattr(AgentModule, name) for name in AgentModule.__annotations__ if hasattr(AgentModule, name)}
    own = {
        **defaults,
        "memory": {},
        "losses": [module.loss] if learns else [],
        "own_grad_clip": learns,
        "runs_in_imagination": True,
        "weights": module,
    }
    for name, value in own.items():
        if not hasattr(module, name):
            object.__setattr__(module, name, value)  # not as a part of it, whose weights would be saved twice
    for name in ("compute_targets", "recall", "rewrite_rewards"):
        if not hasattr(module, name):
            object.__setattr__(module, name, getattr(AgentModule, name).__get__(module))
    return module


Built = Iterator[tuple[str, AgentModule]]
"""Names and modules from a builder, each made when those before it are in the context; empty if switched off."""


# --- modules of your own ---------------------------------------------------------------------------------------------


def custom_networks(agent: nn.Module) -> set[nn.Module]:
    """Modules inside custom encoders and modules of an agent, which are as their authors made them."""
    encoders = [each for each in agent.modules() if isinstance(each, CustomEncoder)]
    return {part for each in (agent.custom_modules, *encoders) for part in each.modules()}


class CustomEncoder(nn.Module):
    """An encoder of one observation, made as ``target(shape, out, **arguments)``: it is called with [rows, *shape] and
    returns [rows, out]. Here it takes the flattened observation [..., F] and returns [..., out].

    Raises:
        ValueError: it cannot be made, or does not return [rows, out].
    """

    def __init__(self, name: str, config: Any, shape: torch.Size, out: int) -> None:
        super().__init__()
        self.shape = tuple(shape)
        self.network = _make(f"model.perception.encoders.{name}", config, self.shape, out)
        with torch.no_grad():
            try:
                found = tuple(self.network(torch.zeros(2, *self.shape)).shape)
            except (RuntimeError, TypeError, AttributeError) as error:
                raise ValueError(
                    f"model.perception.encoders.{name} cannot read [rows, {', '.join(map(str, self.shape))}] "
                    f"({' '.join(str(error).split())}): it is called with that and gives [rows, {out}]."
                ) from None
        if found != (2, out):
            raise ValueError(
                f"model.perception.encoders.{name} gives {list(found)} for 2 rows: it must give [2, {out}]."
            )

    def forward(self, flat: Tensor) -> Tensor:
        """Features of the observation."""
        return self.network(flat.reshape(-1, *self.shape)).reshape(*flat.shape[:-1], -1)


def build_custom_modules(context: ModuleContext) -> Built:
    """Build the modules of ``model.custom_modules``, each completed to the protocol of :class:`AgentModule`."""
    for name, config in context.config.custom_modules.items():
        yield name, complete(make_custom_module(name, config, context.env, context.read))  # type: ignore[misc]


def make_custom_module(name: str, config: Any, env: EnvBase, sizes: Mapping[NestedKey, int]) -> TensorDictModuleBase:
    """Make a module between belief and controller as ``target(env, sizes, **arguments)``.

    Args:
        name: name of the module, under ``model.custom_modules``.
        config: ``_target_`` and arguments.
        sizes: widths by key of the controller's inputs so far: the belief's mean, and outputs of the modules before it.

    Returns:
        A TensorDictModule that reads keys of the agent's tensordict (beliefs, observations, outputs of other modules)
        and writes features for the controller under its first out key, [..., size] with its attribute ``size``. If it
        has a module ``loss``, that is called with sequences [B, T] in which all modules have run, and returns a
        tensordict of ``loss_*``, which are added to the algorithm's.

    Raises:
        ValueError: it cannot be made, or is no such module.
    """
    if not name.isidentifier() or hasattr(nn.ModuleDict, name):
        raise ValueError(f"model.custom_modules.{name} cannot be called so: choose another word, without dots.")
    module = _make(f"model.custom_modules.{name}", config, env, dict(sizes))
    fits = isinstance(module, TensorDictModuleBase) and isinstance(getattr(module, "size", None), int)
    if not fits:
        raise ValueError(
            f"model.custom_modules.{name} is a {type(module).__name__}: it must be a TensorDictModule with an "
            "attribute 'size', the width of what it writes under its first out key."
        )
    return module


def _make(where: str, config: Any, *arguments: Any) -> Any:
    if not isinstance(config, Mapping) or "_target_" not in config:
        raise ValueError(f"{where} is {config!r}: give it a _target_, such as {{_target_: my_file.MyModule}}.")
    try:
        return build(config, *arguments)
    except Exception as error:  # a constructor of the user's own raises any
        raise ValueError(f"{where} cannot be made: {' '.join(str(error).split())}") from None
