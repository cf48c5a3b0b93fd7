"""Adam for rows that learn apart: each with its own rate, its own clipping and its own count of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

BETAS = (0.9, 0.999)
"""Smoothing of the gradient and of its square, as in PyTorch's Adam."""


class RowAdam:
    """Adam (Kingma and Ba 2015) on a tensor [P, D] whose rows know nothing of each other.

    Args:
        flat: what learns.
        ranges: of the columns whose gradient is clipped together, the first and the one after the last.
        epsilon: in the denominator.

    Attributes:
        mean, square: running means of the gradient and of its square, [P, D].
        steps: that each row has made, [P, 1].
    """

    def __init__(self, flat: Tensor, ranges: Sequence[tuple[int, int]], epsilon: float = 1e-8) -> None:
        self.flat, self.ranges, self.epsilon = flat, list(ranges), epsilon
        self.mean, self.square = torch.zeros_like(flat.detach()), torch.zeros_like(flat.detach())
        self.steps = torch.zeros(flat.shape[0], 1, device=flat.device)

    @torch.no_grad()
    def step(self, gradient: Tensor, rate: Tensor, max_norm: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """One step of the rows that want it and whose gradient is finite; the others keep weights, moments and count.

        Args:
            gradient: [P, D].
            rate: learning rates, [P].
            max_norm: largest norms of the gradient of each range, [P].
            wanted: bool [P].

        Returns:
            The norms of the whole gradients before clipping and which rows made the step, [P] each.
        """
        norms = torch.stack([gradient[:, begin:end].norm(dim=1) for begin, end in self.ranges], 1)
        norm = norms.norm(dim=1)
        made = wanted & norm.isfinite()
        factors = (max_norm.unsqueeze(1) / (norms + 1e-6)).clamp_max(1.0)  # as PyTorch clips
        widths = [end - begin for begin, end in self.ranges]
        factor = torch.cat([factors[:, [i]].expand(-1, width) for i, width in enumerate(widths)], 1)
        rows = made.unsqueeze(1)
        gradient = torch.where(rows, gradient * factor, 0.0)
        mean = self.mean.lerp(gradient, 1 - BETAS[0])
        square = self.square * BETAS[1] + gradient.square() * (1 - BETAS[1])
        steps = self.steps + 1
        corrected = (square / (1 - BETAS[1] ** steps)).sqrt() + self.epsilon
        flat = self.flat - rate.unsqueeze(1) * (mean / (1 - BETAS[0] ** steps)) / corrected
        for target, value in ((self.flat, flat), (self.mean, mean), (self.square, square), (self.steps, steps)):
            target.copy_(torch.where(rows, value, target))
        return norm, made

    def tensors(self) -> dict[str, Tensor]:
        """What it remembers, by name, [P, ...] each."""
        return {"mean": self.mean, "square": self.square, "steps": self.steps}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from :meth:`tensors`."""
        for name, value in self.tensors().items():
            value.copy_(tensors[name])
