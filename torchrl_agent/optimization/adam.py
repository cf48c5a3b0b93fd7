"""Adam (Kingma and Ba 2015) with decoupled weight decay (AdamW, Loshchilov and Hutter 2019): PyTorch's optimizer, and
its step as arithmetic on parameters that lie side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

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


LEAST_FUSED = 10_000
"""Number of parameters from which :func:`fused_step` is faster on a CPU than :class:`FlatAdam`: with 260, 9,220, 34,820
and 135,172 it takes 260, 270, 360 and 410 microseconds, and the other 70, 260, 790 and 2,500."""
_OPERATORS = torch.library.Library("torchrl_agent", "FRAGMENT")
_OPERATORS.define(
    "fused_adam(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] means, Tensor(c!)[] squares, "
    "Tensor(d!)[] steps, Tensor rate, float decay, float epsilon, Tensor skip) -> ()"
)


@torch.library.impl(_OPERATORS, "fused_adam", "CPU")
def _fused_adam(
    parameters: list[Tensor],
    gradients: list[Tensor],
    means: list[Tensor],
    squares: list[Tensor],
    steps: list[Tensor],
    rate: Tensor,
    decay: float,
    epsilon: float,
    skip: Tensor,
) -> None:
    """Make the step of a fused :class:`torch.optim.Adam`, unless ``skip`` [] is 1."""
    torch._foreach_add_(steps, 1 - skip)
    numbers = {"beta1": BETAS[0], "beta2": BETAS[1], "weight_decay": decay, "eps": epsilon}
    options = {"lr": rate, **numbers, "amsgrad": False, "maximize": False, "found_inf": skip}
    torch._fused_adamw_(parameters, gradients, means, squares, [], steps, **options)


@torch.library.impl(_OPERATORS, "fused_adam", "Meta")
def _fused_adam_of_shapes(*_: Any) -> None:
    """Nothing has a shape of its own."""


def begin_moments(optimizer: torch.optim.Adam) -> None:
    """Put the moments of each parameter into memory of their own, laid out as the parameter, as :func:`fused_step`
    needs them; zeros where there are none yet.
    """
    for parameter in optimizer.param_groups[0]["params"]:
        old = optimizer.state[parameter]
        moments = {name: torch.zeros_like(parameter, requires_grad=False) for name in ("exp_avg", "exp_avg_sq")}
        for name, value in moments.items():
            value.copy_(old.get(name, value))
        optimizer.state[parameter] = {"step": torch.zeros(()).copy_(old.get("step", torch.zeros(()))), **moments}


def fused_step(optimizer: torch.optim.Adam, gradients: Mapping[nn.Parameter, Tensor], made: Tensor) -> None:
    """Step of an Adam of :func:`make_adam` on a CPU, with moments (:func:`begin_moments`), if it is ``made`` (bool []):
    one operator in a traced function. The gradients are laid out as their parameters: PyTorch's kernel takes all in the
    order of their memory.
    """
    (group,) = optimizer.param_groups
    states = [optimizer.state[parameter] for parameter in gradients]
    moments = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step"))
    torch.ops.torchrl_agent.fused_adam(
        [parameter.detach() for parameter in gradients],
        list(gradients.values()),
        *moments,
        group["lr"],
        group["weight_decay"],
        group["eps"],
        (~made).float(),
    )


class AdamStep(NamedTuple):
    """Result of :func:`adam_step`: parameters and moments afterwards [..., D], the norm of the gradient before clipping
    and a mask of the steps made [...].
    """

    flat: Tensor
    mean: Tensor
    square: Tensor
    norm: Tensor
    made: Tensor


def adam_step(
    flat: Tensor,
    gradient: Tensor,
    moments: tuple[Tensor, Tensor],
    steps: Tensor,
    rate: Tensor,
    max_norm: Tensor | float,
    ranges: Sequence[tuple[int, int]],
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
        max_norm: largest norm of the gradient of each range, [...].
        ranges: of the columns whose gradient is clipped together, the first and the one after the last.
        wanted: mask of the rows that are to make the step, bool [...].
        epsilon: term in the denominator.
        learning: mask of the columns that take part, bool [D]; None for all.
        weight_decay: fraction of the learning rate by which the parameters shrink.
    """
    norms = torch.stack([gradient[..., begin:end].norm(dim=-1) for begin, end in ranges], -1)
    norm = norms.norm(dim=-1)
    made = wanted & norm.isfinite()
    limit = max_norm.unsqueeze(-1) if isinstance(max_norm, Tensor) else max_norm
    factors = (limit / (norms + 1e-6)).clamp_max(1.0)  # as PyTorch clips
    widths = [end - begin for begin, end in ranges]
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

    return AdamStep(chosen(moved, flat), chosen(mean, moments[0]), chosen(square, moments[1]), norm, made)


