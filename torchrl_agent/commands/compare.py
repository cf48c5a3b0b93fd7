"""``torchrl-agent compare``: a table of runs, with mean and deviation over a configuration's seeds."""

from __future__ import annotations

import argparse
from pathlib import Path

from torchrl_agent.commands.arguments import add_json
from torchrl_agent.json_text import to_json
from torchrl_agent.runs.report import compare, table


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Runs."""
    parser.add_argument("run_folders", metavar="RUN", nargs="+")
    add_json(parser)


def run_compare(parsed: argparse.Namespace) -> None:
    """Print the table."""
    entries = compare([Path(folder) for folder in parsed.run_folders])
    print(table(entries))
    if parsed.json:
        print(to_json({"configurations": entries}))
