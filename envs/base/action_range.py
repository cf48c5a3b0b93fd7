"""Range of a world's actions, and the treatment of actions outside it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torchrl.data import Bounded, Categorical, MultiCategorical, TensorSpec


class ActionRange:
    """Lower and upper bound of each component of an action.

    Args:
        spec: spec of the action: categorical, multi-categorical or continuous.
        leading: number of its leading axes, which are worlds and agents.
    """

    def __init__(self, spec: TensorSpec, leading: int) -> None:
        self.shape, self.continuous = spec.shape, spec.dtype.is_floating_point
        self.ends: tuple[int, int] | tuple[Tensor, Tensor] | None = None
        if isinstance(spec, MultiCategorical):
            highest = spec.nvec.reshape(-1, spec.shape[-1])[0].to(device=spec.device) - 1
            self.ends = torch.zeros_like(highest), highest
        elif isinstance(spec, Categorical):
            self.ends = 0, int(spec.space.n) - 1
        elif isinstance(spec, Bounded):
            low, high = (end[(0,) * leading].clone() for end in (spec.space.low, spec.space.high))
            self.ends = low, high

    def nearest(self, action: Tensor) -> Tensor:
        """Return ``action``, clamped to the range."""
        return action if self.ends is None else action.clamp(*self.ends)

    def check(self, action: Tensor, world: str) -> None:
        """Raise ValueError if ``action`` has another shape or type, or if it holds an integer outside the range. The
        values are checked only where this needs no synchronization: on the CPU, outside of compiled code.
        """
        if action.shape != self.shape or action.is_floating_point() != self.continuous:
            raise ValueError(
                f"the action has shape {tuple(action.shape)} and type {action.dtype}: {world} takes "
                f"{'numbers' if self.continuous else 'whole numbers'} of shape {tuple(self.shape)}."
            )
        seen = type(action) is Tensor and action.device.type == "cpu" and not torch.compiler.is_compiling()
        if self.ends is None or self.continuous or not seen:
            return
        values, (low, high) = action.numpy(), self.ends
        wrong = (values < 0) | (values > (high if isinstance(high, int) else high.cpu().numpy()))
        if wrong.any():
            reach = f"{low} to {high}" if isinstance(high, int) else f"0 to each of {high.tolist()}"
            raise ValueError(f"{world} was given action {values[wrong][0]}: its actions are {reach}.")

    def moved(self, move: Callable[[Tensor], Tensor]) -> None:
        """Move the bounds to the world's new device."""
        if self.ends is not None and isinstance(self.ends[0], Tensor):
            low, high = self.ends
            self.ends = move(low), move(high)
