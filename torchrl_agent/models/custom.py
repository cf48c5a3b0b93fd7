"""Modules of the user's own, named in a configuration by ``_target_``: encoders of single observations, and modules
between the belief and the controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict.nn import TensorDictModuleBase
from tensordict.utils import NestedKey
from torch import Tensor, nn
from torchrl.envs import EnvBase

from torchrl_agent.models.module import Built, ModuleContext, complete
from torchrl_agent.trust.targets import build


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
