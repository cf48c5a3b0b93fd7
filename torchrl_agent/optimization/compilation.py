"""Acceleration of functions from outside: compiled, captured as a CUDA graph, or left as they are.

A function that cannot be captured runs compiled, and one that cannot be compiled runs eagerly; each fallback is logged
once, with its reason, and reported by ``mode``.
"""

from __future__ import annotations

import logging
import re
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException

from torchrl_agent.core.spans import span

logger = logging.getLogger(__name__)

EAGER, COMPILED, CUDA_GRAPH = "eager", "compiled", "CUDA graph"
MODES = (EAGER, COMPILED, CUDA_GRAPH)
"""Execution modes of a function, from slow to fast; metrics hold the index in this list."""
WARMUP = 2
"""Calls before a CUDA graph is captured: the first compiles and allocates, the second shows that nothing changes."""
COMPILATION_ERRORS = (TorchDynamoException, FailOnRecompileLimitHit)
LIBRARIES = {"torch", "torchrl", "tensordict"}
"""Folders whose code is left out of reported error locations."""


@dataclass
class AccelerationConfig:
    """Parts that are compiled and captured; each falls back, with one line in the log, where it cannot be."""

    step: bool = True
    """Compile policy and world step as one graph. For worlds that cannot be traced the policy alone."""
    advantages: bool = True
    """Compile reward scaling and advantages on CUDA, n-step returns on CPUs."""
    update: bool = True
    """Compile the update. Without memory: loss, backward, clipping and Adam as one program; else loss and backward."""
    cudagraphs: bool = True
    """Capture rollouts and updates as CUDA graphs. On CUDA: a whole rollout, and all updates of an iteration, as one
    each."""

    def advantages_on(self, device: torch.device) -> bool:
        """True if loops over the steps of a rollout are compiled: unrolled they are a few launches on CUDA, and take
        longer to compile for a CPU than they save.
        """
        return self.advantages and device.type == "cuda"


class CompiledFunction:
    """``function``, compiled at its first call, or as it is.

    ``torch.compile`` is lazy and compiles again for inputs of another kind, so the guard is around every call: where
    compilation fails, which is before anything has run, the function runs eagerly from then on. Its own errors
    pass through.

    Attributes:
        call: the function as callers in a training's loop have it: this object if it compiles, else ``function``.
        compiled: True if calls run compiled code.
        compile_seconds: duration of the first call.
        options: options of Inductor.
    """

    def __init__(self, name: str, function: Callable, compile: bool, options: dict | None = None) -> None:
        self.name, self.eager, self.compiled, self.options = name, function, compile, options
        self.compile_seconds = 0.0
        self._function = function
        self.call: Callable = self if compile else function
        if compile:
            self._function = torch.compile(function, fullgraph=True, dynamic=False, options=options)

    @property
    def mode(self) -> str:
        """One of :data:`MODES`."""
        return COMPILED if self.compiled else EAGER

    def __call__(self, *args: Any) -> Any:
        """Call the function; a profiler shows it by its name."""
        with span(self.name.removeprefix("the ")):
            if self.compile_seconds > 0:
                return self._guarded(*args)
            start = time.perf_counter()
            result = self._guarded(*args)
            self.compile_seconds = time.perf_counter() - start
            return result

    def _guarded(self, *args: Any) -> Any:
        try:
            return self._function(*args)
        except COMPILATION_ERRORS as error:
            if not self.compiled or recording():  # a recording must fail as a whole, before it is replayed
                raise
            logger.warning("%s cannot be compiled, runs eagerly: %s", self.name, reason(error))
            self.compiled, self._function = False, self.eager
        return self._function(*args)


class CudaGraphFunction:
    """``function`` as one CUDA graph from its third call on: one launch, and the host does nothing else.

    The function is captured before it is run that way. So if it cannot be captured, because it waits for the device or
    compiles anew, nothing has happened yet, and it continues as in the calls before. A graph reads the inputs of its
    call at fixed addresses: those of later calls are copied there, unless they are there already. It writes its results
    to the same addresses every time: read them before the next call. Decisions of Python are fixed at capture, modes
    such as TorchRL's exploration type included.

    Args:
        name: name for the log.
        function: function of tensors and tensordicts, whose other memory stays at its address.
        device: device on which it runs; None or a CPU captures nothing.
    """

    def __init__(self, name: str, function: Callable, device: torch.device | None) -> None:
        self.name, self.function = name, function
        self.device = device if device is not None and device.type == "cuda" else None
        self.call: Callable = function
        """This object if it captures, else ``function``."""
        if self.device is not None:
            self.call, self._stream = self, torch.cuda.Stream(self.device)
        self.forget()

    @property
    def captured(self) -> bool:
        """True if calls replay a CUDA graph, or will after the warm-up."""
        return self.device is not None

    def forget(self) -> None:
        """Capture anew after :data:`WARMUP` calls: a tensor that the function uses has moved."""
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[Tensor] = []
        self._result: Any = None

    def __call__(self, *args: Any) -> Any:
        """Call the function, or replay it."""
        if self.device is None:
            return self.function(*args)
        if self._graph is None:
            if self._calls < WARMUP:
                return self._warm_up(*args)
            if not self._record(*args):
                return self.function(*args)
        assert self._graph is not None
        moved = [pair for pair in zip(self._inputs, _tensors(args), strict=True) if not _same_memory(*pair)]
        for place, value in moved:
            place.copy_(value)
        self._graph.replay()
        return self._result

    def _warm_up(self, *args: Any) -> Any:
        """Run on the stream that captures later: autograd remembers on which a parameter was first used."""
        self._calls += 1
        current = torch.cuda.current_stream(self.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            result = self.function(*args)
        current.wait_stream(self._stream)
        return result

    def _record(self, *args: Any) -> bool:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
                self._result = self.function(*args)
        except Exception as error:
            logger.warning("%s cannot be captured as a CUDA graph, runs without: %s", self.name, reason(error))
            self.device, self._result = None, None
            return False
        self._graph, self._inputs = graph, _tensors(args)
        return True


def recording() -> bool:
    """True while a CUDA graph is being captured."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def fastest(captured: CudaGraphFunction, compiled: CompiledFunction) -> str:
    """Return the mode of a function that is captured if possible, else compiled if possible."""
    return CUDA_GRAPH if captured.captured else compiled.mode


def reason(error: BaseException) -> str:
    """Format an error in one line: its type, its first sentence, and the file and line that it comes from."""
    named = re.findall(r'File "([^"]+)", line (\d+)', str(error))
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    places = [
        f" ({Path(file).name}:{line})"
        for file, line in (*frames, *named)
        if file != __file__ and not LIBRARIES & set(Path(file).parts)
    ]
    sentence = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {sentence}" + "".join(places[-1:])


def _tensors(args: tuple) -> list[Tensor]:
    """Collect all tensors of the arguments, in the order of their keys."""
    result: list[Tensor] = []
    for value in args:
        if isinstance(value, TensorDictBase):
            result += [value.get(key) for key in sorted(value.keys(True, True), key=str)]
        elif isinstance(value, Tensor):
            result.append(value)
    return result


def _same_memory(place: Tensor, value: Tensor) -> bool:
    return value.data_ptr() == place.data_ptr() and value.stride() == place.stride()
