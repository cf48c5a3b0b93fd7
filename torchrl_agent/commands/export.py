"""``torchrl-agent export``: write a run's agent, or one module, for PyTorch or ONNX runtimes, or to share."""

from __future__ import annotations

import argparse

from torchrl_agent.commands.arguments import add_run, run_of
from torchrl_agent.export import export_run


def add_export(parser: argparse.ArgumentParser) -> None:
    """A run, what of it, and as what."""
    add_run(parser)
    parser.add_argument(
        "--module",
        default="policy",
        help="perception, world_model, social_model, policy, or all (policy)",
    )
    parser.add_argument(
        "--format", default="torch_export", help="torch_export, onnx with the extra 'export', or run: a folder to share"
    )
    parser.add_argument("--output", help="the file, or the folder of the run or of the files of 'all' (in RUN)")


def run_export(parsed: argparse.Namespace) -> None:
    """Export and print the files."""
    paths = export_run(run_of(parsed), parsed.module, parsed.format, parsed.output, parsed.checkpoint)
    print("\n".join(str(path) for path in paths))
