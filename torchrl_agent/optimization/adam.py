"""Adam (Kingma and Ba 2015) with decoupled weight decay (AdamW, Loshchilov and Hutter 2019): PyTorch's optimizer, and
its step in functions that are traced.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, chain, groupby, pairwise
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from typing_extensions import override

Range: TypeAlias = tuple[int, int]
"""First of some columns, and the one after the last."""
BETAS = (0.9, 0.999)
"""Smoothing of the gradient and of its square, as in PyTorch's Adam."""


def make_adam(
    parameters: list[nn.Parameter], learning_rate: float, epsilon: float, weight_decay: float = 0.0
) -> torch.optim.Adam:
    """Make Adam, fused and with its learning rate as a tensor where the device supports it; ``weight_decay`` shrinks
    all parameters by this fraction of the learning rate in every step, as AdamW does.
    """
    device = parameters[0].device
    decay: dict[str, Any] = {"weight_decay": weight_decay, "decoupled_weight_decay": True}
    try:
        rate = torch.tensor(learning_rate, device=device)
        on_cuda = device.type == "cuda"
        return torch.optim.Adam(parameters, lr=rate, eps=epsilon, fused=True, capturable=on_cuda, **decay)
    except RuntimeError:
        return torch.optim.Adam(parameters, lr=learning_rate, eps=epsilon, foreach=True, **decay)


def is_plain_adam(optimizer: torch.optim.Optimizer) -> bool:
    """True for Adam as :func:`make_adam` makes it on devices with a fused one, whose step :func:`adam_step` is."""
    if type(optimizer) is not torch.optim.Adam or len(optimizer.param_groups) > 1:
        return False
    group = optimizer.param_groups[0]
    penalty = group["weight_decay"] and not group["decoupled_weight_decay"]  # in the gradient, not in the step
    unusual = penalty, group["amsgrad"], group["maximize"]
    return isinstance(group["lr"], Tensor) and group["betas"] == BETAS and not any(unusual)


class AdamStep(NamedTuple):
    """Result of :func:`adam_step`: parameters and moments afterwards [..., D], the norm of the gradient before clipping
    [...] and those of its ranges [..., ranges], and a mask of the steps made [...].
    """

    flat: Tensor
    mean: Tensor
    square: Tensor
    norm: Tensor
    norms: Tensor
    made: Tensor


def adam_step(
    flat: Tensor,
    gradient: Tensor,
    moments: tuple[Tensor, Tensor],
    steps: Tensor,
    rate: Tensor,
    max_norm: Tensor | float,
    parts: Sequence[Sequence[Range]],
    wanted: Tensor,
    epsilon: float,
    learning: Tensor | None = None,
    weight_decay: float = 0.0,
) -> AdamStep:
    """One step of Adam on the rows of a tensor, skipped where it is not ``wanted`` or the gradient is not finite.

    Args:
        flat: parameters, [..., D].
        gradient: their gradient, [..., D].
        moments: running means of the gradient and of its square, [..., D].
        steps: number of steps, this one included, [..., 1] or [..., D].
        rate: learning rates, [...].
        max_norm: largest norm of the gradient of each part, [...].
        parts: ranges of columns whose gradient is clipped together, side by side.
        wanted: mask of the rows that are to make the step, bool [...].
        epsilon: term in the denominator.
        learning: mask of the columns that take part, bool [D]; None for all.
        weight_decay: fraction of the learning rate by which the parameters shrink.
    """
    norms = torch.stack([row_norms(gradient[..., begin:end]) for part in parts for begin, end in part], -1)
    of_parts = torch.stack([row_norms(each) for each in norms.split([len(part) for part in parts], -1)], -1)
    norm = row_norms(of_parts)
    made = wanted & norm.isfinite()
    limit = max_norm.unsqueeze(-1) if isinstance(max_norm, Tensor) else max_norm
    factors = (limit / (of_parts + 1e-6)).clamp_max(1.0)  # as PyTorch clips
    widths = [part[-1][1] - part[0][0] for part in parts]
    pieces = [factors[..., i : i + 1].expand(*norm.shape, width) for i, width in enumerate(widths)]
    rows = made.unsqueeze(-1)
    gradient = torch.where(rows, gradient * torch.cat(pieces, -1), 0.0)
    # running means of the gradient and of its square, then the step with both corrected for their bias
    mean = moments[0].lerp(gradient, 1 - BETAS[0])
    square = moments[1] * BETAS[1] + gradient.square() * (1 - BETAS[1])
    corrected = (square / (1 - BETAS[1] ** steps)).sqrt() + epsilon
    shrunk = flat * (1 - rate.unsqueeze(-1) * weight_decay) if weight_decay else flat
    moved = shrunk - rate.unsqueeze(-1) * (mean / (1 - BETAS[0] ** steps)) / corrected
    rows = rows if learning is None else rows & learning

    def chosen(new: Tensor, old: Tensor) -> Tensor:
        return torch.where(rows, new, old)

    return AdamStep(chosen(moved, flat), chosen(mean, moments[0]), chosen(square, moments[1]), norm, norms, made)


