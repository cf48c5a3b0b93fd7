"""Fixed schedules of growth chosen by the gain over the twin, beside those chosen by the modules' contributions (the
accuracy lost without each): what either reward makes of the same episodes.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch

from benchmarks.growth_players import APART, MixedSchedules, final
from envs import GrowthEnv
from envs.growth.rules import BLUEPRINTS
from envs.growth.scoring import gain
from envs.growth.scripted import Planting
from torchrl_agent.core.progress import Progress
from torchrl_agent.core.tables import aligned


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add seeds and worlds."""
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="seeds of the worlds (0 1 2)")
    parser.add_argument("--worlds", type=int, default=4, help="worlds of each schedule and seed (4)")


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Measure, and print the figures."""
    rows: list[dict[str, Any]] = []
    for seed in Progress(len(parsed.seeds), "seed").over(parsed.seeds):
        rows += chosen(seed, parsed.worlds)
        print(table(rows[-2:]), flush=True)
    print(table(rows))
    return {"config": "growth", "overrides": [], "worlds": parsed.worlds, "rows": rows}


def chosen(seed: int, worlds: int) -> list[dict[str, Any]]:
    """Return the schedules with the highest mean return by either reward, with what they reach."""
    plans = {
        f"{count} {BLUEPRINTS[blueprint].name}": [Planting(slot, APART * slot, blueprint) for slot in range(count)]
        for blueprint in (4, 5)
        for count in range(4)
        if count or blueprint == 5
    }
    env = GrowthEnv(worlds * len(plans), seed=seed)
    more = torch.zeros(env.num_envs)

    def count() -> None:
        slots, measures = env.state.slots, env.state.measures  # of a fresh episode after the last step, where all is 0
        more.add_(env.rules.reward_gain * (slots.contribution.sum(0) - gain(measures)))

    episode = final(env, MixedSchedules(env, list(plans.values())), count)
    more += (env.rules.reward_gain + env.rules.reward_final) * (episode["contribution"] - episode["gain"])
    by_gain = episode["return"]
    means = {key: episode[key].reshape(worlds, -1).mean(0) for key in ("accuracy", "gain", "permanent")}
    rows = []
    for reward, returns in (("gain", by_gain), ("contribution", by_gain + more)):
        best = int(returns.reshape(worlds, -1).mean(0).argmax())
        found = {key: float(value[best]) for key, value in means.items()}
        net = float(by_gain.reshape(worlds, -1).mean(0)[best])
        rows.append({"seed": seed, "reward": reward, "schedule": list(plans)[best], "return": net, **found})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Return the figures as lines of text."""
    lines = [["seed", "chosen by", "schedule", "net return", "accuracy", "permanent"]]
    for row in rows:
        figures = [f"{row[key]:.2f}" for key in ("return", "accuracy", "permanent")]
        lines.append([str(row["seed"]), row["reward"], row["schedule"], *figures])
    return "\n".join(aligned(lines))
