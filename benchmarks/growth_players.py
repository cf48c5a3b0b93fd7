"""Scripted players of the growth world in the same worlds: return, accuracy, gain and modules. They bound what a policy
can learn to gain. Nothing is learned but the hosts.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor

from envs import GrowthEnv
from torchrl_agent.core.progress import Progress
from torchrl_agent.core.tables import aligned

COLUMNS = ("return", "accuracy", "gain", "permanent", "rent", "operations")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add worlds and the seed."""
    parser.add_argument("--worlds", type=int, default=32, help="worlds of each player, the same for all (32)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the worlds (0)")


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Measure, and print the figures."""
    names = list(GrowthEnv(1).players())
    rows = [play(name, parsed.worlds, parsed.seed) for name in Progress(len(names), "player").over(names)]
    print(table(rows))
    return {"config": "growth", "overrides": [], "worlds": parsed.worlds, "seed": parsed.seed, "rows": rows}


@torch.no_grad()
def play(name: str, worlds: int, seed: int) -> dict[str, Any]:
    """Let a player play an episode in each world; return means, half widths of their 95 % intervals, the mean return by
    the number of modules that pay, and the correlation of that number with the number of permanent modules.
    """
    torch.manual_seed(seed)
    env = GrowthEnv(worlds, seed=seed)
    player, seen = env.players()[name], env.reset()
    for _ in range(env.rules.max_steps):
        seen = env.step(player(seen))["next"]
    episode = {key: value.flatten() for key, value in seen["episode"].items()}
    useful = episode["useful"]
    return {
        "player": name,
        **{key: episode[key].mean().item() for key in COLUMNS},
        "half_width": {key: 1.96 * episode[key].std().item() / worlds**0.5 for key in COLUMNS},
        "return_by_useful": {int(n): episode["return"][useful == n].mean().item() for n in useful.unique()},
        "correlation": correlation(useful, episode["permanent"]),
    }


def correlation(one: Tensor, other: Tensor) -> float | None:
    """Return Pearson's correlation; None if one of them is constant."""
    pair = torch.stack((one, other))
    return None if float(pair.std(1).min()) == 0 else float(torch.corrcoef(pair)[0, 1])


def table(rows: list[dict[str, Any]]) -> str:
    """Return the figures as lines of text."""
    lines = [["player", *COLUMNS, "correlation"]]
    for row in rows:
        cells = [f"{row[key]:.2f} ± {row['half_width'][key]:.2f}" for key in COLUMNS]
        lines.append([row["player"], *cells, "-" if row["correlation"] is None else f"{row['correlation']:.2f}"])
    return "\n".join(aligned(lines))
