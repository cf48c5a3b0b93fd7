"""Accuracy of hosts with 0, 1 and 2 modules grown on a fixed schedule, in worlds where two pay: the condition that must
hold before any policy is trained to grow networks. Nothing is learned but the hosts.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from envs import GrowthEnv
from envs.growth.scripted import Planting, SchedulePlayer, WaitingPlayer
from envs.growth.state import State
from torchrl_agent.core.progress import Progress
from torchrl_agent.core.tables import aligned

DESIGNS: dict[str, dict[str, Any]] = {
    "stacked": {"near_taps": True, "pooling": "mean"},
    "distances": {"near_taps": False, "pooling": "mean"},
    "distances, max": {"near_taps": False, "pooling": "max"},
    "lerp": {"blend": "lerp"},
    "faults": {"fault_probability": 0.01},
    "faults, ungoverned": {"fault_probability": 0.01, "governor": False},
}
"""Designs of the host, the third one found after trials of rate, batch, width and pooling. ``stacked``: each slot reads
the nearest neighbors, so that two modules in a row are needed for the far pair; ``distances``: each slot reads
neighbors at its own distance, so that each pair needs a module; the third one, which is the default, also pools over
positions by their maximum instead of their mean. The others are ablations of the third: of residual blending, and of
the governor under injected faults.
"""
BOUNDS = ((0.20, 0.30), (0.40, 0.60), (0.75, 1.0))
"""Range of the mean accuracy with 0, 1 and 2 modules in which the gate is passed."""
SCHEDULES = ((), (Planting(0, 2),), (Planting(0, 2), Planting(1, 10)))
LEVEL = 3
"""Hidden level at which both pairs count."""


class EnduringEnv(GrowthEnv):
    """Growth world whose episodes go on after a rollback, which shows what the repaired hosts are worth."""

    @override
    def outcome(self, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """Return reward, terminated (time is up) and truncated of the last step."""
        reward, over, truncated = super().outcome(state)
        return reward, over & (state.step >= self.rules.max_steps), truncated


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add designs, seeds and worlds."""
    parser.add_argument("--designs", nargs="+", default=list(DESIGNS), choices=list(DESIGNS), help="all of them")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4], help="seeds of the worlds (0 to 4)")
    parser.add_argument("--worlds", type=int, default=8, help="hosts for each seed and schedule (8)")


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Measure, and print the figures."""
    rows = []
    for design in Progress(len(parsed.designs), "design").over(parsed.designs):
        rows.append(measure_design(design, parsed.seeds, parsed.worlds))
        print(table(rows[-1:]), flush=True)
    return {
        "config": "growth",
        "overrides": [],
        "seeds": parsed.seeds,
        "worlds": parsed.worlds,
        "level": LEVEL,
        "rows": rows,
    }


def measure_design(design: str, seeds: list[int], worlds: int) -> dict[str, Any]:
    """Grow hosts by each schedule and return their accuracy at the end: ``accuracies`` by schedule and seed, their
    ``means``, and ``passed``.
    """
    accuracies = [[final_accuracy(design, plan, seed, worlds) for seed in seeds] for plan in SCHEDULES]
    means = [statistics.mean(each) for each in accuracies]
    passed = all(low <= mean <= high for mean, (low, high) in zip(means, BOUNDS, strict=True))
    return {"design": design, "rules": DESIGNS[design], "accuracies": accuracies, "means": means, "passed": passed}


@torch.no_grad()
def final_accuracy(design: str, plan: tuple[Planting, ...], seed: int, worlds: int) -> float:
    """Return the mean accuracy of the worlds' hosts in the last step of an episode."""
    env = EnduringEnv(worlds, seed=seed, level=LEVEL, rules=DESIGNS[design])
    player = SchedulePlayer(env, plan) if plan else WaitingPlayer(env)
    seen = env.reset()
    for _ in range(env.rules.max_steps):
        seen = env.step(player(seen))["next"]
    return seen["episode", "accuracy"].mean().item()


def table(rows: list[dict[str, Any]]) -> str:
    """Return the accuracies as lines of text: mean, and lowest and highest of the seeds."""
    lines = [["design", "0 modules", "1 module", "2 modules", "passed"]]
    for row in rows:
        cells = [
            f"{100 * mean:.0f} % ({100 * min(each):.0f} to {100 * max(each):.0f})"
            for mean, each in zip(row["means"], row["accuracies"], strict=True)
        ]
        lines.append([row["design"], *cells, "yes" if row["passed"] else "no"])
    return "\n".join(aligned(lines))
