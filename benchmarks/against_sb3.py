"""Training in worlds of other libraries with defaults alone, beside Stable-Baselines3 with its zoo's hyperparameters.

Both get the same frames, one thread and a process of their own, and are evaluated alike: the deterministic policy, an
episode in each of 32 worlds with seeds from 10,000. The study writes a file for each task, side and seed, from which
an interrupted one continues.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, pstdev, stdev
from typing import Any

from torchrl_agent.core.checkpoint import versions, write_json
from torchrl_agent.core.progress import Progress
from torchrl_agent.core.tables import aligned, interval, student

RESULTS = Path(__file__).parent / "results" / "against_sb3"
SIDES = ("torchrl_agent", "stable_baselines3")
EPISODES, EVALUATION_SEED = 32, 10_000
TASKS: dict[str, tuple[str, int, list[str]]] = {
    "hopper_ppo": ("gym:Hopper-v5", 200_000, []),
    "half_cheetah_ppo": ("gym:HalfCheetah-v5", 200_000, []),
    "door_key_ppo": ("minigrid:MiniGrid-DoorKey-5x5-v0", 100_000, []),
    "breakout_ppo": ("gym:MinAtar/Breakout-v1", 500_000, []),
    "breakout_dqn": ("gym:MinAtar/Breakout-v1", 500_000, ["algorithm=dqn"]),
    "half_cheetah_sac": ("gym:HalfCheetah-v5", 50_000, ["algorithm=sac"]),
}
"""World, frames and further overrides of each task."""


def train_ours(task: str, seed: int) -> tuple[float, float]:
    """Return the mean return, and its standard deviation over episodes, of an agent trained with defaults alone."""
    from torchrl_agent import Experiment
    from torchrl_agent.experiment.judging import evaluate
    from torchrl_agent.loop import learn

    world, frames, overrides = TASKS[task]
    sizes = [f"total_frames={frames}", f"seed={seed}", "threads=1", f"evaluation.seed={EVALUATION_SEED}"]
    experiment = Experiment.load(world, *overrides, *sizes)
    *_, last = learn(experiment)
    judged = evaluate(experiment, last.agent, EPISODES, deterministic=True)
    return judged["return_mean"], judged["return_std"]


def train_theirs(task: str, seed: int) -> tuple[float, float]:
    """Return the same figures of an agent of Stable-Baselines3."""
    from benchmarks import stable_baselines3

    stable_baselines3.prepare()
    rival = stable_baselines3.RIVALS[task]
    returns = rival.returns(rival.train(TASKS[task][1], seed), EPISODES, EVALUATION_SEED)
    return fmean(returns), pstdev(returns)


def train_one(task: str, side: str, seed: int) -> None:
    """Train one side with one seed and write its file."""
    began, worked = time.perf_counter(), time.process_time()
    mean, deviation = (train_ours if side == SIDES[0] else train_theirs)(task, seed)
    result = {
        "task": task,
        "side": side,
        "seed": seed,
        "frames": TASKS[task][1],
        "return_mean": mean,
        "return_std": deviation,
        "seconds": round(time.perf_counter() - began, 1),
        "processor_seconds": round(time.process_time() - worked, 1),
        "versions": versions(),
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    write_json(file_of(task, side, seed), result)


def file_of(task: str, side: str, seed: int) -> Path:
    """Return the path of the result of one training."""
    return RESULTS / f"{task}-{side}-{seed}.json"


def results(task: str) -> dict[str, list[dict[str, Any]]]:
    """Return the results of a task so far, by side, in the order of seeds."""
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    for path in sorted(RESULTS.glob(f"{task}-*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        found[result["side"]].append(result)
    return found


def table() -> str:
    """Return a table of results: means over seeds with 95 % intervals and the number of seeds, Welch's interval of the
    difference, and processor seconds per training.
    """
    rows = [["task", "frames", *SIDES, "difference", "seconds", "theirs"]]
    for task, (_, frames, _) in TASKS.items():
        found = results(task)
        ours, theirs = ([each["return_mean"] for each in found[side]] for side in SIDES)
        if min(len(ours), len(theirs)) < 2:
            continue
        difference, half = welch(ours, theirs)
        rows.append(
            [
                task,
                f"{frames:,}",
                *("{:.4g} ± {:.2g} ({})".format(*interval(side), len(side)) for side in (ours, theirs)),
                f"{difference - half:.4g} to {difference + half:.4g}",
                *(f"{fmean(each['processor_seconds'] for each in found[side]):.0f}" for side in SIDES),
            ]
        )
    return "\n".join(aligned(rows))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add tasks and seeds."""
    parser.add_argument("tasks", nargs="*", default=list(TASKS), help=f"of {', '.join(TASKS)}; by default all")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(5)))
    parser.add_argument("--table", action="store_true", help="print what there is, and train nothing")
    parser.add_argument("--one", nargs=2, metavar=("SIDE", "SEED"), help=argparse.SUPPRESS)


def run(parsed: argparse.Namespace) -> None:
    """Run the missing trainings, one process after another, and print the table; each result is written at once."""
    if unknown := [task for task in parsed.tasks if task not in TASKS]:
        raise ValueError(f"there is no task {unknown[0]}: use one of {', '.join(TASKS)}.")
    if parsed.one:
        train_one(parsed.tasks[0], parsed.one[0], int(parsed.one[1]))
        return
    if not parsed.table:
        jobs = [(task, side, seed) for seed in parsed.seeds for task in parsed.tasks for side in SIDES]
        train_missing([job for job in jobs if not file_of(*job).exists()])
    print(table())


def train_missing(jobs: list[tuple[str, str, int]]) -> None:
    """Run each training in a process of its own, so that none inherits the state of another."""
    progress = Progress(len(jobs), "training", "against Stable-Baselines3")
    for number, (task, side, seed) in enumerate(jobs):
        command = [sys.executable, "-m", "benchmarks", "against_sb3", task, "--one", side, str(seed)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        progress.reach(number + 1)


def welch(ones: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """Return the difference of the means of two samples, whose variances may differ, and half the width of its 95 %
    interval (B. L. Welch, "The generalization of Student's problem", 1947).

    Raises:
        ValueError: a sample of fewer than two values.
    """
    if min(len(ones), len(others)) < 2:
        raise ValueError(f"samples of {len(ones)} and {len(others)} values have no interval: give two or more each.")
    errors = [stdev(sample) ** 2 / len(sample) for sample in (ones, others)]  # squared, of each mean
    shares = [error**2 / (len(sample) - 1) for error, sample in zip(errors, (ones, others), strict=True)]
    freedom = int(sum(errors) ** 2 / sum(shares)) if sum(shares) > 0 else 1  # Welch and Satterthwaite, rounded down
    return fmean(ones) - fmean(others), student(freedom) * math.sqrt(sum(errors))
