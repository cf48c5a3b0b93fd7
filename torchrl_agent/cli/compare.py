"""``torchrl-agent compare``, ``plot`` and ``runs``: tables, learning curves and lists of runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from torchrl_agent.cli.arguments import add_json, print_json
from torchrl_agent.core.run_names import CONFIG, shipped_runs
from torchrl_agent.core.tables import printable
from torchrl_agent.runs.lineage import PICTURE, plot_lineage
from torchrl_agent.runs.report import AXES, FRAMES, METRIC, compare, plot, table


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Add runs."""
    parser.add_argument("run_folders", metavar="RUN", nargs="+")
    form = parser.add_mutually_exclusive_group()
    for name, what in (("markdown", "a table of Markdown"), ("csv", "comma-separated values with all digits")):
        form.add_argument(f"--{name}", action="store_const", dest="form", const=name, default="text", help=what)
    add_json(parser)


def run_compare(parsed: argparse.Namespace) -> None:
    """Print the table of runs."""
    entries = compare([Path(folder) for folder in parsed.run_folders])
    print(table(entries, parsed.form))
    print_json(parsed, {"configurations": entries})


# --- learning curves -------------------------------------------------------------------------------------------------


def add_plot(parser: argparse.ArgumentParser) -> None:
    """Add runs and the metrics to draw."""
    parser.add_argument("run_folders", metavar="RUN", nargs="+")
    parser.add_argument("--metric", action="append", help=f"a column of metrics.csv; repeat for panels ({METRIC})")
    parser.add_argument("--x", choices=AXES, default=FRAMES, help=f"{FRAMES}, or wall-clock time ({FRAMES})")
    parser.add_argument("--smooth", type=float, default=0.0, help="weight of the values before, below 1 (0)")
    parser.add_argument("--lineage", action="store_true", help="who descends from whom in the run of a population")
    parser.add_argument("--output", help=f".png, .svg or (of curves) .pdf (curves.png, {PICTURE})")


def run_plot(parsed: argparse.Namespace) -> None:
    """Draw, and print the path of the picture."""
    folders = [Path(folder) for folder in parsed.run_folders]
    if not parsed.lineage:
        output = Path(parsed.output or "curves.png")
        print(plot(folders, parsed.metric or [METRIC], output, parsed.x, parsed.smooth))
        return
    if len(folders) > 1 or parsed.metric:
        raise ValueError("--lineage is of one run, and of its fitness: give one RUN and no --metric.")
    print(plot_lineage(folders[0], Path(parsed.output or PICTURE)))


# --- lists of runs ---------------------------------------------------------------------------------------------------

SHOWN = ("run", "seed", "frames", "return_mean", "win_rate")
"""Figures of a run that fit into one line; ``compare`` shows all."""


def add_runs(parser: argparse.ArgumentParser) -> None:
    """Add a folder of runs."""
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs"), help="folder of runs (runs)")
    add_json(parser)


def run_runs(parsed: argparse.Namespace) -> None:
    """Print a row for each run."""
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
    print_json(parsed, {"runs": [{"config": entry["config"], **entry["runs"][0]} for entry in found]})
