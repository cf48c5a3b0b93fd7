"""Named ranges of code that ``torch.profiler`` shows.

PyTorch's own ``record_function`` costs 10 to 20 microseconds even without a profiler, and Dynamo warns of it; a span
costs less than one and vanishes inside compiled code.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar, cast

import torch
from torch.profiler import record_function

Function = TypeVar("Function", bound=Callable)
_NOTHING = nullcontext()


def span(name: str) -> AbstractContextManager:
    """Return a context that a profiler shows under this name; compiled code shows no spans inside it."""
    if torch.compiler.is_compiling() or not torch.autograd._profiler_enabled():
        return _NOTHING
    return record_function(name)


def spanned(name: str) -> Callable[[Function], Function]:
    """Decorate a function so that its calls are spans."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with span(name):
                return function(*args, **kwargs)

        return cast(Function, call)

    return decorate
