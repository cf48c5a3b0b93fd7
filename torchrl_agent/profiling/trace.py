"""Summary of a trace of torch.profiler: time by named range, with their nesting, and by operator."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

ITERATION = "iteration"
OPTIMIZER_STEP = "Optimizer.step#Adam.step"
"""Name of PyTorch's own range around an optimizer's step."""
LAUNCHES = ("cuda_runtime", "cuda_driver")
KERNELS = ("kernel", "gpu_memcpy", "gpu_memset")
"""Kineto's categories of launched work on a CUDA device; :data:`LAUNCHES` are those of the launching calls."""


@dataclass
class Range:
    """A part of training in the profiled iterations."""

    name: str
    """Name with the enclosing ranges, such as ``iteration/collect/policy and world``."""
    calls: int
    cpu_ms: float
    """Time on the host including inner ranges and waiting for the device."""
    cuda_ms: float
    """Time of the device kernels launched in it; 0 without CUDA."""
    share: float
    """Fraction of the iterations' host time."""


@dataclass
class Operator:
    """An operator in the profiled iterations, without the operators that it calls."""

    name: str
    calls: int
    cpu_ms: float
    cuda_ms: float


class Event(NamedTuple):
    """An entry of a trace, with a duration."""

    kind: str
    """Kineto's category: ``cpu_op``, ``user_annotation``, one of :data:`LAUNCHES` or of :data:`KERNELS`."""
    name: str
    thread: int
    start: float
    """Start in microseconds, like ``duration``."""
    duration: float
    launch: int
    """Correlation number shared by a kernel and the call that launched it; 0 without."""
    operator: int
    """Number of an operator, shared by the kernels that it launched; 0 without."""

    @property
    def end(self) -> float:
        """End in microseconds."""
        return self.start + self.duration


def read_trace(path: Path) -> list[Event]:
    """Read the events of a trace that :meth:`torch.profiler.profile.export_chrome_trace` wrote.

    An eager iteration of a whole agent is two million events: the profiler's own ``events()`` takes 10 GB and two
    minutes for them, the trace 1.7 GB and ten seconds.
    """

    def shortened(fields: dict[str, Any]) -> Any:
        """Return the kept part of an object of the file; called for inner objects first."""
        if "ph" not in fields:
            return fields  # an event's arguments, or the whole file
        if fields["ph"] != "X" or fields.get("cat") not in ("cpu_op", "user_annotation", *LAUNCHES, *KERNELS):
            return None
        more = fields.get("args", {})
        numbers = (more.get("correlation", 0), more.get("External id", 0))
        return Event(fields["cat"], fields["name"], fields["tid"], fields["ts"], fields["dur"], *numbers)

    with path.open(encoding="utf-8") as file:
        return [event for event in json.load(file, object_hook=shortened)["traceEvents"] if event is not None]


def summarize(events: list[Event]) -> list[Range]:
    """Return the ranges in a trace, nested by time.

    A kernel counts for every range that was open when it was launched, on whichever thread: backward passes launch
    theirs from a thread of their own on CUDA.
    """
    calls = {event.launch: event.start for event in events if event.kind in LAUNCHES}
    kernels = (event for event in events if event.kind in KERNELS and event.launch in calls)
    launched = sorted((calls[kernel.launch], kernel.duration) for kernel in kernels)
    starts = [start for start, _ in launched]
    spent = list(accumulate((duration for _, duration in launched), initial=0.0))
    result: dict[str, Range] = {}
    around: list[tuple[float, str]] = []
    spans = (event for event in events if event.kind == "user_annotation")
    ours = [event for event in spans if event.name == OPTIMIZER_STEP or "#" not in event.name]
    for event in sorted(ours, key=_outer_first):
        while around and around[-1][0] <= event.start:
            around.pop()
        name = "optimizer" if event.name == OPTIMIZER_STEP else event.name
        path = f"{around[-1][1]}/{name}" if around else name
        around.append((event.end, path))
        entry = result.setdefault(path, Range(path, 0, 0.0, 0.0, 0.0))
        entry.calls += 1
        entry.cpu_ms += event.duration / 1e3
        entry.cuda_ms += (spent[bisect_left(starts, event.end)] - spent[bisect_left(starts, event.start)]) / 1e3
    total = result[ITERATION].cpu_ms if ITERATION in result else 0.0
    for entry in result.values():
        entry.share = entry.cpu_ms / total if total else 0.0
    return [entry for name in result if "/" not in name for entry in _with_inner(name, result)]


def _with_inner(name: str, found: dict[str, Range]) -> list[Range]:
    """Return a range, then the ranges inside it."""
    inner = [other for other in found if other.rpartition("/")[0] == name]
    return [found[name], *(entry for other in inner for entry in _with_inner(other, found))]


def most_expensive(events: list[Event], top: int) -> list[Operator]:
    """Return the operators of a trace with the largest own time, on the host or on the device."""
    result: dict[str, Operator] = {}
    names: dict[int, str] = {}
    around: dict[int, list[Event]] = defaultdict(list)
    for event in sorted((event for event in events if event.kind == "cpu_op"), key=_outer_first):
        entry = result.setdefault(event.name, Operator(event.name, 0, 0.0, 0.0))
        entry.calls += 1
        entry.cpu_ms += event.duration / 1e3
        outer = around[event.thread]
        while outer and outer[-1].end <= event.start:
            outer.pop()
        if outer:  # its time is not the outer one's own
            result[outer[-1].name].cpu_ms -= event.duration / 1e3
        outer.append(event)
        names[event.operator] = event.name
    for event in events:
        if event.kind in KERNELS and event.operator in names:
            result[names[event.operator]].cuda_ms += event.duration / 1e3
    return sorted(result.values(), key=lambda entry: max(entry.cpu_ms, entry.cuda_ms), reverse=True)[:top]


def _outer_first(event: Event) -> tuple[float, float]:
    """Return the key that sorts events by start, enclosing ones first."""
    return event.start, -event.duration
