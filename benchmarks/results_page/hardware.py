"""Tables of GPUs, of several processes and of the lag between them."""

from __future__ import annotations

from typing import Any

from benchmarks.results_page.cells import MEMORY, SPEEDS, Section, Table, number, only, plus_minus

CARD = {
    "": "name",
    "mode": "mode",
    "first update, s": "first_update_s",
    "again": "again_s",
    "compile, s": "compile_s",
    "rollout": "rollout_fps",
    "+ updates": "training_fps",
    "loop": "loop_fps",
    "of it": "of_training",
    "rest, ms": "rest_ms",
    "of goal": "of_goal",
    "of peer": "of_peer",
    "mark, frames": "mark_frames",
    "s": "mark_s",
    "launches": "rollout_launches",
    "of updates": "improve_launches",
    "memory, MB": "peak_memory_mb",
}
"""Columns of one card."""


def card(data: list[dict[str, Any]]) -> Table:
    """Return training speeds on one card, in frames per second, and how long learning takes to start."""
    return only([row for entry in data for row in entry["rows"]], CARD)


def gpu_speed(data: dict[str, Any]) -> Table:
    """Return decisions per second on a GPU."""
    return only(data["speed"], {"worlds": "num_envs", "mode": "mode", **SPEEDS, **MEMORY})


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


def processes(distributed: dict[str, Any], league: dict[str, Any]) -> Table:
    """Return the speed of ranks and of several agents in one program."""
    ranks, matches = distributed["distributed"], league["matches"]
    frames = ", ".join(f"{number(rate)} frames/s {side}" for side, rate in ranks["frames_per_second"].items())
    milliseconds = ", ".join(f"{each:.2f} ms {name}" for name, each in matches["milliseconds"].items())
    rows = [["two ranks", frames, f"{ranks['times_as_fast']} times as fast"]]
    rows.append(["eight agents act", milliseconds, f"{matches['times_as_long']:.2f} times as long"])
    return ["", "found", "ratio"], rows


def lag(data: dict[str, Any]) -> Table:
    """Return returns of IMPALA and PPO by lag."""
    rows = []
    for row in data["rows"]:
        figures = [
            plus_minus(row[key]["mean"], row[key]["half_width"]) for key in ("impala", "ppo", "impala_minus_ppo")
        ]
        rows.append([row["figure"], str(row["lag"]), *figures])
    return ["return", "lag", "IMPALA", "PPO", "difference"], rows


def small_worlds(data: list[dict[str, Any]]) -> Table:
    """Return training speeds as multiples of Stable-Baselines3's, by the number of worlds."""
    cases = data[-1]["cases"]
    counts = [str(count) for count in sorted({int(name.rpartition("_")[2]) for name in cases})]
    rows = []
    for name in dict.fromkeys(name.rpartition("_")[0] for name in cases):
        world, _, algorithm = name.rpartition("_")
        found = {count: cases[f"{name}_{count}"] for count in counts if f"{name}_{count}" in cases}
        text = {
            count: "{median:.2f} ({low:.2f} to {high:.2f})".format(**each["ratio"]) for count, each in found.items()
        }
        frames = [each["ahead_after_frames"] for each in found.values()]
        last = "never" if None in frames else number(max(frames))
        rows.append([f"{world.replace('_', ' ')}, {algorithm.upper()}", *(text.get(each, "") for each in counts), last])
    return ["world, algorithm, worlds:", *counts, "ahead from frames"], rows


TITLE = "Figures of GPUs and of several processes"
SECTIONS = (
    Section(
        "One card",
        ("gpu.json",),
        card,
        "frames per second of rollouts, of rollouts with updates and of the real loop, in milliseconds what it adds to "
        "an iteration, and when CartPole's mean return is 475: over up to 4,096 episodes, for JAX those of "
        "one rollout. JAX's first update is that of eight. Goals are for an H200; peers ran in the same call.",
    ),
    Section(
        "H200: speed",
        ("arena_gpu.json",),
        gpu_speed,
        "decisions per second in the Arena, each four steps of the game; the last row is the classic game. CUDA graphs "
        "shared the card with other work.",
    ),
    Section("H200: learning", ("arena_gpu.json",), gpu_learning, "the Arena, one seed."),
    Section(
        "GPU bounds",
        ("roofline.json",),
        bounds,
        "at most, computed from generated code without a GPU; nothing was timed. [Method](../profile.md).",
    ),
    Section(
        "Several processes",
        ("distributed.json", "league.json"),
        processes,
        "two ranks of one thread beside two threads; eight agents in one program beside one.",
    ),
    Section(
        "Small worlds on the host",
        ("sb3_speed.json",),
        small_worlds,
        "frames per processor second as multiples of Stable-Baselines3's with equal hyperparameters, of three "
        "rounds; the last column counts compiling.",
    ),
    Section("Lag", ("lag.json",), lag, "returns where the acting policy is this many iterations old."),
)
