"""Hosts that are PyTorch modules with named slots: a module of one's own, and two examples.

All hosts share one module; each has its own parameters, a column of one tensor. A forward pass is the module's, through
``functional_call`` and ``vmap`` over worlds; hooks let the modules of slots join where their names say.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from typing_extensions import override

from envs.growth.network import Mixture, join
from envs.growth.state import STREAM_HOST, STREAM_MODULE, Modules, Weights
from envs.toolkit.chance import Chance
from envs.toolkit.names import did_you_mean
from envs.toolkit.records import map_record

LARGEST = (STREAM_MODULE - STREAM_HOST) * 256
"""Number of parameters for which there are random numbers."""


Join: TypeAlias = Callable[[Tensor, int], Tensor]
"""Function of the features at a slot and the slot's number, which returns other features."""


class OwnWeights(NamedTuple):
    """Parameters of a host in a row, in the order of ``named_parameters``."""

    parameters: Tensor
    """[P, N]"""


class OwnHost:
    """Module whose parameters every world has its own values of, with slots behind some of its submodules.

    Each world draws its parameters uniformly, with the mean and the standard deviation of each parameter of the module
    as it was given; one of a single value, such as a bias of zeros, is that value everywhere. Dropout is off, and
    buffers are shared.

    Args:
        module: takes a batch of the task's rows, float32 [B, ...], and returns logits [B, classes].
        slots: names of submodules behind whose output [B, ...] a slot is, with the axis of the features; in a plain
            sequence that is the last axis. All other axes are positions, in their order.
        rows: some rows of the task, to try the module with.
        classes: number of classes.

    Raises:
        ValueError: a slot has no place in the module, or the module does not fit the task.
    """

    def __init__(self, module: nn.Module, slots: Sequence[str] | Mapping[str, int], rows: Tensor, classes: int) -> None:
        self.module = copy.deepcopy(module).to(rows.device).eval().requires_grad_(False)
        parameters = dict(self.module.named_parameters())
        self.shapes = {name: value.shape for name, value in parameters.items()}
        size = sum(value.numel() for value in parameters.values())
        if not 0 < size <= LARGEST:
            raise ValueError(f"the host has {size:,} parameters: give one of 1 to {LARGEST:,}.")
        mean, deviation = ([function(value.float()) for value in parameters.values()] for function in (_mean, _spread))
        self.mean, self.spread = (torch.cat([each.flatten() for each in values]) for values in (mean, deviation))
        self.slots = dict(slots) if isinstance(slots, Mapping) else dict.fromkeys(slots, -1)
        self._join: Join | None = None
        self.widths = self._probed(rows[:2], classes)

    def _probed(self, rows: Tensor, classes: int) -> tuple[int, ...]:
        """Put hooks into the module and try it; return the number of features at each slot."""
        shapes: list[list[Any]] = [[] for _ in self.slots]
        named = dict(self.module.named_modules())
        for number, name in enumerate(self.slots):
            if name not in named or not name:
                raise ValueError(
                    f"slot {name!r} has no place in the host{did_you_mean(name, named)}: name one of its submodules, "
                    f"{', '.join(filter(None, named)) or 'of which it has none'}."
                )
            named[name].register_forward_hook(partial(self._hook, number))

        def noted(features: Any, slot: int) -> Any:
            shapes[slot].append(getattr(features, "shape", None))
            return features

        shape = self._tried(rows, noted)
        if shape != [len(rows), classes]:
            raise ValueError(f"the host returns {shape} for {len(rows)} rows: return logits [rows, {classes}].")
        slots = zip(self.slots.items(), shapes, strict=True)
        return tuple(_width(name, axis, seen, len(rows)) for (name, axis), seen in slots)

    def _tried(self, rows: Tensor, joined: Join) -> list[int]:
        """Return the shape of the module's output for some rows."""
        self._join = joined
        try:
            return list(getattr(self.module(rows), "shape", ()))
        except Exception as error:  # of any kind: it is not our module
            reason = " ".join(str(error).split())
            raise ValueError(f"the host does not take a batch {list(rows.shape)} of the task ({reason}).") from error
        finally:
            self._join = None

    def _hook(self, slot: int, module: nn.Module, inputs: Any, output: Any) -> Any:
        return output if self._join is None else self._join(output, slot)

    def to(self, function: Callable[[Tensor], Tensor]) -> None:
        """Move buffers and constants by a function of tensors."""
        self.module._apply(function)
        self.mean, self.spread = function(self.mean), function(self.spread)

    def draw(self, chance: Chance) -> OwnWeights:
        """Draw the parameters of fresh hosts."""
        count = len(self.mean)
        numbers = chance.uniform(STREAM_HOST, count, width=count // 256 + 1) * 2 - 1
        return OwnWeights(self.mean.unsqueeze(1) + self.spread.unsqueeze(1) * numbers)

    def host_forward(self, host: Any, inputs: Tensor) -> Tensor:
        """Compute the logits [N, 1, B, K] of hosts with parameters [N, P], without modules."""
        return vmap(self._logits)(host.parameters, inputs).unsqueeze(1)

    def forward(self, weights: Weights, inputs: Tensor, mixture: Mixture, rules: Any) -> Tensor:
        """Compute the logits [N, G, B, K] of rows ``inputs`` [N, B, ...] in each of G configurations."""
        if mixture.training is None:
            mixture = mixture._replace(training=torch.zeros_like(mixture.rank))

        def of_world(parameters: Tensor, modules: Modules, rows: Tensor, mixed: Mixture) -> Tensor:
            def configured(alpha: Tensor) -> Tensor:
                present = map_record(lambda value: value.unsqueeze(0), mixed._replace(alpha=alpha.unsqueeze(-1)))
                return self._logits(parameters, rows, partial(self._joined, modules, present, rules))

            modules = map_record(lambda value: value.unsqueeze(0), modules)
            return vmap(configured, in_dims=-1)(mixed.alpha)

        return vmap(of_world)(weights.host.parameters, weights.modules, inputs, mixture)

    def _joined(self, modules: Modules, mixture: Mixture, rules: Any, features: Tensor, slot: int) -> Tensor:
        """Join a slot's module with the features of one world, of any shape."""
        axis = list(self.slots.values())[slot]
        last = features.movedim(axis, -1)
        positions = last.reshape(len(last), -1, last.shape[-1])
        joined = join(positions[None, None], modules, mixture, slot, rules)[0, 0]
        return joined.reshape(last.shape).movedim(-1, axis)

    def _logits(self, parameters: Tensor, rows: Tensor, joined: Join | None = None) -> Tensor:
        """Compute the logits [B, K] of one world, whose parameters are a row [P]."""
        parts = parameters.split([shape.numel() for shape in self.shapes.values()])
        named = {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}
        self._join = joined
        try:
            return functional_call(self.module, named, (rows,)).float()
        finally:
            self._join = None


def _mean(value: Tensor) -> Tensor:
    return value.mean().expand(value.shape)


def _spread(value: Tensor) -> Tensor:
    """Half the width of the uniform distribution with a parameter's standard deviation."""
    return (math.sqrt(3) * value.std(correction=0)).expand(value.shape)


def _width(name: str, axis: int, shapes: list[Any], rows: int) -> int:
    """Return the number of features at a slot, from the shapes of its submodule's outputs."""
    if len(shapes) != 1:
        raise ValueError(f"slot {name!r} is passed {len(shapes)} times in a forward pass: name a submodule used once.")
    shape = shapes[0]
    if shape is None or len(shape) < 2 or shape[0] != rows or not (-len(shape) < axis < len(shape) and axis):
        seen = "no tensor" if shape is None else list(shape)
        raise ValueError(
            f"slot {name!r} with the features' axis {axis} does not fit its output, {seen} for {rows} rows: name a "
            "submodule that returns [rows, ...], and an axis of it other than the first."
        )
    return int(shape[axis])


class Convolution(nn.Linear):
    """Convolution of width 3 over positions [B, L, F], as a matrix product: PyTorch's own, under ``vmap``, rounds
    differently with the number of worlds.
    """

    def __init__(self, features: int, width: int) -> None:
        super().__init__(3 * features, width)

    @override
    def forward(self, rows: Tensor) -> Tensor:
        """Compute features [B, L, C]; beyond the ends there are zeros."""
        wide = torch.nn.functional.pad(rows, (0, 0, 1, 1))
        return super().forward(torch.cat((wide[:, :-2], rows, wide[:, 2:]), -1))


class Convolutions(nn.Module):
    """Two convolutions over positions, and the maximum over them. Slots: ``first``, ``second``."""

    def __init__(self, features: int, classes: int, width: int) -> None:
        super().__init__()
        self.first, self.second = Convolution(features, width), Convolution(width, width)
        self.classifier = nn.Linear(width, classes)

    def forward(self, rows: Tensor) -> Tensor:
        """Compute the logits [B, K] of rows [B, L, F]."""
        seen = torch.relu(self.first(rows))
        seen = seen + torch.relu(self.second(seen))
        return self.classifier(seen.amax(1))


class Layer(nn.Module):
    """Attention with one head and a position-wise network, each behind a layer norm and beside a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.heads, self.merged = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, seen: Tensor) -> Tensor:
        """Map features [B, L, C] to others."""
        query, key, value = self.heads(self.before(seen)).chunk(3, -1)
        weights = torch.softmax(query @ key.transpose(-1, -2) / math.sqrt(seen.shape[-1]), -1)
        seen = seen + self.merged(weights @ value)
        return seen + self.narrow(torch.relu(self.wide(self.between(seen))))


class Transformer(nn.Module):
    """Two layers of a transformer, and the mean over positions. Slots: ``layers.0``, ``layers.1``."""

    def __init__(self, positions: int, features: int, classes: int, width: int) -> None:
        super().__init__()
        self.embedding, self.place = nn.Linear(features, width), nn.Parameter(torch.randn(positions, width))
        self.layers = nn.Sequential(Layer(width), Layer(width))
        self.classifier = nn.Linear(width, classes)

    def forward(self, rows: Tensor) -> Tensor:
        """Compute the logits [B, K] of rows [B, L, F]."""
        return self.classifier(self.layers(self.embedding(rows) + self.place).mean(1))


EXAMPLES = ("cnn", "transformer")
"""Names of the examples."""


def example(name: str, rows: Tensor, classes: int, width: int) -> tuple[nn.Module, dict[str, int]]:
    """Make the host ``cnn`` or ``transformer`` for rows [rows, L, F], and name its slots."""
    positions, features = rows.shape[1:]
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)  # worlds draw their weights by the mean and deviation of these
        if name == "cnn":
            return Convolutions(features, classes, width), {"first": -1, "second": -1}
        return Transformer(positions, features, classes, width), {"layers.0": -1, "layers.1": -1}
