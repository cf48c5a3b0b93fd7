"""Ablation of a trained agent's modules: an ablated module still runs, but its outputs are replaced by zeros."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import nn

from torchrl_agent import keys
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
        agent: a trained agent.
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
    hooks = [possible[name][0].register_forward_hook(_silence(possible[name][1])) for name in names]
    torch.compiler.reset()  # compiled code does not notice that hooks came or went (skip_nnmodule_hook_guards)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        torch.compiler.reset()


def _silence(written: list[NestedKey]) -> Any:
    def hook(module: nn.Module, given: Any, tensordict: TensorDictBase) -> TensorDictBase:
        for key in written:
            tensordict.set(key, torch.zeros_like(tensordict.get(key)))
        return tensordict

    return hook
