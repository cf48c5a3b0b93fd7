"""``torchrl-agent plot``: draw learning curves of runs, one per configuration, over its seeds."""

from __future__ import annotations

import argparse
from pathlib import Path

from torchrl_agent.runs.report import METRIC, plot


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Runs and what of them."""
    parser.add_argument("run_folders", metavar="RUN", nargs="+")
    parser.add_argument("--metric", action="append", help=f"a column of metrics.csv; repeat for panels ({METRIC})")
    parser.add_argument("--output", default="curves.png", help=".png, .svg or .pdf (curves.png)")


def run(parsed: argparse.Namespace) -> None:
    """Draw and print where the picture is."""
    folders = [Path(folder) for folder in parsed.run_folders]
    print(plot(folders, parsed.metric or [METRIC], Path(parsed.output)))
