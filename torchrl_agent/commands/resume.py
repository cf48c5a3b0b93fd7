"""``torchrl-agent resume``: continue a run from its last checkpoint."""

from __future__ import annotations

import argparse
from operator import attrgetter

from torchrl_agent.commands.arguments import add_overrides, add_short, add_trust
from torchrl_agent.commands.train import follow, joined
from torchrl_agent.experiment import Experiment
from torchrl_agent.run_names import find_run
from torchrl_agent.runs.run import train

WITHOUT_EFFECT = {
    "seed": "whose random numbers go on",
    "pretrained": "whose modules have learnt since",
    "tuned": "whose hyper-parameters are under algorithm",
    "run.name": "which stays in its folder",
    "run.folder": "which stays in its folder",
    "run.resume": "as resume is what was asked for",
}
"""Settings that decide only how a run begins, and why."""


def add_resume(parser: argparse.ArgumentParser) -> None:
    """A run and changes of its configuration."""
    parser.add_argument("run_folder", metavar="RUN")
    add_overrides(parser)
    add_trust(parser)
    add_short(parser, "device", "DEVICE")


def run_resume(parsed: argparse.Namespace) -> int:
    """Go on, with progress on the way and figures in the end."""
    folder = find_run(parsed.run_folder)
    if not (folder / "config.yaml").is_file():
        raise ValueError(
            f"{folder} is not a run (it has no config.yaml): give the path of a run folder, such as runs/NAME."
        )
    experiment = Experiment.load(folder / "config.yaml", *parsed.overrides)
    _check_changes(Experiment.load(folder / "config.yaml"), experiment)
    with joined(experiment):
        return follow(train(experiment, resume=folder), experiment, folder)


def _check_changes(before: Experiment, now: Experiment) -> None:
    """Raise ValueError if a change of a run's configuration would have no effect as it goes on."""
    for name, reason in WITHOUT_EFFECT.items():
        if attrgetter(name)(before) != attrgetter(name)(now):
            raise ValueError(
                f"{name} has no effect on a run that goes on, {reason}: leave it out, or begin another run with it."
            )
