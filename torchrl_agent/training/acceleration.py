"""Speed as a decoration at the edge: a function compiled, or captured in a CUDA graph, or left alone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tensordict.nn import CudaGraphModule

logger = logging.getLogger(__name__)


@dataclass
class AccelerationConfig:
    """What is compiled; each part falls back to eager, with one line in the log, where it cannot be."""

    step: bool = True
    """Compile the policy and the world's step as one graph (the policy alone for worlds that cannot be traced)."""
    advantages: bool = True
    """Compile reward scaling and generalised advantage estimation."""
    update: bool = True
    """Compile the loss; its backward is compiled with it."""
    cudagraphs: bool = True
    """On CUDA, capture the step and the update in CUDA graphs."""


WARMUP = 3
"""Calls before a CUDA graph is captured."""


class Accelerated:
    """``function``, compiled at its first call, or captured in a CUDA graph a few calls later.

    ``torch.compile`` is lazy, so the guard surrounds the first calls: if compilation or capture fails, the reason is
    logged once and the eager function is used from then on. A ValueError is the function's own and passes through.

    Attributes:
        compiled: whether calls run compiled code.
        captured: whether calls replay (or will replay) a CUDA graph.
        compile_seconds: duration of the first call.
    """

    def __init__(
        self, name: str, function: Callable, compile: bool, cudagraphs: bool = False, options: dict | None = None
    ) -> None:
        self.name, self.eager = name, function
        self.compiled, self.captured = compile, cudagraphs
        self.compile_seconds = 0.0
        self._guarded_calls = 1 + (WARMUP if cudagraphs else 0)
        self._function = function
        if compile:
            self._function = torch.compile(function, fullgraph=True, dynamic=False, options=options)
        if cudagraphs:
            self._function = CudaGraphModule(self._function, warmup=WARMUP)

    def __call__(self, *args: Any) -> Any:
        """Call the function."""
        if self._guarded_calls == 0:
            return self._function(*args)
        self._guarded_calls -= 1
        start = time.perf_counter()
        try:
            result = self._function(*args)
        except ValueError:
            raise
        except Exception as error:
            if not (self.compiled or self.captured):
                raise
            reason = str(error).strip().split("\n")[0]
            logger.warning("%s cannot be compiled, runs eagerly: %s: %s", self.name, type(error).__name__, reason)
            self.compiled = self.captured = False
            self._function, self._guarded_calls = self.eager, 0
            result = self._function(*args)
        if self.compile_seconds == 0:
            self.compile_seconds = time.perf_counter() - start
        return result
