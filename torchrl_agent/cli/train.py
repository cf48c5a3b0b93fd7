"""``torchrl-agent train`` and ``resume``: train one agent, or one for every combination of values; resume a run."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, closing
from operator import attrgetter
from pathlib import Path

import torch

from torchrl_agent.cli.arguments import RUN_NAME, add_config, add_overrides, add_short, add_trust, print_ways
from torchrl_agent.core import ranks
from torchrl_agent.core.checkpoint import checkpoints, frames_of
from torchrl_agent.core.devices import resolve_device
from torchrl_agent.core.errors import TrainingError
from torchrl_agent.core.progress import Progress, log
from torchrl_agent.core.run_names import find_run, suggest_run
from torchrl_agent.experiment import Experiment
from torchrl_agent.experiment.compose import combinations, trust_file
from torchrl_agent.loop import Iteration
from torchrl_agent.optimization.compile_cache import shrink
from torchrl_agent.runs.folder import SUMMARY, reserve_names, run_folder, run_to_go_on
from torchrl_agent.runs.run import train
from torchrl_agent.runs.stopping import Terminated, terminable

HEADLINE = {"return": "rollout/ep_rew_mean", "wins": "rollout/success_rate", "stage": "curriculum/stage"}
"""Metrics that are shown during training."""


def add_train(parser: argparse.ArgumentParser) -> None:
    """Add a configuration and changes of it."""
    add_config(parser)
    add_short(parser, RUN_NAME, "NAME")
    parser.add_argument(
        "-m", "--multirun", action="store_true", help="train every combination of values such as seed=0,1,2"
    )
    parser.add_argument("--print-config", action="store_true", help="print the whole configuration, and do not train")


def run_train(parsed: argparse.Namespace) -> int:
    """Train, with progress during the training and figures at its end."""
    if parsed.trust:
        trust_file(parsed.config)
    if parsed.multirun:
        return sweep(parsed.config, parsed.overrides)
    experiment = Experiment.load(parsed.config, *parsed.overrides)
    if parsed.print_config:
        print(experiment.to_yaml(), end="")
        return 0
    with joined(experiment):
        return follow(train(experiment), experiment)


def sweep(config: str, overrides: Sequence[str]) -> int:
    """Train every combination of values, one after another, each in a run folder of its own.

    If a training fails, its error is printed and the others still run; a signal ends them all. Returns the exit code.

    Raises:
        ValueError: one of the configurations cannot be loaded; nothing has been trained then.
    """
    turns = combinations(overrides)
    experiments = [Experiment.load(config, *each) for each in turns]
    for experiment in experiments:
        if experiment.run.resume == "auto":
            run_to_go_on(experiment)  # refuses a run without a name, which would get a new one each time
    code = 0
    with joined(experiments[0]):
        name_apart(experiments)
        for number, (experiment, turn) in enumerate(zip(experiments, turns, strict=True), 1):
            name = f"{number} of {len(turns)}"
            log.info("%s: %s", name, " ".join(word for word in turn if word not in overrides))
            torch.compiler.reset()  # each training compiles as if it were the only one, however many there are
            try:
                stopped = follow(train(experiment), experiment, name=name)
            except (ValueError, TrainingError) as error:
                print(f"torchrl-agent: {name}: {error}", file=sys.stderr)
                code = 2
                continue
            if stopped:
                return stopped
    return code


def name_apart(experiments: Sequence[Experiment]) -> None:
    """Number the names of runs, unless all differ; runs without a name get one."""
    unnamed = any(experiment.run.name is None for experiment in experiments)
    default = ranks.first(lambda: reserve_names(experiments[0])) if unnamed else ""
    names = [experiment.run.name or default for experiment in experiments]
    if len(set(names)) < len(names):
        width = len(str(len(names)))
        names = [f"{name}-{number:0{width}d}" for number, name in enumerate(names, 1)]
    for experiment, name in zip(experiments, names, strict=True):
        experiment.run.name = name


def joined(experiment: Experiment) -> AbstractContextManager[None]:
    """Return a context in which all processes that torchrun has started, if any, train together."""
    return ranks.started(experiment.run.rank_timeout, cuda=resolve_device(experiment.device).type == "cuda")


def follow(
    iterations: Generator[Iteration, None, None], experiment: Experiment, folder: Path | None = None, name: str = ""
) -> int:
    """Train to the end, or until a signal stops it; print the path of the results and the command to resume. Returns
    the exit code.

    Args:
        folder: folder of a resumed run; None for a new one.
        name: name of this training, where it is one of several.
    """
    shrink()  # the code that earlier trainings have left
    here = Path.cwd()  # a world may change it
    before_this = 0 if folder is None else _frames(folder) or 0
    progress = Progress(experiment.total_frames, "frame", name, done=before_this)
    try:
        with terminable(), closing(iterations), progress:
            if experiment.acceleration.step or experiment.acceleration.update:
                progress.say("compiling: the first iteration takes longer")
            for iteration in iterations:
                values = {name: iteration.known.get(tag, math.nan) for name, tag in HEADLINE.items()}
                shown = {name: f"{value:,.3g}" for name, value in values.items() if not math.isnan(value)}
                progress.reach(iteration.frames, shown)
    except (KeyboardInterrupt, Terminated) as stop:
        if ranks.rank() == 0:
            print(f"torchrl-agent: {_how_to_go_on(experiment, folder, here)}", file=sys.stderr)
        return 130 if isinstance(stop, KeyboardInterrupt) else 143
    if ranks.rank() > 0:
        return 0
    folder = folder or run_folder(experiment)
    summary = json.loads((here / folder / SUMMARY).read_text(encoding="utf-8"))
    print(f"{folder}: {summary['frames']:,} frames in {summary['seconds']:.0f} s")
    if "ways" in summary:
        print_ways(summary["ways"])
    return 0


def _frames(folder: Path) -> int | None:
    """Return the number of frames of the run's last checkpoint; None without one."""
    found = checkpoints(folder / "checkpoints")
    return frames_of(found[-1]) if found else None


