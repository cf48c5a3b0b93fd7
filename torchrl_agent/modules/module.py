"""What a module of the agent is. Built-in modules and a user's own obey one protocol, and the agent loops over them."""

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

from torchrl_agent import keys
from torchrl_agent.trust.targets import build


class AgentModule(TensorDictModuleBase):
    """A module between the observations and what the controller reads.

    It reads keys of the agent's tensordict (observations, ``belief``, what the modules before it wrote) and writes
    ``size`` numbers [..., size] for the controller under its first out key. A user's own module may be any
    TensorDictModule with ``size`` (see ``modules/module.py``); what it lacks of the rest is as it is here.

    Attributes:
        size: width of what the controller reads.
        memory: specs of the states that it carries from step to step, by key; it reads them, and writes the next ones
            under ``("next", key)``.
        losses: modules from sequences [B, T], in which all modules have run, to a tensordict of ``loss_*``, which are
            added to the algorithm's. A plain list: the agent is what registers them.
        recorded_keys: what a rollout must keep for its losses, besides what the agent reads anyway.
        replayed_keys: those of them that tell in which state of mind a frame was played (see :meth:`recall`).
        value_key: whose values of the next states :meth:`compute_targets` is given: the critic's, or its own.
        side_outputs: what it writes besides its first out key that other modules read.
        acts: the policy runs it; otherwise it is only taught.
        own_grad_clip: its gradient is clipped by its own norm, not with the actor's, critic's and encoder's.
        runs_in_imagination: it runs upon imagined beliefs too; the world model does not foresee what other modules
            read.
        recalls: it is in :meth:`recall` now.
    """

    size: int
    recorded_keys: Sequence[NestedKey] = ()
    replayed_keys: Sequence[NestedKey] = ()
    value_key: NestedKey = keys.VALUE
    side_outputs: Sequence[NestedKey] = ()
    acts: bool = True
    own_grad_clip: bool = True
    runs_in_imagination: bool = False
    recalls: bool = False

    def __init__(self) -> None:
        super().__init__()
        self.memory: dict[str, TensorSpec] = {}
        self.losses: list[nn.Module] = []

    @staticmethod
    def switch_on(model: Any) -> None:
        """Change a ``ModelConfig`` so that the module is there and has losses, for its pre-training."""

    @property
    def weights(self) -> nn.Module:
        """What is saved, exported and pre-trained under its name."""
        return self

    def compute_targets(
        self, rollout: TensorDictBase, reward: Tensor, next_value: Tensor, lmbda: float
    ) -> dict[NestedKey, Tensor]:
        """What its losses need of a whole rollout besides its frames.

        Args:
            rollout: [T, rows], with :attr:`recorded_keys`.
            reward: scaled rewards [T, rows, 1].
            next_value: values after each step [T, rows, 1], by its :attr:`value_key`.
            lmbda: decay of the advantage estimate.
        """
        return {}

    def rewrite_rewards(
        self, rollout: TensorDictBase, reward: Tensor, done: Tensor, terminated: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rewards that the controller learns from, and the ends of what it learns from, [T, rows, 1] each; by default
        the world's. The module itself learns from the world's. Where it rewrites them the critic values its rewards, so
        there may be no world model beside it.

        Args:
            rollout: [T, rows], with :attr:`recorded_keys`.
            reward: scaled rewards, as modules before this one rewrote them.
            done: ends of episodes.
            terminated: ends that nothing follows.
        """
        return reward, done, terminated

    @contextmanager
    def recall(self) -> Iterator[None]:
        """A context in which nothing is decided anew: frames come with what was decided in them."""
        self.recalls = True
        try:
            yield
        finally:
            self.recalls = False


@dataclass
class ModuleContext:
    """What a module is built from."""

    env: EnvBase
    config: Any
    """The agent's ``ModelConfig``."""
    shapes: dict[str, torch.Size]
    """Observations, in the order in which they are joined."""
    heads: list[int]
    """Choices of each discrete action; empty where actions are continuous."""
    gamma: float
    """Discount factor."""
    read: dict[NestedKey, int] = field(default_factory=dict)
    """Keys that the controller reads so far, with their widths."""
    built: dict[str, Any] = field(default_factory=dict)
    """The modules so far, by name."""


def complete(module: TensorDictModuleBase) -> TensorDictModuleBase:
    """A user's module with what it lacks of the protocol."""
    own = {
        "memory": {},
        "losses": [module.loss] if hasattr(module, "loss") else [],
        "recorded_keys": (),
        "replayed_keys": (),
        "side_outputs": (),
        "value_key": keys.VALUE,
        "recalls": False,
        "acts": True,
        "own_grad_clip": hasattr(module, "loss"),
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
"""What builds modules: names and modules, each made when those before it are in the context; none if switched off."""


# --- modules of your own ---------------------------------------------------------------------------------------------


class CustomEncoder(nn.Module):
    """An encoder of one observation, made as ``target(shape, out, **arguments)``: it is called with [rows, *shape] and
    gives [rows, out]. Here it takes the flattened observation [..., F] and gives [..., out].

    Raises:
        ValueError: it cannot be made, or does not give [rows, out].
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
                    f"model.perception.encoders.{name} cannot read [rows, {_listed(self.shape)}] "
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
    """The modules of ``model.custom_modules``, each with what it lacks of :class:`AgentModule`."""
    for name, config in context.config.custom_modules.items():
        yield name, complete(make_custom_module(name, config, context.env, context.read))  # type: ignore[misc]


def make_custom_module(name: str, config: Any, env: EnvBase, sizes: Mapping[NestedKey, int]) -> TensorDictModuleBase:
    """A module between belief and controller, made as ``target(env, sizes, **arguments)``.

    Args:
        name: of the module, under ``model.custom_modules``.
        config: ``_target_`` and arguments.
        env: the world.
        sizes: what the controller reads so far, widths by key: the belief's mean, and what the modules before it wrote.

    Returns:
        A TensorDictModule that reads keys of the agent's tensordict (beliefs, observations, what others wrote) and
        writes what the controller reads under its first out key, [..., size] with its attribute ``size``. If it has a
        module ``loss``, that is called with sequences [B, T] in which all modules have run, and gives a tensordict of
        ``loss_*``, which are added to the algorithm's.

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


def _listed(shape: tuple[int, ...]) -> str:
    return ", ".join(str(size) for size in shape)
