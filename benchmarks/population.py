"""Speed of members that learn in one program, beside as many runs one after another."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.arguments import add_config
from torchrl_agent.cli.arguments import check_least, print_table
from torchrl_agent.experiment import Experiment
from torchrl_agent.population.learner import PopulationLearner
from torchrl_agent.profiling.timing import WARMUP, synchronize
from torchrl_agent.training.learner import Learner

ROUNDS = 5
"""Number of measurements of each, in turn."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a configuration and the number of members."""
    add_config(parser, "arena", "a configuration of one agent")
    parser.add_argument("--members", type=int, default=8, help="members of the population (8)")


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Measure, and print the figures."""
    check_least(parsed, members=2)
    result = measure_speed(parsed.config, parsed.overrides, parsed.members)
    print_table(result)
    return result


def measure_speed(config: str, overrides: Sequence[str], members: int) -> dict[str, Any]:
    """Measure training frames per second, summed over members, of ``members`` members in one program, and of one run
    alone, which is the speed of several runs one after another. Both take turns in this process.
    """
    alone = Experiment.load(config, *overrides).make_learner()
    together = Experiment.load(config, *overrides, f"population.members={members}").make_learner()
    assert isinstance(together, PopulationLearner)
    seconds: dict[str, list[float]] = {"alone": [], "together": []}
    for number in range(WARMUP + ROUNDS):
        for name, learner in (("alone", alone), ("together", together)):
            synchronize(learner.device)
            start = time.perf_counter()
            for _ in range(1 if number < WARMUP or name == "together" else members):
                _iteration(learner)
            synchronize(learner.device)
            if number >= WARMUP:
                seconds[name].append(time.perf_counter() - start)
    frames = together.num_envs * together.collector.steps
    best = {name: min(values) for name, values in seconds.items()}
    return {
        "members": members,
        "frames_per_second": {name: round(frames / value) for name, value in best.items()},
        "times_as_fast": round(best["alone"] / best["together"], 3),
        "of_each_round": [round(a / b, 3) for a, b in zip(*seconds.values(), strict=True)],
        "compile_seconds": {"alone": round(alone.compile_seconds, 1), "together": round(together.compile_seconds, 1)},
        "copy_milliseconds": round(_seconds_of_a_copy(together) * 1000, 3),
        "parameters": together.algorithm.stack.flat.shape[1],
        "threads": torch.get_num_threads(),
        "ran": together.modes(),
    }


def _iteration(learner: Learner) -> None:
    learner.improve(learner.collector.collect(), learner.algorithm.config.learning_rate.initial)


def _seconds_of_a_copy(learner: PopulationLearner) -> float:
    """Return the seconds of an exploit step, in which half of the members copy the others: the fastest of several."""
    sources = torch.arange(learner.members, device=learner.device) % max(learner.members // 2, 1)
    found = []
    for _ in range(30):
        synchronize(learner.device)
        start = time.perf_counter()
        learner.algorithm.copy(sources)
        learner.algorithm.write_numbers()
        synchronize(learner.device)
        found.append(time.perf_counter() - start)
    return min(found)
