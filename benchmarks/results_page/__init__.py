"""``docs/benchmarks``: every recorded result once, in tables made from the files in ``benchmarks/results``.

``python -m benchmarks results_page`` writes the pages, one for each module with ``SECTIONS``. A section has files, the
function that makes a table of their contents, and a sentence on how to read it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.results_page import agents, growth, hardware, populations, worlds
from benchmarks.results_page.cells import Section, Table

RESULTS = Path(__file__).parents[1] / "results"
FOLDER = Path(__file__).parents[2] / "docs" / "benchmarks"
PAGES = {"worlds": worlds, "growth": growth, "agents": agents, "populations": populations, "hardware": hardware}
LEFT_OUT = ("arena_algorithms.json", "structure.json")
"""Files without a section: the Arena before offsets, and counts of the code."""
AWAITED = ("gpu.json",)
"""Files that are still to be recorded: their sections are left out until then."""
TOP = "[How to read these figures, and what they say](findings.md).\n"
MACHINE, TORCH = "AMD EPYC", "2.13.0+cpu"
"""Machine and version that most files name."""
ORIGINS = "## Origins\n"
COMMANDS = {
    "against_sb3": "python -m benchmarks against_sb3",
    "agent_claims.json": "python -m benchmarks claims CLAIM",
    "arena_learn_a2c_dqn.json": "python -m benchmarks time_to_skill --algorithm ALGORITHM world.num_envs=1024 CHANGES",
    "bit_flip.json": "python -m benchmarks bit_flip",
    "diagnosis.json": "python -m benchmarks diagnosis",
    "gpu.json": "python -m benchmarks gpu",
    "roofline.json": "python -m benchmarks roofline CONFIGURATION",
    "headroom.json": "python -m benchmarks headroom town world.level=LEVEL --episodes 48",
    "known_results.json": "torchrl-agent bench skill CONFIGURATION threads=1",
    "labs.json": "python -m benchmarks labs",
    "level_claims.json": "python -m benchmarks claims CLAIM --seeds SEEDS",
}
"""Commands of files that name none, or one for each entry."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the pages have no options."""


def run(parsed: argparse.Namespace) -> None:
    """Write the pages."""
    for name, module in PAGES.items():
        (FOLDER / f"{name}.md").write_text(page(module), encoding="utf-8")


def page(module: ModuleType) -> str:
    """Return the page of a module with ``TITLE`` and ``SECTIONS``."""
    sections = recorded(module)
    files = dict.fromkeys(file for section in sections for file in section.files)
    origins = "".join(map(origin, files))
    return "\n".join([f"# {module.TITLE}\n", TOP, *map(shown, sections), ORIGINS, origins])


def recorded(module: ModuleType) -> list[Section]:
    """Return the sections of a module without those of awaited files."""
    missing = {file for file in AWAITED if not (RESULTS / file).exists()}
    return [section for section in module.SECTIONS if missing.isdisjoint(section.files)]


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


def origin(file: str) -> str:
    """Return a line with file, date, machine if it differs, and command, as the file or its first entry has them."""
    data = load(file)
    entries = data if isinstance(data, list) else [data, *(each for each in data.values() if isinstance(each, dict))]

    def first(key: str, missing: Any = "") -> Any:
        return next((each[key] for each in entries if each.get(key)), missing)

    machine, torch = (first("machine") or first("device")).partition(";")[0], first("versions", {}).get("torch", TORCH)
    same = MACHINE in machine or machine == "cpu"
    details = [first("date"), "" if same else machine, "" if torch == TORCH else f"torch {torch}"]
    words = ", ".join(each for each in (f"`{file}`", *details) if each)
    return f"- {words}: `{COMMANDS.get(file) or first('command').removesuffix(' --json')}`\n"