class FlatAdam:
    """The step of a :class:`torch.optim.Adam` on all parameters at once, for a function that is traced as a whole.

    The optimizer's moments become views of two tensors, in which parameters that are clipped together lie side by side;
    the optimizer can go on with them by itself.

    Args:
        optimizer: Adam as :func:`make_adam` makes it.
        parts: groups of parameters, the gradient of each clipped by its own norm.
        module_names: name of each parameter's module, for the gradient norms that are reported.
    """

    def __init__(
        self,
        optimizer: torch.optim.Adam,
        parts: Sequence[Sequence[nn.Parameter]],
        module_names: Mapping[nn.Parameter, str],
    ) -> None:
        self.optimizer, (self.group,) = optimizer, optimizer.param_groups
        learning = set(self.group["params"])
        ordered = [
            (part, module_names[parameter], parameter)
            for part, group in enumerate(parts)
            for parameter in sorted(group, key=lambda each: module_names[each])
            if parameter in learning
        ]
        self.parameters = [parameter for *_, parameter in ordered]
        self.sizes = [parameter.numel() for parameter in self.parameters]
        ends = [0, *accumulate(self.sizes)]
        columns = zip(ordered, pairwise(ends), strict=True)
        neighbors = {key: list(group) for key, group in groupby(columns, lambda each: each[0][:2])}
        # by part and module: first column and the one after the last
        spans = {key: (group[0][1][0], group[-1][1][1]) for key, group in neighbors.items()}
        self.ranges = [_joined(spans, part) for part in dict.fromkeys(part for part, _ in spans)]
        self.of_modules: dict[str, list[tuple[int, int]]] = {}
        for (_, name), span in spans.items():
            self.of_modules.setdefault(name, []).append(span)
        device = self.parameters[0].device
        self.mean, self.square = (torch.zeros(sum(self.sizes), device=device) for _ in range(2))
        self.steps = torch.zeros(len(self.sizes), device=device)
        sizes = torch.tensor(self.sizes, device=device)
        self.owner = torch.arange(len(self.sizes), device=device).repeat_interleave(sizes)
        """Index of the parameter of each column, int64 [D]."""
        self.take_moments()

    @torch.no_grad()
    def take_moments(self) -> None:
        """Copy the optimizer's moments, if it has any, and let it use views of the copies."""
        state = self.optimizer.state
        pieces = zip(
            self.parameters,
            self.mean.split(self.sizes),
            self.square.split(self.sizes),
            self.steps.unbind(),
            strict=True,
        )
        for parameter, mean, square, steps in pieces:
            views = {"step": steps, "exp_avg": mean.view_as(parameter), "exp_avg_sq": square.view_as(parameter)}
            for name, view in views.items():
                view.copy_(state[parameter][name]) if parameter in state else view.zero_()
            state[parameter] = views

    def step(
        self, gradients: Sequence[Tensor | None], max_norm: float, wanted: Tensor
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Make one step in place, unless a gradient is not finite; parameters without a gradient stay out of it.

        Returns:
            The gradients' norms before clipping, ``grad_norm`` and ``grad_norm/<module>``, and whether the step was
            made, bool [].
        """
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
        after = adam_step(flat, gradient, moments, counts, rate, max_norm, self.ranges, wanted, epsilon, columns, decay)
        for (grad, parameter), value in zip(pairs, after.flat.split(self.sizes), strict=True):
            if grad is not None:
                parameter.copy_(value.view_as(parameter))
        self.mean.copy_(after.mean)
        self.square.copy_(after.square)
        self.steps.copy_(torch.where(after.made if learning is None else after.made & learning, steps, self.steps))
        norms = {"grad_norm": after.norm}
        for name, spans in self.of_modules.items():
            squares = [gradient[begin:end].square().sum() for begin, end in spans]
            norms[f"grad_norm/{name}"] = torch.stack(squares).sum().sqrt()
        return norms, after.made


def _joined(spans: Mapping[tuple[int, str], tuple[int, int]], part: int) -> tuple[int, int]:
    """First column and end of the neighboring spans of a part's modules."""
    own = [span for (number, _), span in spans.items() if number == part]
    return own[0][0], own[-1][1]
