"""Functions of tensors as programs in JSON, which a browser runs (``program.js``).

A function is traced for fixed shapes, and its graph becomes a list of instructions on flat arrays. Everything that
shapes decide is decided here: a view is no instruction, but an offset and strides of whoever reads it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch._decomp import core_aten_decompositions
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.functional import layer_norm, one_hot
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from torchrl_agent.export.instructions import FILLED, IGNORED, VIEWS, translate

VERSION = 1
"""Version of the format."""
LISTED = 8
"""Largest number of floats that are written as decimals instead of base64."""

Function = Callable[[dict[str, Tensor]], dict[str, Tensor]]


@dataclass(frozen=True)
class Value:
    """A tensor of the program: its ``slot``, and its place in the slot as a tensor without memory."""

    slot: int
    place: Tensor

    @property
    def dtype(self) -> torch.dtype:
        return self.place.dtype

    @property
    def shape(self) -> torch.Size:
        return self.place.shape

    def reading(self, shape: Sequence[int] | None = None) -> list[Any]:
        """Return slot, offset and strides with which this is read as ``shape``, to which it is broadcast."""
        place = self.place if shape is None else self.place.expand(tuple(shape))
        whole = place.is_contiguous() and place.storage_offset() == 0
        return [self.slot] if whole else [self.slot, place.storage_offset(), list(place.stride())]


def to_program(function: Function, example: dict[str, Tensor], name: str) -> dict[str, Any]:
    """Return a function of tensors by name as a program, for the shapes of the example.

    Args:
        function: pure; its results share no memory with what it is given.
        name: in error messages.

    Raises:
        ValueError: the function branches on values, or an operation of it has no translation.
    """
    try:
        with torch.no_grad():
            graph = make_fx(functionalize(_traceable(function)), core_aten_decompositions())(example)
            names = list(function(example))
    except Exception as error:  # tracing fails in as many ways as there are functions
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise ValueError(
            f"{name} cannot be exported ({type(error).__name__}: {reason}): write it without branches on values."
        ) from None
    graph.graph.eliminate_dead_code()
    return Writer(name).write(graph, list(example), names)


def _traceable(function: Function) -> Function:
    """Return the function with one-hot rows that are compared instead of checked, which reads their values, and layer
    normalization in its parts.
    """

    def traceable(given: dict[str, Tensor]) -> dict[str, Tensor]:
        with _InParts():
            return function(given)

    return traceable


class _InParts(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is one_hot:
            return (args[0].unsqueeze(-1) == torch.arange(args[1])).long()
        if function is layer_norm:
            return _layer_norm(*args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))


def _layer_norm(value: Tensor, shape: Sequence[int], weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    axes = list(range(-len(shape), 0))
    deviation = (value.var(axes, correction=0, keepdim=True) + eps).sqrt()
    return (value - value.mean(axes, keepdim=True)) / deviation * weight + bias


@dataclass
class Writer:
    """Writer of one program; a node of the graph is a :class:`Value`, a constant tensor, or a list of them."""

    name: str
    slots: int = 0
    inputs: list[list[Any]] = field(default_factory=list)
    constants: list[list[Any]] = field(default_factory=list)
    instructions: list[list[Any]] = field(default_factory=list)
    known: dict[fx.Node, Any] = field(default_factory=dict)
    placed: dict[bytes, Value] = field(default_factory=dict)

    def write(self, graph: fx.GraphModule, inputs: list[str], outputs: list[str]) -> dict[str, Any]:
        """Return the program of a graph whose inputs and outputs have these names."""
        names, results = iter(inputs), []
        for node in graph.graph.nodes:
            if node.op == "placeholder":
                self.known[node] = self._input(next(names), node.meta["val"])
            elif node.op == "get_attr":
                self.known[node] = getattr(graph, str(node.target)).detach()
            elif node.op == "call_function":
                self.known[node] = self._call(node)
            else:
                found = [self.whole(self._argument(value)) for value in tree_leaves(node.args[0])]
                results = [[name, value.slot, list(value.shape)] for name, value in zip(outputs, found, strict=True)]
        return {
            "version": VERSION,
            "slots": self.slots,
            "inputs": self.inputs,
            "constants": self.constants,
            "instructions": self.instructions,
            "outputs": results,
        }

    def _input(self, name: str, like: Tensor) -> Value:
        value = self._new(like.dtype, like.shape)
        self.inputs.append([name, value.slot, _kind(like.dtype), list(like.shape)])
        return value

    def _new(self, dtype: torch.dtype, shape: Sequence[int]) -> Value:
        self.slots += 1
        return Value(self.slots - 1, torch.empty(tuple(shape), dtype=dtype, device="meta"))

    def _argument(self, argument: Any) -> Any:
        """Return an argument of a node, with values in place of nodes."""
        return fx.node.map_aggregate(argument, lambda part: self.known[part] if isinstance(part, fx.Node) else part)

    def _call(self, node: fx.Node) -> Any:
        arguments, options = self._argument(node.args), self._argument(node.kwargs)
        target: Any = node.target
        if not isinstance(target, torch._ops.OpOverload):
            return arguments[0][arguments[1]]  # an item of several results
        word = target.overloadpacket.__name__
        if word in IGNORED:
            return None
        given: list[Value] = []
        fx.node.map_aggregate(
            [arguments, options], lambda part: given.append(part) if isinstance(part, Value) else None
        )
        like = node.meta["val"]
        if word in FILLED:
            return torch.full(like.shape, FILLED[word](arguments), dtype=like.dtype)
        if not given:
            return target(*arguments, **options)
        if word in VIEWS and isinstance(arguments[0], Value):
            return self._view(target, arguments, options)
        return translate(self, word, arguments, options, like)

    def _view(self, target: Any, arguments: tuple, options: dict) -> Any:
        """Return views: the operation itself finds their places."""
        value = arguments[0]
        try:
            found = target(value.place, *arguments[1:], **options)
        except RuntimeError:  # no view of what is not contiguous
            value = self.whole(value)
            found = target(value.place, *arguments[1:], **options)
        if isinstance(found, Tensor):
            return Value(value.slot, found)
        return [Value(value.slot, part) for part in found]

    # --- what translations use ---------------------------------------------------------------------------------------

    def emit(self, word: str, like: Tensor, reads: list[list[Any]], *details: Any) -> Value:
        """Add an instruction that writes a new tensor of the type and shape of ``like``."""
        value = self._new(like.dtype, like.shape)
        self.instructions.append([word, value.slot, _kind(like.dtype), list(like.shape), reads, *details])
        return value

    def tensor(self, argument: Any, dtype: torch.dtype) -> Value:
        """Return an argument as a value: a number becomes a constant of a type."""
        if isinstance(argument, Value):
            return argument
        constant = argument.cpu() if isinstance(argument, Tensor) else torch.tensor(argument, dtype=dtype)
        key = repr((constant.dtype, tuple(constant.shape))).encode() + constant.contiguous().numpy().tobytes()
        if key not in self.placed:
            value = self.placed[key] = self._new(constant.dtype, constant.shape)
            self.constants.append([value.slot, _kind(constant.dtype), _numbers(constant)])
        return self.placed[key]

    def whole(self, argument: Any) -> Value:
        """Return an argument as a value that fills its slot in the order of its numbers."""
        value = self.tensor(argument, torch.float32)
        fills = value.place.untyped_storage().nbytes() == value.place.numel() * value.place.element_size()
        return value if fills and len(value.reading()) == 1 else self.emit("read", value.place, [value.reading()])

    def refuse(self, word: str) -> ValueError:
        """Return the error of an operation without a translation."""
        return ValueError(f"{self.name} cannot be exported: it uses {word}, which has no translation for the browser.")


def _kind(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _numbers(constant: Tensor) -> list[Any] | str:
    """Return numbers as a list, many floats in base64."""
    if constant.dtype == torch.float32 and (constant.numel() > LISTED or not bool(constant.isfinite().all())):
        return base64.b64encode(constant.contiguous().numpy().astype("<f4").tobytes()).decode()
    return as_list(constant)


def as_list(value: Tensor) -> list[Any]:
    """Return the numbers of a tensor, truth values as 0 and 1."""
    return (value.to(torch.int64) if value.dtype == torch.bool else value).reshape(-1).tolist()
