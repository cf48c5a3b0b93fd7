"""How well algorithms learn from players that lag: IMPALA, whose V-trace is made for that, beside PPO."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from torchrl_agent.confidence import interval
from torchrl_agent.experiment import Experiment
from torchrl_agent.judging import evaluate
from torchrl_agent.loop import learn
from torchrl_agent.progress import Progress

ALGORITHMS = {"impala": ["algorithm.refresh_every=1"], "ppo": []}
"""With what lets each of them lag by a stated number of iterations, no less and no more."""


def measure_lag(
    config: str, overrides: Sequence[str], seeds: Sequence[int], lags: Sequence[int], steps: int
) -> dict[str, Any]:
    """Returns of the trained agents by algorithm and lag, at equal frames and rollouts, and differences paired by seed.

    Args:
        config: a configuration that says nothing of the algorithm.
        overrides: its changes.
        seeds: of the training runs.
        lags: iterations by which players are older than learners.
        steps: length of a rollout, so that a lag is one of as many frames for both.
    """
    returns: dict[str, dict[int, list[float]]] = {name: {lag: [] for lag in lags} for name in ALGORITHMS}
    todo = [(name, lag, seed) for seed in seeds for lag in lags for name in ALGORITHMS]
    for name, lag, seed in Progress(len(todo), "run").over(todo):
        changes = [f"algorithm={name}", f"algorithm.rollout_steps={steps}", f"algorithm.lag={lag}", f"seed={seed}"]
        experiment = Experiment.load(config, *changes, *ALGORITHMS[name], *overrides)
        (last,) = deque(learn(experiment), maxlen=1)
        returns[name][lag].append(evaluate(experiment, last.agent)["return_mean"])
    rows = [
        {"lag": lag, **{name: _told(of_lags[lag]) for name, of_lags in returns.items()}}
        | {"impala_minus_ppo": _difference(returns["impala"][lag], returns["ppo"][lag])}
        for lag in lags
    ]
    lost = {
        name: {lag: _difference(of_lags[lag], of_lags[lags[0]]) for lag in lags[1:]}
        for name, of_lags in returns.items()
    }
    return {"seeds": list(seeds), "rollout_steps": steps, "returns": returns, "rows": rows, "against_first_lag": lost}


def table(result: dict[str, Any]) -> str:
    """The rows for people."""
    lines = [f"{'lag':>5}  {'impala':>18}  {'ppo':>18}  {'impala - ppo':>18}"]
    for row in result["rows"]:
        cells = [row[name] for name in (*ALGORITHMS, "impala_minus_ppo")]
        shown = [f"{cell['mean']:,.4g} +- {cell['half_width']:,.3g}" for cell in cells]
        lines.append(f"{row['lag']:>5}  " + "  ".join(f"{cell:>18}" for cell in shown))
    return "\n".join(lines)


def _told(values: Sequence[float]) -> dict[str, float]:
    mean, half = interval(values)
    return {"mean": mean, "half_width": half}


def _difference(one: Sequence[float], other: Sequence[float]) -> dict[str, float]:
    return _told([a - b for a, b in zip(one, other, strict=True)])
