"""Precision in which networks act and learn, by autocast: weights and optimizer are always float32.

``float8`` multiplies the large linear layers of perception and world model in 8 bits, by torchao's float8 training
(its recipe "rowwise_with_gw_hp"), and the rest in bfloat16. Each row of an input and each output of a layer has a scale
of its own, so the output of a row does not depend on the others in its batch: a rollout and an update compute the same.
With scales of whole tensors, which are faster, the first probability ratio would not be 1.
"""

from __future__ import annotations

import importlib.util
import logging
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchrl_agent.models.agent import Agent

logger = logging.getLogger(__name__)

PRECISIONS: dict[str, torch.dtype | None] = {
    "float32": None,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float8": torch.bfloat16,
}
"""Data types in which autocast computes, by precision."""
AUTO = "auto"
SMALLEST_LAYER = 4096
"""Default least number of inputs and outputs of a layer that multiplies in float8: below it casting may cost more than
it saves. Torchao's own filter for scales by rows, from measurements on an H100, leaves out most smaller layers.
"""
MULTIPLE = 16
"""Divisor of the number of inputs and of outputs of a product in float8."""
FLOAT16_FROM, BFLOAT16_FROM, FLOAT8_FROM = (7, 0), (8, 0), (8, 9)
"""Lowest CUDA compute capability of a device that multiplies in each type."""


def resolve(precision: str, smallest_layer: int, agent: Agent, device: torch.device) -> str:
    """Return one of :data:`PRECISIONS`: the configured one, or the one that ``auto`` selects on this device.

    ``auto`` is float8 where the device has it, torchao is installed and a layer is large enough, else bfloat16 where
    the device has that, else float16 where it multiplies fast in that, else float32.
    """
    if precision != AUTO:
        return precision
    large = large_layers(agent, smallest_layer)
    if large and _has(device, FLOAT8_FROM) and has_torchao():
        return "float8"
    without = without_float8(AUTO, device)
    return "float16" if without == "float32" and _has(device, FLOAT16_FROM) else without


def without_float8(precision: str, device: torch.device) -> str:
    """Resolve a precision where ``auto`` can be neither float8 nor float16, whose gradients are scaled: for members of
    a population, and for a sharded model.
    """
    if precision != AUTO:
        return precision
    return "bfloat16" if _has(device, BFLOAT16_FROM) else "float32"


def large_layers(agent: Agent, smallest_layer: int) -> list[tuple[nn.Module, str]]:
    """Linear layers of modules that allow float8 with at least ``smallest_layer`` inputs and outputs, which are
    multiples of 16: each as its parent module, and its name there.
    """
    modules = [module for module in agent.agent_modules.values() if module.allows_float8]
    parents = {id(parent): parent for module in modules for parent in (*module.modules(), *_parts(module.losses))}
    return [
        (parent, name)
        for parent in parents.values()
        for name, layer in parent.named_children()
        if isinstance(layer, nn.Linear)
        and min(layer.weight.shape) >= smallest_layer
        and not any(size % MULTIPLE for size in layer.weight.shape)
    ]


def use_float8(agent: Agent, smallest_layer: int, device: torch.device) -> None:
    """Let the large layers multiply in float8 wherever autocast is on; elsewhere they stay as they are, and their
    weights are the same parameters. Emulated, with the same results but slowly, where the device has no float8.

    Raises:
        ValueError: torchao is missing, or no layer is large enough.
    """
    if not has_torchao():
        raise ValueError(
            "algorithm.precision=float8 needs torchao, which is not installed: pip install 'torchrl-agent[float8]', or "
            "use bfloat16."
        )
    layers = large_layers(agent, smallest_layer)
    if not layers:
        raise ValueError(
            f"algorithm.precision is float8 but no linear layer of perception or world model has {smallest_layer} "
            f"inputs and outputs that are multiples of {MULTIPLE}: use bfloat16, or lower "
            "algorithm.float8_smallest_layer."
        )
    emulate = not _has(device, FLOAT8_FROM)
    if emulate:
        logger.warning("%s has no float8: it is emulated, which is slower than float32.", device)
        logging.getLogger("torchao").setLevel(logging.ERROR)  # that its kernels for GPUs are not there
    config = _rowwise(emulate)
    for parent, name in layers:
        setattr(parent, name, _float8_linear().from_float(getattr(parent, name), config=config))


def has_torchao() -> bool:
    """True if torchao is installed."""
    return importlib.util.find_spec("torchao") is not None


def _has(device: torch.device, capability: tuple[int, int]) -> bool:
    """True for a CUDA device of at least this compute capability."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= capability


def _parts(modules: list[nn.Module]) -> list[nn.Module]:
    return [part for module in modules for part in module.modules()]


def _rowwise(emulate: bool) -> Any:
    """Return the configuration of torchao's recipe, with the gradient of the weights in bfloat16: its sums are over
    frames, of which there may be any number.
    """
    from dataclasses import replace

    from torchao.float8 import Float8LinearConfig

    return replace(Float8LinearConfig.from_recipe_name("rowwise_with_gw_hp"), emulate=emulate)


@cache
def _float8_linear() -> Any:
    """Return torchao's layer, which is a plain one where autocast is off. Made here, as torchao may be missing."""
    from torchao.float8.float8_linear import Float8Linear

    class SwitchedFloat8Linear(Float8Linear):
        """A linear layer that multiplies in float8 where autocast is on."""

        def forward(self, input: Tensor) -> Tensor:
            kind = input.device.type
            if not torch.is_autocast_enabled(kind):
                return F.linear(input, self.weight, self.bias)
            dtype = torch.get_autocast_dtype(kind)
            with torch.autocast(kind, enabled=False):  # torchao's own products are in the types that it wants
                return super().forward(input.to(dtype))

    return SwitchedFloat8Linear
