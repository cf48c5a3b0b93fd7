"""``torchrl-agent doctor``: check versions, device and compiler, and say what to do."""

from __future__ import annotations

import argparse

from torchrl_agent.doctor import diagnose, report


def add_doctor(parser: argparse.ArgumentParser) -> None:
    """How deep to look."""
    parser.add_argument("--deep", action="store_true", help="also compile a small function")


def run_doctor(parsed: argparse.Namespace) -> int:
    """Print the report; the exit code is its verdict."""
    checks = diagnose(deep=parsed.deep)
    print(report(checks))
    return 0 if all(check.ok for check in checks) else 2
