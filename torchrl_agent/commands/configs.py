"""``torchrl-agent configs``: list configurations, show one in full, or write the page of all keys."""

from __future__ import annotations

import argparse

from torchrl_agent.commands.arguments import add_overrides, add_trust
from torchrl_agent.composition import config_names
from torchrl_agent.experiment import Experiment
from torchrl_agent.reference import explained, page, summary
from torchrl_agent.tables import aligned


def add_configs(parser: argparse.ArgumentParser) -> None:
    """A configuration, or none for the list."""
    parser.add_argument("config", nargs="?")
    add_overrides(parser)
    add_trust(parser)
    parser.add_argument("--page", action="store_true", help="print docs/configuration.md, the page of all keys")


def run_configs(parsed: argparse.Namespace) -> None:
    """Print what each configuration is, or every key with its value and meaning."""
    if parsed.page:
        print(page(), end="")
    elif parsed.config is None:
        print("\n".join(aligned([[name, summary(name)] for name in config_names()], words=2)))
    else:
        print(explained(Experiment.load(parsed.config, *parsed.overrides)), end="")
