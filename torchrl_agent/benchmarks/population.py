"""What a population costs and gains: one program beside runs one after another, and evolution beside none."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchrl_agent.benchmarks.timing import WARMUP, synchronize
from torchrl_agent.confidence import interval
from torchrl_agent.experiment import Experiment
from torchrl_agent.learner import Learner
from torchrl_agent.loop import iterate
from torchrl_agent.population.judging import judge_members
from torchrl_agent.population.learner import PopulationLearner

ROUNDS = 5
"""Times that each is measured, in turn."""


def measure_speed(config: str, overrides: Sequence[str], members: int) -> dict[str, Any]:
    """Training frames per second, summed over members, of so many members in one program and of one run alone: what
    several of them reach one after another. Both take turns in this process.
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
    """Of an exploit step, in which half of the members become copies of the other half: the fastest of several."""
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


def measure_evolution(config: str, overrides: Sequence[str], seeds: Sequence[int], episodes: int) -> dict[str, Any]:
    """Returns of the members of populations that evolve as configured and of the same populations that do not: equal
    first genes, weights and frames; judged on unseen worlds. Differences are paired by seed.
    """
    judged: dict[str, list[Tensor]] = {"evolved": [], "random search": []}
    genes = []
    for seed in seeds:
        for name, more in (("evolved", []), ("random search", ["population.evolve=none"])):
            experiment = Experiment.load(config, *overrides, *more, f"seed={seed}")
            learner = experiment.make_learner()
            if not isinstance(learner, PopulationLearner) or (not more and experiment.population.evolve == "none"):
                raise ValueError(
                    f"configuration {config} has no population that evolves: set population.members and evolve."
                )
            for _ in iterate(learner):
                pass
            judged[name].append(judge_members(learner, episodes, experiment.evaluation.seed))
            if not more:
                genes.append({key: values.tolist() for key, values in learner.evolution.genes.items()})
    result: dict[str, Any] = {"seeds": list(seeds), "episodes": episodes, "last_genes": genes}
    for what, of_members in (("best", Tensor.amax), ("median", Tensor.median)):
        rows = {name: [float(of_members(each)) for each in values] for name, values in judged.items()}
        gained = [a - b for a, b in zip(*rows.values(), strict=True)]
        mean, half = interval(gained)
        result[what] = {**rows, "difference": {"mean": mean, "half_width": half, "above_0": mean > half}}
    return result
