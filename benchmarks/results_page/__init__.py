"""``docs/benchmarks/results.md``: every recorded result once, in tables made from the files in ``benchmarks/results``.

``python -m benchmarks results_page`` writes the page. A section is a row of ``SECTIONS``: the files, the function of
this package that makes a table of their contents, and a sentence on how to read it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.results_page import agents, gpus, populations, worlds
from benchmarks.results_page.cells import Table

RESULTS = Path(__file__).parents[1] / "results"
PAGE = Path(__file__).parents[2] / "docs" / "benchmarks" / "results.md"
LEFT_OUT = ("arena_algorithms.json", "structure.json")
"""Files without a section: the Arena before offsets, and counts of the code."""
TOP = """# Recorded results

Every recorded figure, made by `python -m benchmarks results_page` from the files in `benchmarks/results`, which also
hold figures by seed. ± and ranges in brackets are 95 % intervals; other ranges go from the smallest to the largest.
Speeds depend on the machine: compare ratios inside one table. [Origins](#origins) has commands, dates and machines.
"""


class Section(NamedTuple):
    """A table of the page."""

    title: str
    files: tuple[str, ...]
    table: Callable[..., Table]
    """Function of the contents of the files."""
    note: str = ""


SECTIONS = (
    Section(
        "Modules on levels made for them",
        ("level_claims.json",),
        agents.level_claims,
        "returns in 256 unseen games with and without the module, at equal parameters and frames; *ablated* is the "
        "trained agent with the module switched off. [What is compared](../claims.md).",
    ),
    Section(
        "Other claims",
        ("agent_claims.json", "level_claims.json"),
        agents.other_claims,
        "number of checks that hold, and the first that does not, or else the first.",
    ),
    Section(
        "What there is to gain",
        ("headroom.json",),
        agents.headroom,
        "what scripted policies earn more with one kind of knowledge than without; bold where a claim may be tested. "
        "[Method](../headroom.md).",
    ),
    Section(
        "The Arena: skill",
        ("arena_default.json", "arena_long.json"),
        worlds.arena,
        "unseen games at full difficulty, most likely actions and sampled ones, by seed. `arena_long` has the classic "
        "observation and a decision in every step.",
    ),
    Section(
        "The Arena: speed",
        ("arena_speed.json",),
        worlds.speed,
        "steps per second of the classic game; training with four epochs.",
    ),
    Section(
        "The Arena: time to skill",
        ("arena_learn.json", "arena_learn_one_epoch.json", "arena_learn_offsets.json"),
        worlds.time_to_skill,
        "seconds to so many spawners per training episode, with compiling; in brackets those of Stable-Baselines3.",
    ),
    Section(
        "The Arena: frame rates of A2C and DQN",
        ("arena_learn_a2c_dqn.json",),
        worlds.frame_rates,
        "equal networks and gradient samples per frame.",
    ),
    Section(
        "Defaults beside tuned settings",
        ("against_sb3",),
        worlds.against_sb3,
        "returns of our defaults and of Stable-Baselines3 with its zoo's settings; in brackets the number of seeds.",
    ),
    Section("The Town: speed", ("town_speed.json",), worlds.town_speed, "agent-steps per second."),
    Section(
        "The Town: skill",
        ("town_skill.json",),
        worlds.town_skill,
        "returns in 256 towns; the greedy policy knows the whole map and never dies here.",
    ),
    Section(
        "The four-module agent: speed",
        ("agent_speed.json",),
        agents.agent_speed,
        "L6 with four agents: milliseconds of acting and of an update, eager and compiled.",
    ),
    Section(
        "The four-module agent: epochs",
        ("agent_speed.json",),
        agents.epochs,
        "agent-steps per second of training, each rollout used so often.",
    ),
    Section(
        "Known worlds",
        ("known_results.json", "cartpole.json"),
        worlds.known_results,
        "returns over 100 episodes of most likely actions; published figures, their frames in brackets, are of "
        "rl-baselines3-zoo and for POPGym of Morad et al. (2023), as copied elsewhere.",
    ),
    Section("Hindsight", ("bit_flip.json",), worlds.bit_flip, "fraction of bit-flipping episodes that DQN solves."),
    Section(
        "Populations: speed",
        ("population.json",),
        populations.population_speed,
        "frames per second of one run and, summed, of eight members in one program.",
    ),
    Section(
        "Populations: evolution",
        ("population.json",),
        populations.evolution,
        "returns beside the same populations without evolution.",
    ),
    Section(
        "The duel",
        ("duel.json",),
        populations.duel,
        "fraction of 512 games won, and drawn: most likely actions, sampled ones.",
    ),
    Section("The league", ("league.json",), populations.league, "shares of the points, means over populations."),
    Section("Families", ("families.json",), populations.families, "traits and fitness over populations."),
    Section(
        "Several processes",
        ("distributed.json", "league.json"),
        populations.processes,
        "two ranks of one thread beside two threads; eight agents in one program beside one.",
    ),
    Section("Lag", ("lag.json",), populations.lag, "returns where the acting policy is so many iterations old."),
    Section(
        "H200: speed",
        ("arena_gpu.json",),
        gpus.gpu_speed,
        "decisions per second, each four steps of the game; the last row is the classic game. CUDA graphs shared the "
        "card with other work.",
    ),
    Section("H200: learning", ("arena_gpu.json",), gpus.gpu_learning, "one seed."),
    Section(
        "GPU bounds",
        ("gpu_bounds.json",),
        gpus.bounds,
        "at most, computed from generated code without a GPU; nothing was timed. [Method](../profile.md).",
    ),
)
TORCH = "2.13.0+cpu"
"""Version that most files name."""
COMMANDS = {
    "against_sb3": "python -m benchmarks against_sb3",
    "agent_claims.json": "python -m benchmarks claims CLAIM",
    "arena_learn_a2c_dqn.json": "python -m benchmarks time_to_skill --algorithm ALGORITHM world.num_envs=1024 CHANGES",
    "bit_flip.json": "python -m benchmarks bit_flip",
    "gpu_bounds.json": "python -m benchmarks roofline CONFIGURATION",
    "headroom.json": "python -m benchmarks headroom town world.level=LEVEL --episodes 48",
    "known_results.json": "torchrl-agent bench skill CONFIGURATION threads=1",
    "level_claims.json": "python -m benchmarks claims CLAIM --seeds SEEDS",
}
"""Commands of files that name none, or one for each entry."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the page has no options."""


def run(parsed: argparse.Namespace) -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the page."""
    files = sorted({file for section in SECTIONS for file in section.files})
    origins = (["file", "command", "date", "machine"], [origin(file) for file in files])
    versions = f"torch is {TORCH}, TorchRL 0.14.1 and tensordict 0.14.3 where none is named."
    last = f"## Origins\n\nOlder commands name keys as they were called then; {versions}\n\n{markdown(origins)}"
    return "\n".join([TOP, *map(shown, SECTIONS), last])


def shown(section: Section) -> str:
    """Return a section: title, files, note and table."""
    table = section.table(*(load(file) for file in section.files))
    files = ", ".join(f"`{file}`" for file in section.files)
    return f"## {section.title}\n\n{files}: {section.note}\n\n{markdown(table)}"


def markdown(table: Table) -> str:
    """Return a table in Markdown."""
    header, rows = table
    lines = [f"| {' | '.join(row)} |\n" for row in (header, *rows)]
    return "".join([lines[0], "|---" * len(header), "|\n", *lines[1:]])


def load(file: str) -> Any:
    """Return the content of a file of results, or a list of those in a folder."""
    path = RESULTS / file
    if path.is_dir():
        return [load(f"{file}/{each.name}") for each in sorted(path.glob("*.json"))]
    return json.loads(path.read_text(encoding="utf-8"))


def origin(file: str) -> list[str]:
    """Return file, command, date and machine as the file, or its first entry, has them; torch where it is another."""
    data = load(file)
    entries = data if isinstance(data, list) else [data, *(each for each in data.values() if isinstance(each, dict))]

    def first(key: str, missing: Any = "") -> Any:
        return next((each[key] for each in entries if each.get(key)), missing)

    machine = str(first("machine") or first("device")).partition(";")[0]
    torch = first("versions", {}).get("torch", TORCH)
    command = COMMANDS.get(file) or first("command").removesuffix(" --json")
    return [f"`{file}`", f"`{command}`", first("date"), machine if torch == TORCH else f"{machine}, torch {torch}"]
