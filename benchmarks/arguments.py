"""Arguments that several studies share."""

from __future__ import annotations

import argparse

from torchrl_agent.cli.arguments import add_overrides


def add_config(parser: argparse.ArgumentParser, default: str, kind: str) -> None:
    """Add a configuration of some kind, and changes of it."""
    parser.add_argument("config", nargs="?", default=default, help=f"{kind} ({default})")
    add_overrides(parser)
