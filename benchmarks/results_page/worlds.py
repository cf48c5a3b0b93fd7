"""Tables of worlds: the Arena, the Town, and those of others."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from benchmarks.against_sb3 import SIDES, welch
from benchmarks.results_page.cells import SPEEDS, Section, Table, between, by_mode, number, plus_minus, spread

SCRIPTED = ("greedy", "rest", "random")


def arena(data: dict[str, Any], long: dict[str, Any]) -> Table:
    """Return what each algorithm learns, as ranges over seeds."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in data["runs"]:
        groups.setdefault(f"`arena`, style {run['style']}", []).append(run)
    for run in [*data["algorithms"]["runs"], *data["algorithms, from a fresh clone"]["runs"]]:
        groups.setdefault(f"`arena`, {run['algorithm'].upper()}", []).append(run)
    rows = []
    for name, runs in groups.items():
        ways = [[run["ways"][way] for run in runs] for way in ("likeliest", "sampled")]
        won = [between((each["win_rate"] for each in way), 100, " %") for way in ways]
        spawners = between(each["spawners_destroyed"] for each in ways[0])
        seeds = len({run["seed"] for run in runs})
        rows.append([name, str(seeds), f"{runs[0]['frames'] / 1e6:.3g}", *won, spawners])
    last = long["evaluation"]
    figures = [f"{last['win_rate'] * 100:.3g} %", "", f"{last['spawners_destroyed']:.3g}"]
    rows.append(["`arena_long`", "1", f"{long['frames'] / 1e6:.3g}", *figures])
    return ["", "seeds", "million decisions", "won", "won, sampled", "spawners of 15"], rows


def speed(data: dict[str, Any]) -> Table:
    """Return steps per second of world, policy and training."""
    return by_mode(data["rows"], {"worlds": "num_envs"}, SPEEDS | {"compile, s": "compile_seconds"})


def time_to_skill(*studies: dict[str, Any]) -> Table:
    """Return the time to each skill, ours and that of Stable-Baselines3."""
    rows = []
    for name, data in zip(("large batches", "small batches", "offsets"), studies, strict=True):
        seconds = [
            f"{pair['ours']:.0f} ({'never' if (theirs := pair['stable_baselines3']) is None else f'{theirs:,.0f}'})"
            for pair in data["time_to_skill"].values()
        ]
        rows.append([name, *seconds, f"{data['ratio_frames_per_second']:.1f}"])
    return ["", *studies[0]["time_to_skill"], "times the frame rate"], rows


def frame_rates(data: list[dict[str, Any]]) -> Table:
    """Return frames per second beside those of Stable-Baselines3, as ranges over runs."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in data:
        changes = "".join(f", `{each}`" for each in run["overrides"] if "num_envs" not in each)
        groups.setdefault(run["algorithm"].upper() + changes, []).append(run)
    rows = []
    for name, runs in groups.items():
        rates = [between(run[side]["frames_per_second"] for run in runs) for side in ("ours", "stable_baselines3")]
        rows.append([name, *rates, between(run["ratio_frames_per_second"] for run in runs)])
    return ["algorithm", "ours", "Stable-Baselines3", "ratio"], rows


def against_sb3(data: list[dict[str, Any]]) -> Table:
    """Return means over seeds beside those of Stable-Baselines3, and Welch's interval of the difference."""
    rows = []
    for task in dict.fromkeys(each["task"] for each in data):
        runs = [[each for each in data if (each["task"], each["side"]) == (task, side)] for side in SIDES]
        ours, theirs = ([each["return_mean"] for each in side] for side in runs)
        returns = [f"{spread(side)} ({len(side)})" if side else "" for side in (ours, theirs)]
        difference = plus_minus(*welch(ours, theirs)) if min(len(ours), len(theirs)) > 1 else ""
        seconds = [f"{fmean(each['processor_seconds'] for each in side):.0f}" if side else "" for side in runs]
        rows.append([task, number((runs[0] or runs[1])[0]["frames"]), *returns, difference, *seconds])
    return ["task", "frames", "ours", "theirs", "difference", "CPU s", "theirs"], rows


