"""A model that no process holds whole: each keeps its part of every large linear layer, by PyTorch's FSDP2.

A layer is put together before it multiplies, forward and backward, and taken apart after it; its gradient comes back in
parts, as the mean over the ranks. So each process has its share of these weights, of their gradients and of the
optimizer's moments, and one layer at a time. What is not a linear layer, or small, every process has whole.

The optimizer knows the parts as plain parameters, which share memory with FSDP2's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from torchrl_agent.core import ranks

SMALLEST_WEIGHTS = 2**14
"""How many weights a layer has from which on it is worth to be sent around."""


def shard(module: nn.Module, device: torch.device) -> None:
    """Take its large linear layers apart, among all ranks; they begin as the first rank's.

    Raises:
        ValueError: it has no such layer.
    """
    from torch.distributed.fsdp import fully_shard

    ranks.begin_alike(module)
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear) and _divides(layer)]
    if not layers:
        raise ValueError(
            f"run.shard is set but no linear layer has {SMALLEST_WEIGHTS} weights and outputs that divide among "
            f"{ranks.size()} processes: leave it out, the model is small."
        )
    mesh = init_device_mesh(device.type, (ranks.size(),))
    for layer in layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)


def _divides(layer: nn.Linear) -> bool:
    return layer.weight.numel() >= SMALLEST_WEIGHTS and layer.out_features % ranks.size() == 0


def own(parameter: nn.Parameter) -> nn.Parameter:
    """What this process has of a parameter: its part, or all of it."""
    return getattr(parameter, "own", parameter)


def sharded(module: nn.Module) -> list[nn.Parameter]:
    """Its parameters that are in parts, with what :func:`own` gives. What moves the module to a device makes others."""
    found = [parameter for parameter in module.parameters() if isinstance(parameter, DTensor)]
    for parameter in found:
        if not hasattr(parameter, "own"):
            parameter.own = nn.Parameter(parameter.to_local().detach(), parameter.requires_grad)
    return found


def check_shards(parameters: Sequence[nn.Parameter], precision: str) -> None:
    """Raise ValueError for a precision in which parameters that are in parts cannot learn."""
    if parameters and precision in ("float8", "float16"):
        raise ValueError(f"run.shard is set but algorithm.precision is {precision}: use bfloat16 or float32.")


def take_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Hand the gradients of parameters in parts on to their :func:`own` ones."""
    for parameter in parameters:
        own(parameter).grad = None if parameter.grad is None else parameter.grad.to_local()
        parameter.grad = None


def whole(part: Tensor) -> Tensor:
    """What all ranks have of a tensor, one behind the other."""
    parts = [torch.empty_like(part) for _ in range(ranks.size())]
    torch.distributed.all_gather(parts, part.contiguous())
    return torch.cat(parts)


def whole_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """A module's state with every parameter whole: that of a module that is not in parts."""
    return {name: whole(value.to_local()) if isinstance(value, DTensor) else value for name, value in state.items()}


def own_state(module: nn.Module, state: Mapping[str, Any]) -> dict[str, Any]:
    """What a module that may be in parts loads of :func:`whole_state`."""
    mine = module.state_dict()
    result = dict(state)
    for name, value in mine.items():
        if isinstance(value, DTensor) and name in state:
            part = ranks.own_rows(state[name], 0).to(value.device)
            result[name] = DTensor.from_local(part, value.device_mesh, [Shard(0)], run_check=False)
    return result
