"""``torchrl-agent plot``: draw learning curves of runs, one per configuration, over its seeds, or a lineage."""

from __future__ import annotations

import argparse
from pathlib import Path

from torchrl_agent.runs.lineage import PICTURE, plot_lineage
from torchrl_agent.runs.report import METRIC, plot


def add_plot(parser: argparse.ArgumentParser) -> None:
    """Runs and what of them."""
    parser.add_argument("run_folders", metavar="RUN", nargs="+")
    parser.add_argument("--metric", action="append", help=f"a column of metrics.csv; repeat for panels ({METRIC})")
    parser.add_argument("--lineage", action="store_true", help="who descends from whom in the run of a population")
    parser.add_argument("--output", help=f".png, .svg or (of curves) .pdf (curves.png, {PICTURE})")


def run_plot(parsed: argparse.Namespace) -> None:
    """Draw and print where the picture is."""
    folders = [Path(folder) for folder in parsed.run_folders]
    if not parsed.lineage:
        print(plot(folders, parsed.metric or [METRIC], Path(parsed.output or "curves.png")))
        return
    if len(folders) > 1 or parsed.metric:
        raise ValueError("--lineage is of one run, and of its fitness: give one RUN and no --metric.")
    print(plot_lineage(folders[0], Path(parsed.output or PICTURE)))
