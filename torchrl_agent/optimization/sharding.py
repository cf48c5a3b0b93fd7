"""A model sharded over processes: each keeps its shard of every large linear layer, by PyTorch's FSDP2.

A layer is gathered before it multiplies, forward and backward, and resharded after it; its gradient comes back in
shards, as the mean over the ranks. So each process holds its shard of these weights, of their gradients and of the
optimizer's moments, and one whole layer at a time. Every process holds small and other layers whole.

The optimizer knows the shards as plain parameters, which share memory with FSDP2's.
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
"""Least number of weights of a layer for which sharding pays off."""


def shard(module: nn.Module, device: torch.device) -> None:
    """Shard the large linear layers of a module among all ranks; their initial weights are the first rank's.

    Raises:
        ValueError: it has no such layer.
    """
    from torch.distributed.fsdp import fully_shard

    ranks.broadcast_state(module)
    linear = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    layers = [
        layer for layer in linear if layer.weight.numel() >= SMALLEST_WEIGHTS and layer.out_features % ranks.size() == 0
    ]
    if not layers:
        raise ValueError(
            f"run.shard is set but no linear layer has {SMALLEST_WEIGHTS} weights and outputs that divide among "
            f"{ranks.size()} processes: leave it out, the model is small."
        )
    mesh = init_device_mesh(device.type, (ranks.size(),))
    for layer in layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)


def own(parameter: nn.Parameter) -> nn.Parameter:
    """Return this process's shard of a parameter, or all of a parameter that is not sharded."""
    return getattr(parameter, "own", parameter)


def sharded(module: nn.Module) -> list[nn.Parameter]:
    """Sharded parameters of a module, prepared for :func:`own`. Moving the module to a device makes new ones."""
    found = [parameter for parameter in module.parameters() if isinstance(parameter, DTensor)]
    for parameter in found:
        if not hasattr(parameter, "own"):
            parameter.own = nn.Parameter(parameter.to_local().detach(), parameter.requires_grad)
    return found


def check_shards(parameters: Sequence[nn.Parameter], precision: str) -> None:
    """Raise ValueError for a precision in which sharded parameters cannot learn."""
    if parameters and precision in ("float8", "float16"):
        raise ValueError(f"run.shard is set but algorithm.precision is {precision}: use bfloat16 or float32.")


def take_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Move the gradients of sharded parameters to their :func:`own` shards."""
    for parameter in parameters:
        own(parameter).grad = None if parameter.grad is None else parameter.grad.to_local()
        parameter.grad = None


def whole(part: Tensor) -> Tensor:
    """Gather the shards of a tensor from all ranks and concatenate them."""
    parts = [torch.empty_like(part) for _ in range(ranks.size())]
    torch.distributed.all_gather(parts, part.contiguous())
    return torch.cat(parts)


def whole_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """State of a module with every parameter whole, as that of a module that is not sharded."""
    return {name: whole(value.to_local()) if isinstance(value, DTensor) else value for name, value in state.items()}


def own_state(module: nn.Module, state: Mapping[str, Any]) -> dict[str, Any]:
    """State for a module that may be sharded, from a :func:`whole_state`."""
    mine = module.state_dict()
    result = dict(state)
    for name, value in mine.items():
        if isinstance(value, DTensor) and name in state:
            part = ranks.own_rows(state[name], 0).to(value.device)
            result[name] = DTensor.from_local(part, value.device_mesh, [Shard(0)], run_check=False)
    return result
