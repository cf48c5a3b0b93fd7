"""Ablation of a trained agent's modules: an ablated module still runs, but its outputs are replaced by zeros."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from tensordict.utils import NestedKey
from torch import Tensor, nn

from torchrl_agent.core import keys
from torchrl_agent.core.text import did_you_mean
from torchrl_agent.models.agent import Agent

MEMORY = "memory"
"""Name of perception's memory, which is ablated while the present observation stays."""


def removable(agent: Agent) -> dict[str, tuple[nn.Module, list[NestedKey]]]:
    """Modules that :func:`without` can ablate, by name, each with the keys that it writes for others."""
    acting = {name: module for name, module in agent.agent_modules.items() if module.acts and name != "perception"}
    result: dict[str, tuple[nn.Module, list[NestedKey]]] = {
        name: (module, [module.out_keys[0], *module.side_outputs]) for name, module in acting.items()
    }
    if agent.perception is not None and agent.perception.memory:
        result[MEMORY] = (agent.perception, [(keys.NEXT, name) for name in agent.perception.memory])
    return result


@contextmanager
def without(agent: Agent, names: Sequence[str]) -> Iterator[None]:
    """A context in which an agent acts with some of its modules ablated: other modules and the controller read zeros
    from them. Without ``memory``, the memory is reset at every step.

    Args:
        names: modules of :func:`removable`.

    Raises:
        ValueError: the agent has no such module, or its planner acts by the world model that is to be ablated.
    """
    possible = removable(agent)
    if agent.planner.enabled and "world_model" in names:
        raise ValueError("the planner acts by the world model: leave the planner off to judge the agent without it.")
    for name in names:
        if name not in possible:
            known = ", ".join(possible) or "nothing, as it is one plain network"
            raise ValueError(
                f"this agent has no {name!r} to be judged without{did_you_mean(name, possible)}: it has {known}."
            )
    if not names:
        yield
        return
    torch.compiler.reset()  # compiled code does not notice that hooks came or went (skip_nnmodule_hook_guards)
    try:
        with _scaled({name: possible[name] for name in names}, [torch.zeros(())] * len(names)):
            yield
    finally:
        torch.compiler.reset()


class GatedPolicy(TensorDictModuleBase):
    """A policy that also reads ``module_factors`` [..., M], one for each module of :func:`removable`, in their order:
    with 0 it acts without the module, as in :func:`without`, and with 1 as it is.

    Args:
        policy: its policy, of the rows that the factors are given for.

    Raises:
        ValueError: the agent has no such module.
    """

    def __init__(self, agent: Agent, policy: TensorDictModuleBase) -> None:
        super().__init__()
        self.policy, self.gated = policy, removable(agent)
        if not self.gated:
            raise ValueError("this agent is one plain network: it has no module to be ablated.")
        self.in_keys, self.out_keys = [*policy.in_keys, keys.MODULE_FACTORS], policy.out_keys

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write what the policy writes."""
        with _scaled(self.gated, tensordict.get(keys.MODULE_FACTORS).unbind(-1)):
            return self.policy(tensordict)


@contextmanager
def _scaled(modules: Mapping[str, tuple[nn.Module, list[NestedKey]]], factors: Sequence[Tensor]) -> Iterator[None]:
    """A context in which what modules write for others is multiplied by factors [...]."""
    hooks = [
        module.register_forward_hook(_scale(written, factor))
        for (module, written), factor in zip(modules.values(), factors, strict=True)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _scale(written: list[NestedKey], factor: Tensor) -> Any:
    def hook(module: nn.Module, given: Any, tensordict: TensorDictBase) -> TensorDictBase:
        for key in written:
            value = tensordict.get(key)
            tensordict.set(key, value * factor.reshape(*factor.shape, *[1] * (value.ndim - factor.ndim)).to(value))
        return tensordict

    return hook
