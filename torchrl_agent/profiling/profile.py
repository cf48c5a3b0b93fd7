"""Profile of training: times of its parts, as torch.profiler records them.

The learning step is marked from here, by :data:`RANGES`, so that nothing stands between its reader and its equations;
other parts mark themselves (``core/spans.py``).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from unittest import mock

from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function

from torchrl_agent.algorithms.actor_critic import OnPolicyActorCritic
from torchrl_agent.algorithms.impala import IMPALA
from torchrl_agent.core.checkpoint import write_atomically
from torchrl_agent.core.spans import spanned
from torchrl_agent.core.tables import aligned, as_csv
from torchrl_agent.experiment import Experiment
from torchrl_agent.loop import Iteration, learn
from torchrl_agent.models.agent import CriticHead
from torchrl_agent.optimization.updater import Updater
from torchrl_agent.population.algorithm import MembersAlgorithm
from torchrl_agent.profiling.trace import ITERATION, Operator, Range, most_expensive, read_trace, summarize
from torchrl_agent.training.learner import Learner

WARMUP = 2
"""Iterations before the profile, in which everything compiles and CUDA graphs are captured."""
RANGES: dict[tuple[type, str], str] = {
    (Learner, "improve"): "learn",
    (OnPolicyActorCritic, "advantages"): "advantages",
    (OnPolicyActorCritic, "_estimate"): "advantage function",
    (IMPALA, "sequences"): "advantages",
    (MembersAlgorithm, "advantages"): "advantages",
    (MembersAlgorithm, "update"): "update",
    (Updater, "update"): "update",
    (Updater, "terms"): "loss",
    (Tensor, "backward"): "backward",
    (CriticHead, "forward"): "critic",
}
"""Names of the parts of the learning step, by their methods."""


@dataclass
class Profile:
    """Result of :func:`profile_training`."""

    iterations: int
    seconds: float
    """Time of one profiled iteration."""
    seconds_without: float
    """Time of one iteration before, without the profiler."""
    ranges: list[Range]
    """Ranges in the order of the loop, inner ones after the enclosing one."""
    operators: list[Operator]
    """Operators, the most expensive first."""


def profile_training(experiment: Experiment, output: Path, iterations: int = 1, top: int = 20) -> Profile:
    """Profile some iterations of training after a warm-up; write ``ranges.csv``, ``operators.csv`` and ``trace.json``
    (for chrome://tracing or ui.perfetto.dev) to a folder.

    Args:
        output: the folder, made if it is missing.
        top: number of operators to keep.

    Raises:
        ValueError: a number below 1, a configuration that cannot work, or a folder that cannot be written to.
    """
    for name, number in (("iterations", iterations), ("top", top)):
        if number < 1:
            raise ValueError(f"{name} is {number}: give at least 1.")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{output} cannot be made ({error.strerror}): choose another folder with --output.") from None
    experiment.total_frames = sys.maxsize
    with ranges():
        training = learn(experiment)
        for _ in range(WARMUP):
            start = time.perf_counter()
            iteration = next(training)
            iteration.updates.read()  # the host waits until they are made
            without = time.perf_counter() - start
        recorded, seconds = _record(training, iteration.learner, iterations)
    trace = output / "trace.json"
    _write(trace, lambda path: recorded.export_chrome_trace(str(path)))
    events = read_trace(trace)
    found = Profile(iterations, seconds / iterations, without, summarize(events), most_expensive(events, top))
    for name, rows in (("ranges.csv", found.ranges), ("operators.csv", found.operators)):
        text = as_csv(map(asdict, rows), list(asdict(rows[0])))
        _write(output / name, partial(Path.write_text, data=text, encoding="utf-8"))
    return found


@contextmanager
def ranges() -> Iterator[None]:
    """Context in which a profiler shows the parts of the learning step by their names: make the learner in it."""
    with ExitStack() as stack:
        for (owner, method), name in RANGES.items():
            stack.enter_context(mock.patch.object(owner, method, spanned(name)(getattr(owner, method))))
        yield


def _write(path: Path, write: Callable[[Path], object]) -> None:
    try:
        write_atomically(path, write)
    except ValueError:
        raise ValueError(f"{path.parent} cannot be written to: choose another folder with --output.") from None


def _record(training: Iterator[Iteration], learner: Learner, iterations: int) -> tuple[profile, float]:
    """Return the profile of the next iterations, and their seconds."""
    activities = [ProfilerActivity.CPU]
    if learner.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as recorded:
        start = time.perf_counter()
        for _ in range(iterations):
            with record_function(ITERATION):
                next(training).updates.read()
        seconds = time.perf_counter() - start
    return recorded, seconds


def table(found: Profile) -> str:
    """Return a table of ranges, indented by nesting, and of operators."""

    def cells(name: str, entry: Range | Operator) -> list[str]:
        return [name, f"{entry.calls:,}", f"{entry.cpu_ms:,.1f}", f"{entry.cuda_ms:,.1f}"]

    columns = ["calls", "CPU ms", "CUDA ms"]
    rows = [["range", *columns, "share"]]
    for entry in found.ranges:
        name = "  " * entry.name.count("/") + entry.name.rpartition("/")[2]
        rows.append([*cells(name, entry), f"{entry.share:.1%}"])
    rows.append([""] * len(rows[0]))
    rows.append(["operator (itself only)", *columns, ""])
    rows += [[*cells(operator.name[:32], operator), ""] for operator in found.operators]
    sums = (
        f"an iteration took {found.seconds:.3g} s profiled, {found.seconds_without:.3g} s before; the figures are sums "
        f"over {found.iterations}."
    )
    return "\n".join([*aligned(rows), "", sums])