def row_norms(rows: Tensor) -> Tensor:
    """Norm [...] of each row [..., D]."""
    return rows.norm(dim=-1).view(rows.shape[:-1])  # PyTorch 2.11 traces a norm of one column to one with that column


class TracedAdam(ABC):
    """The step of a :class:`torch.optim.Adam` in a function that is traced: its moments stay where they are, also when
    a checkpoint is loaded, and the optimizer can go on with them by itself.

    Args:
        optimizer: Adam as :func:`make_adam` makes it.
        parameters: its parameters.
        memory: memory of each for its number of steps and the running means of its gradient and of the square.
    """

    def __init__(
        self,
        optimizer: torch.optim.Adam,
        parameters: Sequence[nn.Parameter],
        memory: Iterable[tuple[Tensor, Tensor, Tensor]],
    ) -> None:
        self.optimizer, (self.group,) = optimizer, optimizer.param_groups
        self.parameters = parameters
        self.moments = {
            each: {"step": steps, "exp_avg": mean.view_as(each), "exp_avg_sq": square.view_as(each)}
            for each, (steps, mean, square) in zip(parameters, memory, strict=True)
        }
        self.take_moments()

    @torch.no_grad()
    def take_moments(self) -> None:
        """Copy the optimizer's moments, if it has any, and let it use the copies."""
        state = self.optimizer.state
        for parameter, moments in self.moments.items():
            for name, value in moments.items():
                value.copy_(state[parameter][name]) if parameter in state else value.zero_()
            state[parameter] = moments

    @abstractmethod
    def step(self, gradients: Sequence[Tensor | None], wanted: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Clip the gradients and make one step in place if it is ``wanted`` (bool []) and all are finite; parameters
        without a gradient stay out of it.

        Returns:
            The gradients' norms before clipping, ``grad_norm`` and ``grad_norm/<module>``, and whether the step was
            made, bool [].
        """


class FlatAdam(TracedAdam):
    """The step as arithmetic on all parameters at once: moments are views of two tensors, in which those of parameters
    that are clipped together lie side by side.

    Args:
        optimizer: Adam as :func:`make_adam` makes it.
        parts: groups of parameters, the gradient of each clipped by its own norm.
        module_names: name of each parameter's module, for the gradient norms that are reported.
        max_norm: largest norm of a group.
    """

    def __init__(
        self,
        optimizer: torch.optim.Adam,
        parts: Sequence[Sequence[nn.Parameter]],
        module_names: Mapping[nn.Parameter, str],
        max_norm: float,
    ) -> None:
        self.max_norm = max_norm
        learning, name_of = set(optimizer.param_groups[0]["params"]), module_names.__getitem__
        ordered = [sorted((each for each in part if each in learning), key=name_of) for part in parts]
        ordered = [part for part in ordered if part]
        pieces = [[list(piece) for _, piece in groupby(part, name_of)] for part in ordered]  # of one module each
        columns = iter(columns_of(chain(*pieces)))
        self.parts = [[next(columns) for _ in part] for part in pieces]
        self.of_modules: dict[str, list[int]] = defaultdict(list)
        """Indices of each module's ranges."""
        for index, piece in enumerate(chain(*pieces)):
            self.of_modules[name_of(piece[0])].append(index)
        parameters = [parameter for part in ordered for parameter in part]
        self.sizes = [parameter.numel() for parameter in parameters]
        device = parameters[0].device
        self.mean, self.square = (torch.zeros(sum(self.sizes), device=device) for _ in range(2))
        self.steps = torch.zeros(len(self.sizes), device=device)
        sizes = torch.tensor(self.sizes, device=device)
        self.owner = torch.arange(len(self.sizes), device=device).repeat_interleave(sizes)
        """Index of the parameter of each column, int64 [D]."""
        views = self.steps.unbind(), self.mean.split(self.sizes), self.square.split(self.sizes)
        super().__init__(optimizer, parameters, zip(*views, strict=True))

    @override
    def step(self, gradients: Sequence[Tensor | None], wanted: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        pairs = list(zip(gradients, self.parameters, strict=True))
        gradient = torch.cat([(torch.zeros_like(each) if grad is None else grad).flatten() for grad, each in pairs])
        flat = torch.cat([each.detach().flatten() for each in self.parameters])
        moments, rate, epsilon = (self.mean, self.square), self.group["lr"], self.group["eps"]
        decay = self.group["weight_decay"]
        steps, learning, columns = self.steps + 1, None, None
        if any(grad is None for grad in gradients):
            learning = torch.tensor([grad is not None for grad in gradients], device=flat.device)
            columns = learning[self.owner]
        counts = steps[self.owner]
        limits = self.max_norm, self.parts
        after = adam_step(flat, gradient, moments, counts, rate, *limits, wanted, epsilon, columns, decay)
        for (grad, parameter), value in zip(pairs, after.flat.split(self.sizes), strict=True):
            if grad is not None:
                parameter.copy_(value.view_as(parameter))
        self.mean.copy_(after.mean)
        self.square.copy_(after.square)
        self.steps.copy_(torch.where(after.made if learning is None else after.made & learning, steps, self.steps))
        norms = {"grad_norm": after.norm}
        of_ranges = after.norms.unbind()
        for name, indices in self.of_modules.items():
            norms[f"grad_norm/{name}"] = torch.stack([of_ranges[index] for index in indices]).norm()
        return norms, after.made


def columns_of(groups: Iterable[Iterable[nn.Parameter]]) -> list[Range]:
    """Range of each group of parameters that lie side by side."""
    sizes = (sum(parameter.numel() for parameter in group) for group in groups)
    return list(pairwise(accumulate(sizes, initial=0)))


LEAST_FUSED = 2_000
"""Number of parameters from which :class:`FusedAdam` is faster on a CPU than :class:`FlatAdam`: with 226, 4,610, 9,155,
67,073 and 132,179 it takes 64, 85, 128, 181 and 266 microseconds, and the other 43, 128, 271, 1,388 and 2,559."""
_OPERATORS = torch.library.Library("torchrl_agent", "FRAGMENT")
_OPERATORS.define(
    "fused_adam(Tensor(a!)[] parameters, Tensor[] gradients, Tensor[] steps, Tensor(b!)[] means, Tensor(c!)[] squares, "
    "Tensor rate, float decay, float epsilon, Tensor skip) -> ()"
)


@torch.library.impl(_OPERATORS, "fused_adam", "CPU")
def _fused_adam(
    parameters: list[Tensor],
    gradients: list[Tensor],
    steps: list[Tensor],
    means: list[Tensor],
    squares: list[Tensor],
    rate: Tensor,
    decay: float,
    epsilon: float,
    skip: Tensor,
) -> None:
    """Make the step of a fused :class:`torch.optim.Adam`, counted already, unless ``skip`` [] is 1. PyTorch's own
    operator cannot be part of a traced function, as it reads its numbers on the host.
    """
    numbers = {"beta1": BETAS[0], "beta2": BETAS[1], "weight_decay": decay, "eps": epsilon}
    options = {"lr": rate, **numbers, "amsgrad": False, "maximize": False, "found_inf": skip}
    torch._fused_adamw_(parameters, gradients, means, squares, [], steps, **options)


@torch.library.impl(_OPERATORS, "fused_adam", "Meta")
def _fused_adam_of_shapes(*_: Any) -> None:
    """Nothing has a shape of its own."""


class FusedAdam(TracedAdam):
    """The step as one operator on a CPU. Its kernel takes tensors in the order of their memory, so moments and
    gradients are laid out as their parameters.

    Args:
        optimizer: Adam as :func:`make_adam` makes it.
        clip: function that clips gradients in place and returns their norms before it (see :meth:`step`).
    """

    def __init__(
        self, optimizer: torch.optim.Adam, clip: Callable[[Mapping[nn.Parameter, Tensor]], dict[str, Tensor]]
    ) -> None:
        self.clip = clip
        parameters = optimizer.param_groups[0]["params"]
        self.steps = torch.zeros(len(parameters))
        memory = zip(self.steps, *([torch.zeros_like(each) for each in parameters] for _ in range(2)), strict=True)
        super().__init__(optimizer, parameters, memory)

    @override
    def step(self, gradients: Sequence[Tensor | None], wanted: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        pairs = zip(self.parameters, gradients, strict=True)
        # the layout of a parameter is not promised by ``grad``; memory of its own, as clipping writes there
        given = {each: torch.empty_like(each).copy_(gradient) for each, gradient in pairs if gradient is not None}
        norms = self.clip(given)
        made = wanted & norms["grad_norm"].isfinite()
        learning = torch.tensor([gradient is not None for gradient in gradients])
        self.steps.add_(made & learning)
        steps = dict(zip(self.parameters, self.steps, strict=True))
        torch.ops.torchrl_agent.fused_adam(
            [parameter.detach() for parameter in given],
            list(given.values()),
            [steps[each] for each in given],
            *([self.moments[each][name] for each in given] for name in ("exp_avg", "exp_avg_sq")),
            self.group["lr"],
            self.group["weight_decay"],
            self.group["eps"],
            (~made).float(),
        )
        return norms, made
