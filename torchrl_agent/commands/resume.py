"""``torchrl-agent resume``: continue a run from its last checkpoint."""

from __future__ import annotations

import argparse

from torchrl_agent.commands.arguments import add_overrides, add_trust
from torchrl_agent.commands.train import follow, joined
from torchrl_agent.experiment import Experiment
from torchrl_agent.run_names import find_run
from torchrl_agent.runs.run import train


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A run and changes of its configuration."""
    parser.add_argument("run_folder", metavar="RUN")
    add_overrides(parser)
    add_trust(parser)


def run(parsed: argparse.Namespace) -> int:
    """Go on, with progress on the way and figures in the end."""
    folder = find_run(parsed.run_folder)
    if not (folder / "config.yaml").is_file():
        raise ValueError(
            f"{folder} is not a run (it has no config.yaml): give the path of a run folder, such as runs/NAME."
        )
    experiment = Experiment.load(folder / "config.yaml", *parsed.overrides)
    with joined(experiment):
        return follow(train(experiment, resume=folder), experiment, folder)
