"""Runs that are made of models of other trainers, and the files that are written of runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from torchrl_agent.algorithms.algorithm import Algorithm
from torchrl_agent.convert.settings import CLIP
from torchrl_agent.core.checkpoint import find_checkpoint, load_checkpoint, write_json, write_output
from torchrl_agent.core.run_names import find_run
from torchrl_agent.experiment import Experiment
from torchrl_agent.experiment.config_files import write_config
from torchrl_agent.models.agent import Agent
from torchrl_agent.modules.specs import action_bounds, action_heads, observation_shapes
from torchrl_agent.runs.folder import new_run, run_folder
from torchrl_agent.runs.load import load_agent
from torchrl_agent.runs.locks import Locks
from torchrl_agent.runs.writer import save_learner
from torchrl_agent.training.learner import Learner


def as_overrides(settings: Mapping[str, Any], kind: type[Algorithm]) -> list[str]:
    """Return a model's settings as overrides, without hyper-parameters that the algorithm lacks."""
    known = {f"algorithm.{each.name}" for each in dataclasses.fields(kind.config_class)}
    words = {"None": "null", "True": "true", "False": "false"}
    return [
        f"{name}={words.get(str(value), value)}"
        for name, value in settings.items()
        if not name.startswith("algorithm.") or ".".join(name.split(".")[:2]) in known
    ]


def check_overrides(overrides: Sequence[str], model: Path) -> None:
    """Raise ValueError for an override that would change the networks."""
    for text in overrides:
        name = text.lstrip("+~").split("=")[0]
        if name.split(".")[0] in ("model", "pretrained") and name != CLIP:
            raise ValueError(f"{text} was asked for, but {model} decides what the model is: leave it out.")


def check_world(
    model: Path, seen: Mapping[str, Sequence[int]], acts: str, experiment: Experiment, config: Any
) -> dict[str, torch.Size]:
    """Return the shapes of the world's observations.

    Args:
        seen: shapes of its observations by name; ``""`` is the name of one that is the only one.
        acts: its actions, such as ``[5] actions`` or ``2 numbers``.
        config: the configuration of it, for the message.

    Raises:
        ValueError: the world's observations or actions are not the model's.
    """
    world = experiment.make_world(evaluation=True, num_envs=1)
    shapes, bounds = observation_shapes(world), action_bounds(world)
    taken = f"{action_heads(world)} actions" if bounds is None else f"{len(bounds[0])} numbers"
    only, alike = list(seen) == [""], {name: tuple(shape) for name, shape in shapes.items()} == seen
    if only:  # whatever its name
        alike = [tuple(shape) for shape in shapes.values()] == list(seen.values())
    if not alike or taken != acts:
        shown = ", ".join(f"{key} {list(shape)}" for key, shape in shapes.items())
        wanted = ", ".join(f"{key} {list(shape)}" for key, shape in seen.items()).strip()
        wanted = f"{seen[''][0]} numbers" if only and len(seen[""]) == 1 else wanted
        raise ValueError(
            f"{model} sees {wanted} and acts by {acts}, but the world of configuration {config} shows {shown} "
            f"and takes {taken}: name the world it was trained in with --config and overrides."
        )
    return shapes


def write_run(learner: Learner, origin: dict[str, str], notes: list[str]) -> Path:
    """Write the run's folder: configuration, checkpoint and origin."""
    experiment = learner.experiment
    with Locks() as locks:
        folder = new_run(experiment, locks)
        write_config(experiment, folder)
        save_learner(learner, {}, folder)
        write_json(folder / "converted.json", {**origin, "notes": notes})
    return run_folder(experiment)


def open_run(run: Path | str, which: str, trust: bool) -> tuple[Path, Experiment, Agent, dict[str, Any]]:
    """Return the path of a run's checkpoint, its experiment and agent on the CPU, and its content."""
    checkpoint = find_checkpoint(find_run(run), which)
    experiment, agent = load_agent(checkpoint, "cpu", trust=trust)
    return checkpoint, experiment, agent, load_checkpoint(checkpoint)


def write_files(files: Mapping[Path, Callable[[Path], object]]) -> list[Path]:
    """Write files, each by a function of its path; return their paths.

    Raises:
        ValueError: a file cannot be written.
    """
    return [write_output(path, save, f"OUTPUT{path.suffix}") for path, save in files.items()]
