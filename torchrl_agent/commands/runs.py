"""``torchrl-agent runs``: list the runs of a folder and the agents that come with the package, with their figures."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from torchrl_agent.commands.arguments import add_json
from torchrl_agent.json_text import to_json
from torchrl_agent.run_names import CONFIG, shipped_runs
from torchrl_agent.runs.report import compare, table
from torchrl_agent.tables import printable

SHOWN = ("run", "seed", "frames", "return_mean", "win_rate")
"""Figures of a run that fit into a line; ``compare`` shows all."""


def add_runs(parser: argparse.ArgumentParser) -> None:
    """A folder of runs."""
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs"), help="folder of runs (runs)")
    add_json(parser)


def run_runs(parsed: argparse.Namespace) -> None:
    """Print a row of each run."""
    own = sorted(file.parent for file in parsed.folder.glob(f"*/{CONFIG}"))
    found: list[dict[str, Any]] = []
    for folder in (*own, *shipped_runs().values()):
        try:
            (entry,) = compare([folder])
        except ValueError as error:
            print(printable(f"left out: {error}"))
            continue
        figures = {name: entry["runs"][0].get(name) for name in SHOWN}
        found.append({"config": entry["config"], "runs": [figures]})
    if found:
        print(table(found))
    if parsed.json:
        print(to_json({"runs": [{"config": entry["config"], **entry["runs"][0]} for entry in found]}))
