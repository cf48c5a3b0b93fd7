"""``torchrl-agent train``: train the agent of a configuration."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, closing
from pathlib import Path

from torchrl_agent import ranks
from torchrl_agent.commands.arguments import add_config, print_ways
from torchrl_agent.experiment import Experiment, resolve_device
from torchrl_agent.loop import Iteration
from torchrl_agent.progress import Progress
from torchrl_agent.runs.run import train
from torchrl_agent.runs.stopping import Terminated, terminable
from torchrl_agent.training.checkpoint import checkpoints

HEADLINE = {"return": "rollout/ep_rew_mean", "wins": "rollout/success_rate", "stage": "curriculum/stage"}
"""Metrics that are shown on the way."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A configuration and changes of it."""
    add_config(parser)


def run(parsed: argparse.Namespace) -> int:
    """Train, with progress on the way and figures in the end."""
    experiment = Experiment.load(parsed.config, *parsed.overrides)
    with joined(experiment):
        return follow(train(experiment), experiment)


def joined(experiment: Experiment) -> AbstractContextManager[None]:
    """A context in which all processes train together that torchrun has started, if it has."""
    return ranks.started(experiment.run.rank_timeout, cuda=resolve_device(experiment.device).type == "cuda")


def follow(iterations: Generator[Iteration, None, None], experiment: Experiment, folder: Path | None = None) -> int:
    """Train to the end, or until somebody asks for it; say where the results are and how to go on. Returns the exit
    code.
    """
    before_this = 0 if folder is None else _frames(folder) or 0
    progress = Progress(experiment.total_frames, "frame", done=before_this)
    try:
        with terminable(), closing(iterations), progress:
            for iteration in iterations:
                values = {name: iteration.metrics.get(tag, math.nan) for name, tag in HEADLINE.items()}
                shown = {name: f"{value:,.3g}" for name, value in values.items() if not math.isnan(value)}
                progress.reach(iteration.frames, shown)
    except (KeyboardInterrupt, Terminated) as stop:
        if ranks.rank() == 0:
            print(f"torchrl-agent: {_how_to_go_on(experiment, folder)}", file=sys.stderr)
        return 130 if isinstance(stop, KeyboardInterrupt) else 143
    if ranks.rank() > 0:
        return 0
    folder = folder or _folder(experiment)
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    print(f"{folder}: {summary['frames']:,} frames in {summary['seconds']:.0f} s")
    if "ways" in summary:
        print_ways(summary["ways"])
    return 0


def _folder(experiment: Experiment) -> Path:
    return Path(experiment.run.folder) / str(experiment.run.name)


def _frames(folder: Path) -> int | None:
    """Frames that the run's last checkpoint has seen."""
    found = checkpoints(folder / "checkpoints")
    return int(found[-1].stem.rpartition("_")[2]) if found else None


def _how_to_go_on(experiment: Experiment, folder: Path | None) -> str:
    """A sentence about a run that was stopped, with a command that works."""
    if folder is None and experiment.run.name is None:
        return "stopped before the run had begun."
    folder = folder or _folder(experiment)
    frames = _frames(folder)
    if frames is None:
        return f"stopped before {folder} had a checkpoint: begin again; its name is free."
    place = shlex.quote(str(folder))
    if frames >= experiment.total_frames:
        return f"stopped after the last of {frames:,} frames; judge the agent with 'torchrl-agent evaluate {place}'."
    return f"stopped, with a checkpoint at {frames:,} frames; go on with 'torchrl-agent resume {place}'."
