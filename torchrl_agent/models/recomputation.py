"""Memory for time: networks of which the backward pass computes again what the forward pass does not keep."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Recomputed(nn.Sequential):
    """Layers one after the other, of which the input alone is kept for the backward pass (Chen et al., "Training deep
    nets with sublinear memory cost", 2016). They draw no random numbers.
    """

    def forward(self, input: Tensor) -> Tensor:
        """What the layers find."""
        if not torch.is_grad_enabled():
            return super().forward(input)
        return checkpoint(self._run, input, use_reentrant=False, preserve_rng_state=False)

    def _run(self, input: Tensor) -> Tensor:
        return super().forward(input)


def recompute(parts: Mapping[str, Sequence[nn.Module]], names: Sequence[str]) -> None:
    """Let the networks of these parts of an agent be :class:`Recomputed`; their weights keep their names.

    Args:
        parts: modules by the name of the part.
        names: of those to change.

    Raises:
        ValueError: there is no such part.
    """
    for name in names:
        if name not in parts:
            raise ValueError(f"model.recompute names {name!r}, which this agent has not: use {', '.join(parts)}.")
        for module in parts[name]:
            _recompute_networks(module)


def _recompute_networks(module: nn.Module) -> None:
    for name, child in module.named_children():
        if isinstance(child, nn.Sequential) and len(child) > 1:  # of a single layer the input is kept anyway
            setattr(module, name, Recomputed(OrderedDict(child.named_children())))
        else:
            _recompute_networks(child)
