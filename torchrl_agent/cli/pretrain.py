"""``torchrl-agent pretrain``: pre-train one module on rollouts of scripted and random policies."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from torchrl_agent.cli.arguments import add_config
from torchrl_agent.core.text import to_json
from torchrl_agent.experiment import Experiment
from torchrl_agent.models.pretrained import MODULES
from torchrl_agent.pretrain import PretrainConfig, pretrain
from torchrl_agent.replay.games import write_games


def add_pretrain(parser: argparse.ArgumentParser) -> None:
    """Add a module, a configuration, the policies to record and the extent of the training."""
    parser.add_argument("module", help=f"{', '.join(MODULES)}, or the name of one of model.custom_modules")
    add_config(parser)
    defaults = PretrainConfig()
    parser.add_argument("--frames", type=int, default=defaults.frames, help="steps to record, summed over worlds")
    parser.add_argument("--updates", type=int, default=defaults.updates)
    parser.add_argument("--learning-rate", type=float, default=defaults.learning_rate)
    parser.add_argument("--batch-frames", type=int, default=defaults.batch_frames, help="frames of agents per update")
    parser.add_argument("--players", nargs="+", help="policies to record, in worlds of their own, e.g. greedy random")
    parser.add_argument("--disturbed", type=float, default=0.0, help="fraction of steps with random actions instead")
    parser.add_argument("--temperature", type=float, help="of the policy's advantage-weighted regression (it clones)")
    parser.add_argument("--record", help="a new folder for the recorded frames")
    parser.add_argument("--data", nargs="+", help="recordings or saved games (.json) to learn from")
    parser.add_argument("--freeze-perception", action="store_true", help="do not train perception along")
    parser.add_argument("--output", help="a new folder (runs/pretrain-MODULE-<time>)")


def run_pretrain(parsed: argparse.Namespace) -> None:
    """Pre-train and print the report."""
    lists = {"players": parsed.players or [], "data": parsed.data or []}
    overrides = [*parsed.overrides, *(word for words in lists.values() for word in words if "=" in word)]  # after lists
    named: dict[str, Any] = {name: [word for word in words if "=" not in word] or None for name, words in lists.items()}
    experiment = Experiment.load(parsed.config, *overrides)
    if parsed.freeze_perception and "perception" not in experiment.frozen:
        experiment.frozen = [*experiment.frozen, "perception"]
    settings = ("frames", "updates", "learning_rate", "batch_frames", "disturbed", "temperature", "record")
    config = PretrainConfig(**{name: getattr(parsed, name) for name in settings}, **named)
    games = [path for path in config.data or [] if path.endswith(".json")]
    with tempfile.TemporaryDirectory() as place:
        if games:
            recorded = write_games(games, experiment, Path(place) / "games")
            config.data = [*(path for path in config.data or [] if path not in games), str(recorded)]
        report = pretrain(parsed.module, experiment, config, Path(parsed.output) if parsed.output else None)
    print(
        f"{report['folder']}: {report['updates']:,} updates on {report['frames']:,} frames in {report['seconds']:.0f} s"
    )
    print(f"kept: the weights after update {report['best_update']:,}, which did best in the validation worlds")
    for part in ("validation_before", "validation_after", "validation_last", "figures", "world"):
        if part in report:
            print(f"{part}: {to_json(report[part], indent=2)}")
