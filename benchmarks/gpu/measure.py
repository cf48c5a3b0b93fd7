"""One row of ours: ``python -m benchmarks.gpu.measure NAME`` prints its figures as JSON as soon as they are known."""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu import ROWS, Row
from torchrl_agent import Experiment
from torchrl_agent.loop import Iteration, iterate
from torchrl_agent.modules.specs import group_spec
from torchrl_agent.profiling.speed import peak_memory_mb
from torchrl_agent.profiling.timing import WARMUP, seconds_per_call, synchronize
from torchrl_agent.profiling.trace import KERNELS, Event, read_trace
from torchrl_agent.training.learner import Learner

EAGER = "acceleration={step: false, advantages: false, update: false, cudagraphs: false}"
MOST_SECONDS = 60
"""Time after which a mean return is not waited for any longer."""
TOP = 14
"""Number of kernels that are named."""


def measure(row: Row, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure a row; yields figures by name, others each time."""
    smoke = (*row.small, EAGER, "threads=1") if given.smoke else ()
    experiment = Experiment.load(row.config, *row.overrides, *smoke, "evaluation.every=null", trust=True)
    experiment.total_frames = sys.maxsize
    learner = experiment.make_learner()
    loop = iterate(learner)
    while not next(loop).updates.read():  # a replay fills before
        pass
    start = "again" if given.again else "first_update"
    yield {f"{start}_s": time.time() - given.begun, f"{start}_cache": cache()}
    if given.again:
        return
    for _ in range(WARMUP):
        next(loop)
    synchronize(learner.device)
    yield {"compile_s": learner.compile_seconds, "mode": " / ".join(dict.fromkeys(learner.modes().values()))}
    with Path(given.lock).open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        mark = None if row.until is None else frames_until(loop, 1 if given.smoke else row.until)
        rate = experiment.algorithm.learning_rate.initial
        for figures in speeds(learner, loop, rate, given.seconds):
            yield figures
            if mark is not None and "loop_fps" in figures:
                yield {"mark": row.until, "mark_frames": mark, "mark_s": mark / figures["loop_fps"]}


def cache() -> str:
    """Return whether the code compiled so far was in Inductor's cache: ``warm``, ``cold``, or how much of it was."""
    found, made = (counters["inductor"][f"fxgraph_cache_{name}"] for name in ("hit", "miss"))
    if not found + made:
        return "unused"
    return "cold" if not found else "warm" if not made else f"{found} of {found + made}"


def frames_until(loop: Iterator[Iteration], until: float) -> int | None:
    """Return the number of frames after which the mean return was reached; None if that took too long."""
    begun = time.perf_counter()
    for iteration in loop:
        if iteration.known["rollout/ep_rew_mean"] >= until:
            return iteration.frames
        if time.perf_counter() - begun > MOST_SECONDS:
            break
    return None


def speeds(learner: Learner, loop: Iterator[Iteration], rate: float, seconds: float) -> Iterator[dict[str, Any]]:
    """Measure a learner that has compiled; yields speeds in frames per second, summed over the agents of a world, then
    kernels.
    """
    collect, device = learner.collector.collect, learner.device
    frames = math.prod(group_spec(learner.env).shape) * learner.collector.steps
    rollout = seconds_per_call(collect, seconds / 2, device)
    training = seconds_per_call(lambda: learner.improve(collect(), rate), seconds, device)
    yield {"rollout_fps": round(frames / rollout), "training_fps": round(frames / training)}
    looped = seconds_per_call(lambda: next(loop), seconds, device)
    rest = {"rest_ms": 1e3 * (looped - training), "peak_memory_mb": peak_memory_mb(device)}
    yield {"loop_fps": round(frames / looped), **rest}
    if device.type == "cuda":
        last = collect()
        for part, function in (("rollout", collect), ("improve", lambda: learner.improve(last, rate))):
            yield {f"{part}_{key}": value for key, value in kernels(function, device).items()}


def kernels(function: Callable[[], Any], device: torch.device) -> dict[str, Any]:
    """Return what a call does on a CUDA device, see :func:`summary`."""
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        function()
        synchronize(device)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(path))
        return summary(read_trace(path))


def summary(events: Iterable[Event]) -> dict[str, Any]:
    """Return launches, the time in which they are busy in milliseconds, and the kernels with the largest sums of time:
    name, launches and milliseconds.
    """
    milliseconds = defaultdict[str, list[float]](list)
    for event in events:
        if event.kind in KERNELS:
            milliseconds[event.name].append(event.duration / 1e3)
    top = sorted(((name[:90], len(each), sum(each)) for name, each in milliseconds.items()), key=itemgetter(2))
    busy, launches = (sum(map(count, milliseconds.values())) for count in (sum, len))
    return {"launches": launches, "busy_ms": busy, "top": top[: -TOP - 1 : -1]}


def main() -> None:
    """Measure the row named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=ROWS)
    parser.add_argument("--begun", type=float, required=True, help="time at which the process was started")
    parser.add_argument("--lock", required=True, help="file to lock while it measures")
    parser.add_argument("--seconds", type=float, required=True, help="least seconds of a measurement")
    parser.add_argument("--smoke", action="store_true", help="tiny and uncompiled")
    parser.add_argument("--again", action="store_true", help="measure the start alone")
    given = parser.parse_args()
    for figures in measure(ROWS[given.name], given):
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
