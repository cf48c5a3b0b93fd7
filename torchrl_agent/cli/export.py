"""``torchrl-agent export`` and ``convert``: agents as files of PyTorch, ONNX, Stable-Baselines3 or the Arena's first
trainer.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from torchrl_agent.cli.arguments import add_run, run_of
from torchrl_agent.convert import from_reference, from_sb3, to_reference, to_sb3
from torchrl_agent.export import export_run
from torchrl_agent.modules.networks import ACTIVATIONS


def add_export(parser: argparse.ArgumentParser) -> None:
    """Add a run, the module to export and the format."""
    add_run(parser)
    parser.add_argument(
        "--module",
        default="policy",
        help="perception, world_model, social_model, manager, a module of your own, policy, all, or world as a program "
        "(policy)",
    )
    parser.add_argument(
        "--format",
        default="torch_export",
        help="torch_export, onnx with the extra 'export', program for a browser, or run: a folder to share",
    )
    parser.add_argument("--output", help="the file, or the folder of the run or of the files of 'all' (in RUN)")
    parser.add_argument("--ablation", action="store_true", help="the policy with a further input: a factor per module")


def run_export(parsed: argparse.Namespace) -> None:
    """Export, and print the paths of the files."""
    where = (run_of(parsed), parsed.module, parsed.format, parsed.output, parsed.checkpoint)
    paths = export_run(*where, ablation=parsed.ablation)
    print("\n".join(str(path) for path in paths))


# --- conversion ------------------------------------------------------------------------------------------------------


def add_convert(verb: argparse.ArgumentParser) -> None:
    """Add the libraries and the directions of conversion."""
    names = "sb3|to-sb3|reference|to-reference"
    ways = verb.add_subparsers(dest="way", required=True, metavar=names, parser_class=type(verb))
    statistics: dict[str, Any] = {"dest": "statistics", "type": Path, "metavar": "FILE"}
    way = ways.add_parser("sb3", help="make a run of a Stable-Baselines3 model")
    way.add_argument("model", metavar="MODEL.zip", type=Path)
    way.add_argument("--vecnormalize", help="its statistics: .pkl (with --trust) or .json", **statistics)
    _add_world(way)
    way.add_argument("--activation", choices=tuple(ACTIVATIONS), help="where the model does not say")
    way.set_defaults(convert=from_sb3)
    way = ways.add_parser("to-sb3", help="write a run's agent as a Stable-Baselines3 model of the same algorithm")
    add_run(way)
    way.add_argument("output", metavar="OUTPUT.zip", type=Path)
    way.set_defaults(convert=to_sb3)
    way = ways.add_parser("reference", help="make a run of an ActorCritic that the Arena's first trainer saved")
    way.add_argument("model", metavar="MODEL.pt", type=Path)
    way.add_argument("--statistics", help="its .json (MODEL_normalization.json)", **statistics)
    _add_world(way)
    way.add_argument("--activation", choices=tuple(ACTIVATIONS), default="silu", help="the file does not say (silu)")
    way.set_defaults(convert=from_reference)
    way = ways.add_parser("to-reference", help="write a run's agent as such a file")
    add_run(way)
    way.add_argument("output", metavar="OUTPUT.pt", type=Path)
    way.set_defaults(convert=to_reference)


def _add_world(way: argparse.ArgumentParser) -> None:
    """Add the world that a model was trained in."""
    way.add_argument("--trust", action="store_true", help="run code of others: that of a .pkl, or of a configuration")
    way.add_argument("--config", default="arena_long", help="configuration of the world it was trained in (arena_long)")
    way.add_argument("--run-name", metavar="NAME", help="name of the run's folder")
    way.add_argument("overrides", nargs="*", default=[], metavar="KEY=VALUE", help="changes of the configuration")


def run_convert(parsed: argparse.Namespace) -> None:
    """Convert, then print the assumptions and the paths of the results."""
    if parsed.way.startswith("to-"):
        paths, notes = parsed.convert(run_of(parsed), parsed.output, parsed.checkpoint)
    else:
        where = (parsed.config, parsed.overrides, parsed.run_name, parsed.statistics)
        folder, notes = parsed.convert(parsed.model, *where, activation=parsed.activation, trust=parsed.trust)
        paths = [folder]
    for note in notes:
        print(f"note: {note}.")
    for path in paths:
        print(path)
