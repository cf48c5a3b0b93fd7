"""Speed of several ranks with a thread each beside one process with as many threads; computed efficiency of more."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from benchmarks.arguments import add_config
from torchrl_agent.cli.arguments import check_least, print_table
from torchrl_agent.core import ranks
from torchrl_agent.core.text import to_json
from torchrl_agent.experiment import Experiment
from torchrl_agent.loop import Iteration, iterate
from torchrl_agent.profiling.timing import WARMUP
from torchrl_agent.training.learner import Learner
from torchrl_agent.training.metrics import train_tag
from torchrl_agent.trust.targets import CALL

NETWORKS = {"NVLink": (450e9, 5e-6), "100 Gbit/s Ethernet": (12.5e9, 30e-6)}
"""Bandwidth in bytes per second in each direction, and latency of a message in seconds."""
SIZES = (8, 64)
"""Numbers of ranks for which efficiency is computed."""
GPU_FRAMES_PER_SECOND = 3e6
"""Speed of one GPU in that computation; the target for an H200."""
NEVER = 1 << 62


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a configuration, the numbers of ranks and of rounds."""
    add_config(parser, "arena", "a configuration")
    parser.add_argument("--processes", type=int, default=2, help="ranks, and threads of the one process (2)")
    parser.add_argument("--rounds", type=int, default=5, help="iterations of each, in turn (5)")


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Measure, and print the figures."""
    check_least(parsed, processes=2, rounds=1)
    result = measure(parsed.config, ["device=cpu", *parsed.overrides], parsed.processes, parsed.rounds)
    print_table(result)
    return result


def measure(config: str, overrides: Sequence[str], processes: int, rounds: int) -> dict[str, Any]:
    """Measure frames per second of ``processes`` ranks and of one process, the communication, and efficiencies.

    Raises:
        ValueError: the ranks cannot train; the sentence is theirs.
    """
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}")
    line = [*launcher, "-m", __name__, str(rounds), config, *overrides, *["--trust"] * CALL.get().trust]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        said = re.findall(r"(?:ValueError|TrainingError): (.*)", done.stderr)
        raise ValueError(said[-1] if said else f"the ranks failed: {done.stderr[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])


def efficiency(compute: float, size: int, parameters: int, updates: int, bandwidth: float, latency: float) -> float:
    """Return the fraction of an iteration spent on computation if each update sums all ranks' gradients, unoverlapped.

    A ring moves ``2 (R - 1) / R`` times the gradient through every link (Patarasuk and Yuan 2009); a tree, used for
    short messages, needs ``2 log2 R`` messages one after another.

    Args:
        compute: seconds of an iteration of one rank alone.
        size: number of ranks R.
        parameters: number of parameters in the gradient, 4 bytes each.
        updates: number of updates per iteration.
        bandwidth: bytes per second.
        latency: seconds per message.
    """
    seconds = 8 * parameters * (size - 1) / size / bandwidth + 2 * math.log2(size) * latency
    return compute / (compute + updates * seconds)


def take_turns(experiment: Experiment, rounds: int) -> dict[str, Any]:
    """Measure on all ranks; return the figures on the first one, nothing on the others."""
    threads = ranks.size()
    together = dataclasses.replace(experiment, threads=1, total_frames=NEVER).make_learner()
    alone: Learner | None = None
    if ranks.rank() == 0:
        with ranks.alone(), torch.random.fork_rng():
            alone = dataclasses.replace(experiment, threads=threads, total_frames=NEVER).make_learner()
    turns = {"together": iterate(together), **({} if alone is None else {"alone": iterate(alone)})}
    seconds: dict[str, list[float]] = {"alone": [], "together": []}
    for number in range(WARMUP + rounds):
        if "alone" in turns:
            with ranks.alone(), torch.random.fork_rng():
                of_one, _ = _timed(turns["alone"], threads)
        ranks.highest(0)  # synchronizes the ranks
        of_all, last = _timed(turns["together"], 1)
        if number >= WARMUP and alone is not None:
            seconds["alone"].append(of_one)
            seconds["together"].append(of_all)

    parameters = sum(parameter.numel() for parameter in together.algorithm.updater.parameters)
    talk = _seconds_of_a_reduction(parameters)
    updates = int(last.metrics[train_tag("updates")])
    if alone is None:
        return {}
    frames = alone.num_envs * alone.collector.steps
    best = {name: min(values) for name, values in seconds.items()}
    compute = frames / GPU_FRAMES_PER_SECOND
    return {
        "processes": threads,
        "frames_per_second": {name: round(frames / value) for name, value in best.items()},
        "times_as_fast": round(best["alone"] / best["together"], 3),
        "of_each_round": [round(a / b, 3) for a, b in zip(*seconds.values(), strict=True)],
        "bytes_per_update": 4 * parameters,
        "updates_per_iteration": updates,
        "communication_share": round(updates * talk / best["together"], 4),
        "computed_efficiency": {
            f"{size} GPUs, {name}": round(efficiency(compute, size, parameters, updates, *network), 4)
            for name, network in NETWORKS.items()
            for size in SIZES
        },
        "gpu_frames_per_second": GPU_FRAMES_PER_SECOND,
    }


def _timed(iterations: Iterator[Iteration], threads: int) -> tuple[float, Iteration]:
    """Return the seconds of the next iteration with ``threads`` threads, and the iteration."""
    torch.set_num_threads(threads)
    start = time.perf_counter()
    iteration = next(iterations)
    iteration.updates.read()  # the host waits until they are made
    return time.perf_counter() - start, iteration


def _seconds_of_a_reduction(parameters: int) -> float:
    """Return the seconds of the reduction of one gradient, the fastest of several."""
    gradient, found = torch.zeros(parameters), []
    for _ in range(30):
        start = time.perf_counter()
        ranks.means([gradient])
        found.append(time.perf_counter() - start)
    return min(found)


def main() -> None:
    """Run the measurement on a rank."""
    rounds, config, *words = sys.argv[1:]
    experiment = Experiment.load(config, *(word for word in words if word != "--trust"), trust="--trust" in words)
    with ranks.started(experiment.run.rank_timeout):
        result = take_turns(experiment, int(rounds))
    if result:
        print(to_json(result))


if __name__ == "__main__":
    main()
