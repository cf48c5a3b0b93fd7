"""Correspondence of parameters: each tensor of another library's policy, and the part of a parameter of ours that
equals it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

MOMENTS = {"exp_avg": 1, "exp_avg_sq": 2, "square_avg": 2}
"""Moments of Adam and RMSprop, and the power of the gradient that each is a mean of."""


@dataclass(frozen=True)
class Pair:
    """One tensor of theirs, and its place in a parameter of ours: ``theirs = ours * scale + shift``."""

    name: str
    ours: nn.Parameter
    rows: slice | None = None
    """Rows of our parameter; of an LSTM those of each of the four gates."""
    inputs: slice | None = None
    """Columns of our parameter, if it has any."""
    gates: bool = False
    """True for the parameters of an LSTM, in which four gates lie below each other."""
    order: Tensor | None = None
    """Their column of each column of ours; None if their order is ours."""
    scale: Tensor | None = None
    """Factor of each row, such as half the range of an action."""
    shift: Tensor | None = None
    """Summand of each row."""

    def place(self, whole: Tensor) -> Tensor:
        """View of the part of a tensor like our parameter; of an LSTM's, [4 gates, rows, ...]."""
        view = whole.unflatten(0, (4, -1)) if self.gates else whole
        view = view if self.rows is None else view[(slice(None), self.rows) if self.gates else self.rows]
        return view if self.inputs is None or whole.ndim < 2 else view[..., self.inputs]

    def to_ours(self, theirs: Tensor, power: int = 0) -> Tensor:
        """Convert a value of theirs; or with a ``power`` a mean of that power of the gradient, which by the chain rule
        grows with ``scale`` where a value shrinks.
        """
        value = theirs if self.order is None or theirs.ndim < 2 else theirs[:, self.order]
        value = value.unflatten(0, (4, -1)) if self.gates else value
        if power:
            return value if self.scale is None else value * self._factor(value) ** power
        value = value if self.shift is None else value - self.shift
        return value if self.scale is None else value / self._factor(value)

    def to_theirs(self, ours: Tensor, power: int = 0) -> Tensor:
        """Convert a value of the part of ours, or a mean of a ``power`` of its gradient."""
        value = ours.flatten(0, 1) if self.gates else ours
        value = value if self.order is None or value.ndim < 2 else value[:, self.order.argsort()]
        if power:
            return value if self.scale is None else value / self._factor(value) ** power
        value = value if self.scale is None else value * self._factor(value)
        return value if self.shift is None else value + self.shift

    def put(self, value: Tensor, whole: Tensor) -> None:
        """Copy a converted value to its :meth:`place`.

        Raises:
            ValueError: it has another shape.
        """
        target = self.place(whole)
        if value.shape != target.shape:
            raise ValueError(f"{self.name} has shape {list(value.shape)} and not {list(target.shape)}")
        target.copy_(value)

    def _factor(self, value: Tensor) -> Tensor:
        assert self.scale is not None
        return self.scale.reshape(-1, *[1] * (value.ndim - 1))


@torch.no_grad()
def fill(pairs: Iterable[Pair], theirs: Mapping[str, Tensor]) -> None:
    """Copy their values into our parameters, which are zero beside them."""
    pairs = list(pairs)
    for parameter in {pair.ours for pair in pairs}:
        parameter.zero_()
    for pair in pairs:
        pair.put(pair.to_ours(theirs[pair.name]), pair.ours)


@torch.no_grad()
def values(pairs: Iterable[Pair]) -> dict[str, Tensor]:
    """Our values by their names."""
    return {pair.name: pair.to_theirs(pair.place(pair.ours)).clone() for pair in pairs}


def moments_to_ours(
    pairs: Iterable[Pair], theirs: Mapping[str, Mapping[str, Tensor]]
) -> dict[nn.Parameter, dict[str, Tensor]]:
    """Optimizer states of our parameters, made of those of theirs by name.

    Raises:
        KeyError: a tensor has none.
    """
    result: dict[nn.Parameter, dict[str, Tensor]] = {}
    for pair in pairs:
        for name, value in theirs[pair.name].items():
            state = result.setdefault(pair.ours, {})
            if name in MOMENTS:
                whole = state.setdefault(name, torch.zeros_like(pair.ours, device="cpu"))
                pair.put(pair.to_ours(value, MOMENTS[name]), whole)
            elif name == "step":
                state[name] = torch.as_tensor(value, dtype=torch.float32)
    return result


def moments_to_theirs(
    pairs: Iterable[Pair], ours: Mapping[nn.Parameter, Mapping[str, Tensor]]
) -> dict[str, dict[str, Tensor]]:
    """Optimizer states by their names, made of those of our parameters.

    Raises:
        KeyError: a parameter has none.
    """
    result: dict[str, dict[str, Tensor]] = {}
    for pair in pairs:
        state = ours[pair.ours]
        found = {
            name: pair.to_theirs(pair.place(state[name]), power).clone()
            for name, power in MOMENTS.items()
            if name in state
        }
        result[pair.name] = {**found, "step": torch.as_tensor(state["step"], dtype=torch.float32).clone().reshape(())}
    return result


def layer_pairs(name: str, layer: nn.Module, **changes: object) -> list[Pair]:
    """Pairs of the weight and the bias of a layer with such a name."""
    return [Pair(f"{name}.{part}", getattr(layer, part), **changes) for part in ("weight", "bias")]  # type: ignore[arg-type]
