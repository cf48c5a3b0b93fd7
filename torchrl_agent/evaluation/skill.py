"""Skill of an algorithm on a configuration over several seeds, beside the world's scripted policies; judged alike."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from tensordict.nn import TensorDictModuleBase

from torchrl_agent.core.abilities import abilities
from torchrl_agent.core.checkpoint import versions
from torchrl_agent.core.progress import Progress
from torchrl_agent.core.tables import aligned
from torchrl_agent.experiment import Experiment
from torchrl_agent.loop import learn
from torchrl_agent.models.planned_policy import acting_policy
from torchrl_agent.training.evaluator import evaluate_policy, summarize

FIGURES = ("return_mean", "return_std", "win_rate", "length_mean", "lifetime", "spawners_destroyed")
"""Columns of the table, as far as the world has them."""


def measure_skill(config: str, overrides: list[str], seeds: list[int]) -> dict[str, Any]:
    """Train once per seed, and judge each policy and every scripted policy of the world on the same worlds.

    Args:
        seeds: seeds of the training runs; each policy takes its most likely actions when it is judged.

    Returns:
        ``rows``, one per scripted policy or seed, with the figures of
        :func:`~torchrl_agent.training.evaluator.summarize`, ``player``, and for the algorithm ``seed``, ``frames`` and
        ``seconds`` of training, compilation included; also its ``return_mean`` over the seeds and, if the configuration
        has an ``evaluation.mark``, ``reached``: True if
        every seed reached it.
    """
    rows: list[dict[str, Any]] = []
    experiment = Experiment.load(config, *overrides)
    for name in abilities(_judging_world(experiment)).players():
        world = _judging_world(experiment)
        rows.append({"player": name, **_judge(abilities(world).players()[name], world)})
    for seed in Progress(len(seeds), "run").over(seeds):
        experiment = Experiment.load(config, *overrides, f"seed={seed}")
        start = time.perf_counter()
        (iteration,) = deque(learn(experiment), maxlen=1)
        seconds, agent = time.perf_counter() - start, iteration.agent
        row = {"player": experiment.algorithm_class.name, "seed": seed, "frames": iteration.frames, "seconds": seconds}
        rows.append({**row, **_judge(acting_policy(agent), agent.attach(_judging_world(experiment)))})
    returns = [row["return_mean"] for row in rows if "seed" in row]
    mark = experiment.evaluation.mark
    return {
        "config": config,
        "overrides": overrides,
        "device": str(iteration.learner.device),
        "versions": versions(),
        "mark": mark,
        "return_mean": sum(returns) / len(returns),
        "reached": None if mark is None else min(returns) >= mark,
        "rows": rows,
    }


def table(result: dict[str, Any]) -> str:
    """The rows as a text table."""
    rows = result["rows"]
    columns = ["player", "seed", "frames", "seconds"]
    columns += [name for name in FIGURES if name in rows[0]]
    lines = aligned([columns, *([_cell(row.get(name)) for name in columns] for row in rows)])
    learned = [row for row in rows if "seed" in row]
    verdict = {None: "", True: ", reached by every seed", False: ", missed"}[result["reached"]]
    mark = "" if result["mark"] is None else f"; mark {result['mark']:g}{verdict}"
    return "\n".join([*lines, f"{learned[0]['player']} over {len(learned)} seeds: {result['return_mean']:,.4g}{mark}"])


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _judging_world(experiment: Experiment) -> Any:
    config = experiment.evaluation
    return experiment.make_world(evaluation=True, num_envs=config.episodes, seed=config.seed)


def _judge(policy: TensorDictModuleBase, world: Any) -> dict[str, Any]:
    return summarize(evaluate_policy(policy, world, deterministic=True))