def town_speed(data: dict[str, Any]) -> Table:
    """Return agent-steps per second of world, policy and training by level."""
    entries = (entry for entry in data.values() if isinstance(entry, dict))
    rows = [row for entry in entries for row in entry.get("rows", []) if row.get("training")]
    return by_mode(rows, {"level": "level", "worlds": "num_envs", "agents": "num_agents"}, SPEEDS)


def town_skill(data: dict[str, Any]) -> Table:
    """Return returns of PPO beside those of scripted policies."""
    rows = []
    for level in ("L2", "L3", "L4"):
        runs = data[level]["rows"]
        scripted = [next(each["return_mean"] for each in runs if each["player"] == name) for name in SCRIPTED]
        ours = [each for each in runs if each["player"] == "ppo"]
        won = between((each["win_rate"] for each in ours), 100, " %")
        returns = spread([each["return_mean"] for each in ours])
        rows.append([level, number(ours[0]["frames"]), *map(number, scripted), returns, won])
    return ["level", "frames", *SCRIPTED, "PPO", "PPO: to the end"], rows


def known_results(data: list[dict[str, Any]], cartpole: dict[str, Any]) -> Table:
    """Return returns on well-known worlds beside published ones."""
    rows = []
    for entry in [cartpole, *data]:
        if "+world.show_others=true" in entry["overrides"]:  # compares social models
            continue
        changes = " ".join(each for each in entry["overrides"] if each != "threads=1")
        published = dict(entry.get("published") or {})
        published.pop("source", None)
        frames = published.pop("frames", None)
        figure = next(iter(published.values()), "").replace("+-", "±")
        shown = f"{figure} ({number(frames)})" if figure else ""
        mark = number(entry.get("mark"))
        name, runs = f"`{' '.join([entry['config'], changes]).strip()}`", entry["rows"]
        ours = ", ".join(number(run["return_mean"]) for run in runs)
        rows.append([name, mark, shown, ours, number(runs[0]["frames"])])
    return ["configuration", "mark", "published", "ours, by seed", "frames"], rows


def bit_flip(data: dict[str, Any]) -> Table:
    """Return the fraction of episodes solved with hindsight and without."""
    return ["", "solved, by seed"], [[name, ", ".join(map(number, solved))] for name, solved in data["solved"].items()]


TITLE = "Figures of worlds and algorithms"
SECTIONS = (
    Section(
        "The Arena: skill",
        ("arena_default.json", "arena_long.json"),
        arena,
        "unseen games at full difficulty, ranges over seeds. `arena_long` has the classic observation and a decision "
        "in every step.",
    ),
    Section(
        "The Arena: speed",
        ("arena_speed.json",),
        speed,
        "steps per second of the classic game, eager / compiled; training with four epochs.",
    ),
    Section(
        "The Arena: time to skill",
        ("arena_learn.json", "arena_learn_one_epoch.json", "arena_learn_offsets.json"),
        time_to_skill,
        "seconds to this many spawners per training episode, with compiling; in brackets those of Stable-Baselines3.",
    ),
    Section(
        "The Arena: frame rates of A2C and DQN",
        ("arena_learn_a2c_dqn.json",),
        frame_rates,
        "equal networks and gradient samples per frame.",
    ),
    Section(
        "Defaults beside tuned settings",
        ("against_sb3",),
        against_sb3,
        "returns of our defaults and of Stable-Baselines3 with its zoo's settings; in brackets the number of seeds.",
    ),
    Section("The Town: speed", ("town_speed.json",), town_speed, "agent-steps per second, eager / compiled."),
    Section(
        "The Town: skill",
        ("town_skill.json",),
        town_skill,
        "returns in 256 towns; the greedy policy knows the whole map and never dies here.",
    ),
    Section(
        "Known worlds",
        ("known_results.json", "cartpole.json"),
        known_results,
        "returns over 100 episodes of most likely actions (32 of worlds with defaults alone, `gym:`); published "
        "figures, their frames in brackets, are of "
        "rl-baselines3-zoo and for POPGym of Morad et al. (2023), as copied elsewhere.",
    ),
    Section("Hindsight", ("bit_flip.json",), bit_flip, "fraction of bit-flipping episodes that DQN solves."),
)
