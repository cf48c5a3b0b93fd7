"""Headroom of each module of the agent: return of scripted policies with the best knowledge that the module could
provide, beside the best of the same policies without it, in the same games. Nothing is trained.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from benchmarks.arguments import add_config
from torchrl_agent import keys
from torchrl_agent.core.abilities import abilities
from torchrl_agent.core.checkpoint import versions
from torchrl_agent.core.devices import resolve_device
from torchrl_agent.core.progress import Progress
from torchrl_agent.core.tables import aligned, interval
from torchrl_agent.experiment import Experiment
from torchrl_agent.training.evaluator import CHECK_EVERY_UNCOMPILED, Stepper

LEAST_SHARE = 0.2
"""A module's claim is testable where at least this fraction of the return without it can be gained."""
MAX_STEPS = 100_000
"""Largest number of steps, approximately, in which every world must finish an episode."""
COLUMNS = ("level", "module", "without", "with", "difference", "interval", "share", "testable")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a configuration, levels, modules and episodes."""
    add_config(parser, "town", "a configuration")
    parser.add_argument("--levels", nargs="+", default=[], help="values of world.level (the configuration's own)")
    parser.add_argument(
        "--modules", nargs="+", default=[], help="those to measure (all that the world has experts for)"
    )
    parser.add_argument("--episodes", type=int, default=64, help="games of each player (64)")


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Measure, and print the figures."""
    result = measure_headroom(parsed.config, parsed.overrides, parsed.levels, parsed.episodes, parsed.modules)
    print(table(result))
    return result


def measure_headroom(
    config: str, overrides: list[str], levels: list[str], episodes: int, modules: list[str] | None = None
) -> dict[str, Any]:
    """Evaluate every expert of the world and its counterparts without the knowledge (``World.experts``), on each level.

    Args:
        config: a configuration's name or path.
        overrides: changes of the configuration.
        levels: values of ``world.level``; none for the configuration's own.
        episodes: number of worlds; each is one game, the same for every policy, of which the first episode counts.
        modules: names of the modules to measure; none for all.

    Returns:
        ``rows``, see :func:`compare`, with ``level`` and ``module``.

    Raises:
        ValueError: fewer than 2 episodes, or the world has no experts, or none for one of ``modules``.
    """
    if episodes < 2:
        raise ValueError(f"--episodes is {episodes}: give at least 2, an interval needs them.")
    variants = [[f"world.level={level}"] for level in levels] or [[]]
    rows: list[dict[str, Any]] = []
    for level in Progress(len(variants), "level").over(variants):
        experiment = Experiment.load(config, *overrides, *level)
        if experiment.threads is not None:
            torch.set_num_threads(experiment.threads)
        name = str(experiment.world.get("level", config))
        world = experiment.make_world(evaluation=True, num_envs=episodes, seed=experiment.evaluation.seed)
        experts = _experts(world, config, modules or [])
        rows += [{"level": name, **row} for row in _measure_level(world, experts, experiment.evaluation.seed)]
    return {
        "config": config,
        "overrides": overrides,
        "device": str(resolve_device(experiment.device)),
        "versions": versions(),
        "episodes": episodes,
        "rows": rows,
    }


def _experts(world: Any, config: str, modules: list[str]) -> dict[str, tuple[TensorDictModuleBase, ...]]:
    experts = abilities(world).experts()
    if not experts:
        raise ValueError(
            f"configuration {config!r} has a world without experts to compare: give World.experts(), or choose a "
            "configuration of the Town."
        )
    for module in modules:
        if module not in experts:
            raise ValueError(f"--modules names {module!r}, in which no expert differs here: use {', '.join(experts)}.")
    return {module: players for module, players in experts.items() if module in modules or not modules}


def _measure_level(world: Any, experts: dict[str, tuple[TensorDictModuleBase, ...]], seed: int) -> list[dict[str, Any]]:
    players = {id(player): player for several in experts.values() for player in several}
    returns = {
        number: play(world, player, seed)
        for number, player in Progress(len(players), "player", leave=False).over(players.items())
    }
    rows = []
    for module, (informed, *others) in experts.items():
        ignorant = max((returns[id(player)] for player in others), key=lambda earned: earned.mean().item())
        rows.append({"module": module, **compare(returns[id(informed)], ignorant)})
    return rows


@torch.no_grad()
def play(world: Any, player: TensorDictModuleBase, seed: int) -> Tensor:
    """Compute the return of the first agent in the first episode of every world, float64 [N] on the CPU.

    Args:
        world: a batched world, reset with ``seed``.
        player: policy that writes the actions of all agents.
        seed: seed of the games.

    Raises:
        ValueError: a world did not finish an episode.
    """
    world.set_seed(seed)
    total = torch.zeros(world.batch_size, dtype=torch.float64, device=world.device)
    finished = torch.zeros_like(total, dtype=torch.bool)

    def watch(played: TensorDictBase) -> None:
        following = played.get(keys.NEXT)
        reward = following.get(world.reward_key).flatten(1)[:, 0]  # [N, 1], or [N, A, 1] with several agents
        total.add_(torch.where(finished, 0.0, reward))
        finished.logical_or_(following.get(keys.DONE).squeeze(-1))

    steps = Stepper(world, player, CHECK_EVERY_UNCOMPILED, watch)
    for _ in range(math.ceil(MAX_STEPS / CHECK_EVERY_UNCOMPILED)):
        steps()
        if finished.all():
            return total.cpu()
    raise ValueError(f"the world did not finish an episode within {MAX_STEPS} steps: it needs a time limit.")


def compare(informed: Tensor, ignorant: Tensor) -> dict[str, Any]:
    """Compare returns [N] with and without the knowledge, paired in the same games.

    Returns:
        ``without`` and ``with``, mean returns; their ``difference`` and ``low`` and ``high`` of its 95 % interval
        (Student's t over the pairs); ``share``, the ratio of the difference to the return without (None if that is
        0); and ``testable``: True if that is at least :data:`LEAST_SHARE` and the interval lies above 0.
    """
    difference, half = interval((informed - ignorant).tolist())
    without = ignorant.mean().item()
    share = difference / abs(without) if without else None
    return {
        "without": without,
        "with": informed.mean().item(),
        "difference": difference,
        "low": difference - half,
        "high": difference + half,
        "share": share,
        "testable": share is not None and share >= LEAST_SHARE and difference > half,
    }


def table(result: dict[str, Any]) -> str:
    """Return the rows as a table."""
    return "\n".join(aligned([COLUMNS, *map(_cells, result["rows"])], words=2))


def _cells(row: dict[str, Any]) -> list[str]:
    figures = [f"{row[name]:.1f}" for name in ("without", "with", "difference")]
    share = "" if row["share"] is None else f"{row['share']:+.1%}"
    between = f"{row['low']:.1f} to {row['high']:.1f}"
    return [row["level"], row["module"], *figures, between, share, "yes" if row["testable"] else "no"]