def _how_to_go_on(experiment: Experiment, folder: Path | None, here: Path) -> str:
    """Return a sentence about a stopped run, with the command to resume it."""
    if folder is None and experiment.run.name is None:
        return "stopped before the run had begun."
    folder = folder or run_folder(experiment)
    frames = _frames(here / folder)
    if frames is None:
        return f"stopped before {folder} had a checkpoint: begin again; its name is free."
    place = shlex.quote(str(folder))
    if frames >= experiment.total_frames:
        return f"stopped after the last of {frames:,} frames; 'torchrl-agent resume {place}' judges the agent."
    return f"stopped, with a checkpoint at {frames:,} frames; go on with 'torchrl-agent resume {place}'."


# --- resume ----------------------------------------------------------------------------------------------------------

WITHOUT_EFFECT = {
    "seed": "whose random numbers go on",
    "pretrained": "whose modules have learned since",
    "tuned": "whose hyper-parameters are under algorithm",
    "run.name": "which stays in its folder",
    "run.folder": "which stays in its folder",
    "run.resume": "as resume is what was asked for",
}
"""Settings that have an effect only when a run begins, with the reasons."""


def add_resume(parser: argparse.ArgumentParser) -> None:
    """Add a run and changes of its configuration."""
    parser.add_argument("run_folder", metavar="RUN")
    add_overrides(parser)
    add_trust(parser)
    add_short(parser, "device", "DEVICE")


def run_resume(parsed: argparse.Namespace) -> int:
    """Resume a run, with progress during the training and figures at its end."""
    folder = find_run(parsed.run_folder)
    if not (folder / "config.yaml").is_file():
        raise ValueError(
            f"{folder} is not a run (it has no config.yaml){suggest_run(folder)}: give the path of a run folder, such "
            "as runs/NAME."
        )
    experiment = Experiment.load(folder / "config.yaml", *parsed.overrides)
    _check_changes(Experiment.load(folder / "config.yaml"), experiment)
    with joined(experiment):
        return follow(train(experiment, resume=folder), experiment, folder)


def _check_changes(before: Experiment, now: Experiment) -> None:
    """Raise ValueError if a change of a run's configuration would have no effect when it is resumed."""
    for name, reason in WITHOUT_EFFECT.items():
        if attrgetter(name)(before) != attrgetter(name)(now):
            raise ValueError(
                f"{name} has no effect on a run that goes on, {reason}: leave it out, or begin another run with it."
            )
