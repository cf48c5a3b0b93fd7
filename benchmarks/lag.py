"""Learning from acting policies that lag behind the learner: IMPALA, whose V-trace corrects for that, beside PPO."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from benchmarks.arguments import add_config
from torchrl_agent.cli.arguments import add_seeds
from torchrl_agent.core.checkpoint import TRAINING_RETURN
from torchrl_agent.core.progress import Progress
from torchrl_agent.core.tables import aligned, interval
from torchrl_agent.experiment import Experiment
from torchrl_agent.experiment.judging import evaluate
from torchrl_agent.loop import learn

ALGORITHMS = {"impala": ["algorithm.refresh_every=1"], "ppo": []}
"""Algorithms, with the overrides that make each lag by exactly the given number of iterations."""
FIGURES = ("training", "trained")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a configuration, seeds, lags and the length of a rollout."""
    add_config(parser, "cartpole", "a configuration")
    add_seeds(parser)
    parser.add_argument("--lags", type=int, nargs="+", default=[0, 8, 32], help="iterations of lag (0 8 32)")
    parser.add_argument("--steps", type=int, default=32, help="length of a rollout, of both (32)")


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Measure, and print the figures."""
    result = measure_lag(parsed.config, parsed.overrides, parsed.seeds, parsed.lags, parsed.steps)
    print(table(result))
    return result


def measure_lag(
    config: str, overrides: Sequence[str], seeds: Sequence[int], lags: Sequence[int], steps: int
) -> dict[str, Any]:
    """Measure returns by algorithm and lag, at equal frames and rollouts, and differences paired by seed: of training
    episodes, as a mean over the whole training (``training``), which measures the speed of learning, and of the
    trained agents (``trained``).

    Args:
        config: a configuration that sets nothing of the algorithm.
        overrides: changes of the configuration.
        seeds: seeds of the training runs.
        lags: numbers of iterations by which acting policies are older than learners.
        steps: length of a rollout, so that a lag is the same number of frames for both.
    """
    returns: dict[str, dict[str, dict[int, list[float]]]] = {
        what: {name: {lag: [] for lag in lags} for name in ALGORITHMS} for what in FIGURES
    }
    todo = [(name, lag, seed) for seed in seeds for lag in lags for name in ALGORITHMS]
    for name, lag, seed in Progress(len(todo), "run").over(todo):
        changes = [f"algorithm={name}", f"algorithm.rollout_steps={steps}", f"algorithm.lag={lag}", f"seed={seed}"]
        experiment = Experiment.load(config, *changes, *ALGORITHMS[name], *overrides)
        curve = []
        for iteration in learn(experiment):
            curve.append(iteration.metrics[TRAINING_RETURN])
        known = [value for value in curve if not math.isnan(value)]
        returns["training"][name][lag].append(fmean(known) if known else math.nan)
        returns["trained"][name][lag].append(evaluate(experiment, iteration.agent)["return_mean"])
    rows = [_row(what, of_both, lag) for what, of_both in returns.items() for lag in lags]
    lost = {
        name: {lag: _difference(of_lags[lags[0]], of_lags[lag]) for lag in lags[1:]}
        for name, of_lags in returns["training"].items()
    }
    return {"seeds": list(seeds), "rollout_steps": steps, "returns": returns, "rows": rows, "training_lost": lost}


def _row(what: str, returns: dict[str, dict[int, list[float]]], lag: int) -> dict[str, Any]:
    both = {name: of_lags[lag] for name, of_lags in returns.items()}
    found = {name: _mean_and_half_width(values) for name, values in both.items()}
    return {"figure": what, "lag": lag, **found, "impala_minus_ppo": _difference(both["impala"], both["ppo"])}


def table(result: dict[str, Any]) -> str:
    """Return the rows as a table."""
    rows = [["return", "lag", "impala", "ppo", "impala - ppo"]]
    for row in result["rows"]:
        cells = [row[name] for name in (*ALGORITHMS, "impala_minus_ppo")]
        shown = [f"{cell['mean']:,.4g} +- {cell['half_width']:,.3g}" for cell in cells]
        rows.append([row["figure"], str(row["lag"]), *shown])
    return "\n".join(aligned(rows))


def _mean_and_half_width(values: Sequence[float]) -> dict[str, float]:
    mean, half = interval(values)
    return {"mean": mean, "half_width": half}


def _difference(one: Sequence[float], other: Sequence[float]) -> dict[str, float]:
    return _mean_and_half_width([a - b for a, b in zip(one, other, strict=True)])
