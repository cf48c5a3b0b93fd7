"""``torchrl-agent cache``: the folder of compiled code."""

from __future__ import annotations

import argparse

from torchrl_agent.core.compile_cache import cache_folder, clear, files_of


def add_cache(parser: argparse.ArgumentParser) -> None:
    """Add the switch to clear it."""
    parser.add_argument(
        "--clear", action="store_true", help="delete all compiled code; it is compiled anew when needed"
    )


def run_cache(parsed: argparse.Namespace) -> None:
    """Print folder and size, or clear it."""
    files = files_of(cache_folder())
    size = sum(each for _, each, _ in files) / 2**20
    if parsed.clear:
        clear()
    print(f"{cache_folder()}: {len(files)} files, {size:,.0f} MiB{' deleted' if parsed.clear else ''}")
