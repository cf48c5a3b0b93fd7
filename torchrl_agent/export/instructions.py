"""Translations of PyTorch's operations into the instructions of a program (``program.js``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchrl_agent.export import indexing
from torchrl_agent.export.indexing import lines

if TYPE_CHECKING:
    from torchrl_agent.export.program import Value, Writer

IGNORED = {"_assert_tensor_metadata", "_assert_async", "_assert_scalar", "sym_constrain_range_for_size"}
VIEWS = {"view", "permute", "expand", "slice", "select", "unsqueeze", "squeeze", "alias", "detach", "transpose", "t"}
VIEWS |= {"split_with_sizes", "split", "unbind", "diagonal"}
FILLED: dict[str, Callable[[Sequence[Any]], float]] = {
    "full_like": lambda arguments: arguments[1],
    "zeros_like": lambda arguments: 0,
    "ones_like": lambda arguments: 1,
}
"""Operations whose results depend on shapes alone, each with the number that fills them."""
COPIES = {"clone", "_unsafe_view", "lift_fresh_copy", "contiguous", "_to_copy"}
ELEMENTS = {
    **{word: word for word in ("add", "sub", "mul", "div", "pow", "remainder", "fmod", "minimum", "maximum", "atan2")},
    **{word: word for word in ("eq", "ne", "lt", "le", "gt", "ge", "where", "neg", "abs", "sign", "floor", "ceil")},
    **{
        word: word for word in ("round", "trunc", "sqrt", "rsqrt", "reciprocal", "exp", "expm1", "log", "log1p", "log2")
    },
    **{word: word for word in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "sigmoid", "relu")},
    **{word: word for word in ("isnan", "isinf", "logical_and", "logical_or", "logical_xor", "logical_not")},
    **{word: word for word in ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not")},
    "__lshift__": "shift_left",
    "bitwise_left_shift": "shift_left",
    "__rshift__": "shift_right",
    "bitwise_right_shift": "shift_right",
    "__and__": "bitwise_and",
    "__or__": "bitwise_or",
    "__xor__": "bitwise_xor",
}
"""Operations on single elements, each with its instruction."""
REDUCTIONS = {"sum", "mean", "amax", "amin", "any", "all", "prod", "argmax", "argmin"}


def translate(writer: Writer, word: str, arguments: Sequence[Any], options: dict, like: Any) -> Any:
    """Add the instructions of an operation and return its result, whose type and shape are those of ``like``.

    Raises:
        ValueError: the operation has no translation.
    """
    if word in ELEMENTS:
        return _elements(writer, word, arguments, options, like)
    if word in COPIES:
        return _cast(writer, arguments[0], like)
    if word in REDUCTIONS:
        return _reduce(writer, word, arguments, like)
    found = _SPECIAL.get(word) or indexing.OPERATIONS.get(word)
    if found is None:
        raise writer.refuse(f"aten.{word}")
    return found(writer, arguments, options, like)


# --- elements --------------------------------------------------------------------------------------------------------


def _elements(writer: Writer, word: str, arguments: Sequence[Any], options: dict, like: Tensor) -> Value:
    """Numbers are rounded to the type in which PyTorch computes, and everything is broadcast to the result."""
    parts, name = list(arguments), ELEMENTS[word]
    if (factor := options.get("alpha", 1)) != 1:
        second = writer.tensor(parts[1], like.dtype)
        scaled = torch.empty(second.shape, dtype=like.dtype, device="meta")
        parts[1] = _elements(writer, "mul", (second, factor), {}, scaled)
    if (mode := options.get("rounding_mode")) is not None:
        name = f"div_{mode}"
    if name == "bitwise_not" and like.dtype == torch.bool:
        name = "logical_not"
    dtype = _common(parts[1:] if word == "where" else parts)
    return writer.emit(name, like, [writer.tensor(part, dtype).reading(like.shape) for part in parts])


def _common(parts: Sequence[Any]) -> torch.dtype:
    """Return the type in which PyTorch computes with one or two tensors or numbers."""
    given: list[Any] = [part if isinstance(part, (bool, int, float, Tensor)) else part.place for part in parts]
    return torch.result_type(*given) if len(given) == 2 else given[0].dtype


def _cast(writer: Writer, argument: Any, like: Tensor) -> Value:
    value = writer.tensor(argument, like.dtype)
    return value if value.dtype == like.dtype else writer.emit("cast", like, [value.reading(like.shape)])


def _copy(writer: Writer, arguments: Sequence[Any], options: dict, like: Tensor) -> Value:
    value = writer.tensor(arguments[1], like.dtype)
    return _cast(writer, type(value)(value.slot, value.place.expand(like.shape)), like)


def _clamp(writer: Writer, arguments: Sequence[Any], options: dict, like: Tensor) -> Value:
    value, low, high = (*arguments, None, None)[:3]
    low, high = options.get("min", low), options.get("max", high)
    if low is not None:
        value = _elements(writer, "maximum", (value, low), {}, like)
    return value if high is None else _elements(writer, "minimum", (value, high), {}, like)


def _bounded(word: str) -> Callable:
    return lambda writer, arguments, options, like: _elements(writer, word, arguments, {}, like)


# --- along axes ------------------------------------------------------------------------------------------------------


def _reduce(writer: Writer, word: str, arguments: Sequence[Any], like: Tensor) -> Value:
    value = writer.tensor(arguments[0], like.dtype)
    axes = arguments[1] if len(arguments) > 1 else None
    return writer.emit(word, like, [value.reading()], list(value.shape), _axes(axes, value))


def _axes(axes: Any, value: Value) -> list[int]:
    """Return axes counted from 0; all of them for None."""
    count = value.place.ndim
    chosen = range(count) if axes is None or axes == [] else [axes] if isinstance(axes, int) else axes
    return sorted(axis % count for axis in chosen) if count else []


def _var(writer: Writer, arguments: Sequence[Any], options: dict, like: Tensor) -> Value:
    value = writer.tensor(arguments[0], like.dtype)
    axes = _axes(arguments[1] if len(arguments) > 1 else options.get("dim"), value)
    return writer.emit("var", like, [value.reading()], list(value.shape), axes, options.get("correction", 1))


def _along(word: str) -> Callable:
    """Instruction along one axis that keeps the shape."""

    def translated(writer: Writer, arguments: Sequence[Any], options: dict, like: Tensor) -> Value:
        value = writer.whole(arguments[0])
        return writer.emit(word, like, [value.reading()], *lines(value.shape, arguments[1]))

    return translated


def _extreme(word: str) -> Callable:
    """Largest or smallest values along an axis and their indices."""

    def translated(writer: Writer, arguments: Sequence[Any], options: dict, like: Any) -> list[Value]:
        value, axis = writer.whole(arguments[0]), arguments[1]
        reduced = [list(value.shape), _axes(axis, value)]
        best = writer.emit("amax" if word == "argmax" else "amin", like[0], [value.reading()], *reduced)
        return [best, writer.emit(word, like[1], [value.reading()], *reduced)]

    return translated


# --- matrices --------------------------------------------------------------------------------------------------------


def _matmul(writer: Writer, arguments: Sequence[Any], options: dict, like: Tensor) -> Value:
    left, right = (writer.whole(part) for part in arguments)
    rows, inner, columns = left.shape[-2], left.shape[-1], right.shape[-1]
    return writer.emit("matmul", like, [left.reading(), right.reading()], rows, inner, columns)


def _addmm(writer: Writer, arguments: Sequence[Any], options: dict, like: Tensor) -> Value:
    if options.get("beta", 1) != 1 or options.get("alpha", 1) != 1:
        raise writer.refuse("aten.addmm with factors")
    product = _matmul(writer, arguments[1:], {}, like)
    return _elements(writer, "add", (product, arguments[0]), {}, like)


def _convolution(writer: Writer, arguments: Sequence[Any], options: dict, like: Tensor) -> Value:
    seen, weight, bias, stride, padding, dilation, transposed, _, groups = arguments
    if transposed or like.ndim != 4 or list(dilation) != [1, 1]:
        raise writer.refuse("a convolution other than a plain one of pictures")
    seen, weight = writer.whole(seen), writer.whole(weight)
    shapes = [list(seen.shape), list(weight.shape), list(stride), list(padding), groups]
    found = writer.emit("convolution", like, [seen.reading(), weight.reading()], *shapes)
    if bias is None:
        return found
    channels = writer.tensor(bias, like.dtype)
    wide = type(channels)(channels.slot, channels.place.reshape(-1, 1, 1))
    return _elements(writer, "add", (found, wide), {}, like)


_SPECIAL: dict[str, Callable] = {
    "clamp": _clamp,
    "clamp_min": _bounded("maximum"),
    "clamp_max": _bounded("minimum"),
    "copy": _copy,
    "var": _var,
    "max": _extreme("argmax"),
    "min": _extreme("argmin"),
    "cumsum": _along("cumsum"),
    "_softmax": _along("softmax"),
    "_log_softmax": _along("log_softmax"),
    "mm": _matmul,
    "bmm": _matmul,
    "addmm": _addmm,
    "convolution": _convolution,
}
