"""Named ranges that ``torch.profiler`` shows, standing where the code is.

PyTorch's own ``record_function`` costs 10 to 20 microseconds whether or not anybody looks, and Dynamo warns of it; a
span costs less than one and is nothing inside compiled code.
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
    """A context that a profiler shows under this name; what is compiled shows nothing of what is inside it."""
    if torch.compiler.is_compiling() or not torch.autograd._profiler_enabled():
        return _NOTHING
    return record_function(name)


def spanned(name: str) -> Callable[[Function], Function]:
    """A function whose calls are spans."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with span(name):
                return function(*args, **kwargs)

        return cast(Function, call)

    return decorate
