"""Launches, bytes and operations of eager code on a GPU: the part of training that is not compiled.

On CUDA these operations are captured in the same graphs as compiled code, and run as one kernel each, at least.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

aten = torch.ops.aten
ALLOCATING = {aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided}
"""Operations that only allocate memory."""
OVERWRITING = {aten.copy_, aten.fill_, aten.zero_, aten._foreach_copy_, aten._foreach_zero_}
"""Operations that do not read their destination."""
CHOOSING = {aten.index, aten.index_select, aten.gather}
"""Operations that read as much of their first argument as they return."""


@dataclass
class Work:
    """Work of some operations."""

    launches: int = 0
    bytes: int = 0
    """Bytes read and written, every element once for each operation."""
    flops: int = 0
    """Operations of matrix products and convolutions."""


class Uncompiled(TorchDispatchMode):
    """Mode that counts operations by the stage in which they run; see :meth:`stage`."""

    def __init__(self, rest: str) -> None:
        super().__init__()
        self._stage = rest
        self.work: dict[str, Work] = defaultdict(Work)

    @contextlib.contextmanager
    def stage(self, name: str | None) -> Iterator[None]:
        """Context whose operations are counted under this name, or not at all; an outer stage resumes after it."""
        if name is None:
            with _disable_current_modes():
                yield
            return
        before, self._stage = self._stage, name
        try:
            yield
        finally:
            self._stage = before

    @contextlib.contextmanager
    def stages(self, methods: dict[tuple[type, str], str | None]) -> Iterator[None]:
        """Context in which each of these methods, by class and name, is a stage."""
        with contextlib.ExitStack() as stack:
            for (owner, method), name in methods.items():
                stack.enter_context(mock.patch.object(owner, method, self._within(name, getattr(owner, method))))
            yield

    def _within(self, name: str | None, function: Callable) -> Callable:
        def call(*args: Any, **kwargs: Any) -> Any:
            with self.stage(name):
                return function(*args, **kwargs)

        return call

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Run an operation and count it."""
        result = func(*args, **kwargs or {})
        self._count(self.work[self._stage], func, args, kwargs or {}, result)
        return result

    def _count(self, work: Work, func: Any, args: tuple, kwargs: dict, result: Any) -> None:
        seen, made = _tensors((args, kwargs)), _tensors(result)
        places = {_place(each) for each in seen}
        written = [each for argument, value in _named(func, args, kwargs) if argument for each in _tensors(value)]
        fresh = [each for each in made if _place(each) not in places]
        if func.overloadpacket in ALLOCATING or not (written or fresh):
            return  # a view is no kernel
        read = seen
        if func.overloadpacket in CHOOSING:
            read = [*_tensors((args[1:], kwargs)), *fresh]
        elif func.overloadpacket in OVERWRITING or func._overloadname == "out":
            read = [each for each in seen if all(each is not other for other in written)]
        work.launches += _launches(func, written)
        work.bytes += sum(map(_size, (*read, *written, *fresh)))
        formula = flop_registry.get(func.overloadpacket)
        if formula is not None:
            work.flops += int(formula(*args, **kwargs, out_val=result))


def _launches(func: Any, written: list[Tensor]) -> int:
    """Count the kernels of an operation: one, but one for each tensor of a list of several types."""
    mixed = len({each.dtype for each in written}) > 1
    return len(written) if mixed and func.overloadpacket is aten._foreach_copy_ else 1


def count_flops(function: Callable[[], Any]) -> int:
    """Count the operations (a multiplication and an addition are two) of the matrix products and convolutions of an
    eager call, including its backward pass if it has one.
    """
    counted = Uncompiled("call")
    with counted:
        function()
    return counted.work["call"].flops


def _named(func: Any, args: tuple, kwargs: dict) -> Iterator[tuple[bool, Any]]:
    """Yield for each argument of an operation True if it is written to, and the argument."""
    for index, argument in enumerate(func._schema.arguments):
        value = args[index] if index < len(args) else kwargs.get(argument.name)
        writes = argument.alias_info is not None and argument.alias_info.is_write
        yield writes and argument.name != "grads", value  # which fused optimizers could unscale, but here need not


def _tensors(values: Any) -> list[Tensor]:
    return [each for each in tree_leaves(values) if isinstance(each, Tensor)]


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _size(tensor: Tensor) -> int:
    """Return the bytes of a tensor's elements, each once if the tensor is expanded."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())
