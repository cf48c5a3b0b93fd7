"""Gradient checkpointing: networks whose backward pass recomputes what the forward pass does not keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.utils.checkpoint import checkpoint

from torchrl_agent.core.text import did_you_mean

UNREPEATABLE = (_DropoutNd, nn.RReLU, _BatchNorm)
"""Layers that draw random numbers, or update batch statistics, each time that they are run."""


class Recomputed(nn.Module):
    """Mixin before a network's class, of which the inputs alone are then kept for the backward pass (Chen et al.,
    "Training deep nets with sublinear memory cost", 2016). The network gives the same output whenever it is run.
    """

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the network; where gradients are recorded, keep its inputs alone."""
        if not torch.is_grad_enabled():
            return super().forward(*args, **kwargs)
        return checkpoint(self._run, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        return super().forward(*args, **kwargs)


def recompute(parts: Mapping[str, Sequence[nn.Module]], names: Sequence[str]) -> None:
    """Make the networks of these parts of an agent :class:`Recomputed`; their weights keep their names.

    Args:
        parts: modules by the name of the part.
        names: names of the parts to change.

    Raises:
        ValueError: there is no such part, or a network of it has a layer of :data:`UNREPEATABLE`.
    """
    for name in names:
        if name not in parts:
            raise ValueError(
                f"model.recompute names {name!r}, which this agent has not{did_you_mean(name, parts)}: use "
                f"{', '.join(parts)}."
            )
        for module in parts[name]:
            for network in _networks(module):
                _check_repeatable(name, network)
                network.__class__ = _recomputed(type(network))  # type: ignore[arg-type]  # forward, weights, hooks stay


def _networks(module: nn.Module) -> Iterator[nn.Sequential]:
    """Outermost networks of several layers in a module that are not :class:`Recomputed` yet."""
    for child in module.children():
        if isinstance(child, nn.Sequential) and len(child) > 1:  # of a single layer the input is kept anyway
            if not isinstance(child, Recomputed):  # as part of another module
                yield child
        else:
            yield from _networks(child)


def _check_repeatable(name: str, network: nn.Sequential) -> None:
    for layer in network.modules():
        if isinstance(layer, UNREPEATABLE):
            raise ValueError(
                f"model.recompute names {name!r}, but its {type(layer).__name__} would not find the same when it is "
                "run again: leave it out."
            )


@cache
def _recomputed(kind: type[nn.Sequential]) -> type[nn.Sequential]:
    """Return the :class:`Recomputed` class of a network's class."""
    return type(f"Recomputed{kind.__name__}", (Recomputed, kind), {})
