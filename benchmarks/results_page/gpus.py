"""Tables of GPUs."""

from __future__ import annotations

from typing import Any

from benchmarks.results_page.cells import MEMORY, SPEEDS, Table, number, only


def gpu_speed(data: dict[str, Any]) -> Table:
    """Return decisions per second on a GPU."""
    return only(data["speed"], {"worlds": "num_envs", **SPEEDS, **MEMORY})


def gpu_learning(data: dict[str, Any]) -> Table:
    """Return when a fraction of episodes is won, and the evaluation in the end."""
    run, judged = data["learning"], data["evaluation"]
    rows = [["compiling", f"{run['compile_seconds']:.0f} s"]]
    for success in (0.9, 0.99):
        at = next(each for each in run["curve"] if each["success_rate"] > success)
        text = f"{at['seconds_since_compiled']:.0f} s, {at['frames'] / 1e6:.0f} million decisions"
        rows.append([f"{at['success_rate']:.1%} of training episodes won", text])
    end = f"{run['curve'][-1]['seconds_since_compiled']:.0f} s, {run['frames'] / 1e6:.0f} million decisions"
    rows.append(["whole run", end])
    low, high = judged["likeliest"]["interval"]
    won = ", ".join(f"{judged[way]['win_rate']:.0%}" for way in ("likeliest", "sampled"))
    rows.append(["512 unseen games won: likely, sampled", f"{won} ({low:.1%} to {high:.0%})"])
    return ["", "found"], rows


def bounds(data: list[dict[str, Any]]) -> Table:
    """Return launches and bytes of a step, and the speeds that two GPUs cannot exceed."""
    rows = []
    for run in data:
        name = f"`{' '.join([run['config'], *run['overrides']])}`"
        step = [number(run["world"]["launches"]), number(round(run["world"]["bytes"] / run["num_envs"]))]
        most = [
            f"{run['per_second'][gpu][part] / 1e6:.3g}" if part in run["per_second"][gpu] else ""
            for part in ("world", "training")
            for gpu in ("H100", "H200")
        ]
        rows.append([name, *step, *most])
    header = ["configuration", "launches", "bytes", "H100 world, million/s", "H200", "H100 training", "H200"]
    return header, rows
