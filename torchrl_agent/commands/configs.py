"""``torchrl-agent configs``: list configurations, or show one in full."""

from __future__ import annotations

import argparse

from torchrl_agent.commands.arguments import add_overrides, add_trust
from torchrl_agent.composition import config_names
from torchrl_agent.experiment import Experiment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A configuration, or none for the list."""
    parser.add_argument("config", nargs="?")
    add_overrides(parser)
    add_trust(parser)


def run(parsed: argparse.Namespace) -> None:
    """Print names, or every key with its value."""
    if parsed.config is None:
        print("\n".join(config_names()))
    else:
        print(Experiment.load(parsed.config, *parsed.overrides).to_yaml(), end="")
