"""``torchrl-agent roofline``: compute what a GPU could do at best, without one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tqdm import tqdm

from torchrl_agent.benchmarks.results import put_result
from torchrl_agent.commands.arguments import add_trust
from torchrl_agent.profiling.pretended_gpu import require_triton
from torchrl_agent.profiling.roofline import CONFIGS, MINIBATCH, bounds, table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Configurations, and what of them."""
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="CONFIG|KEY=VALUE",
        help=f"configurations ({' '.join(CONFIGS)}), and changes of all of them",
    )
    add_trust(parser)
    parser.add_argument("--world-only", action="store_true", help="leave policy and training out")
    parser.add_argument(
        "--no-assembler", action="store_true", help="leave registers and spills out, which take longest"
    )
    parser.add_argument(
        "--frames",
        type=int,
        default=MINIBATCH,
        help="frames that are lowered (default: %(default)s); less for large agents",
    )
    parser.add_argument(
        "--json", metavar="FILE", help="also put the rows into this file, in place of those of their name"
    )


def run(parsed: argparse.Namespace) -> None:
    """Print a table for each configuration."""
    require_triton()
    overrides = [word for word in parsed.overrides if "=" in word]
    configs = [word for word in parsed.overrides if "=" not in word] or list(CONFIGS)
    for config in tqdm(configs, unit="configuration", disable=not sys.stderr.isatty()):
        row = bounds(config, overrides, parsed.world_only, not parsed.no_assembler, parsed.frames)
        print(table(row), flush=True)
        if parsed.json is not None:
            put_result(Path(parsed.json), row)
