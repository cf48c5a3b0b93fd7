"""Export of a run folder to share: the configuration, the agent alone, its figures and its model card."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

from torchrl_agent.core.checkpoint import find_checkpoint, load_checkpoint, read_json, save_checkpoint, write_json
from torchrl_agent.experiment import Experiment, RunConfig
from torchrl_agent.experiment.config_files import write_config
from torchrl_agent.experiment.judging import configured_way, evaluate_ways
from torchrl_agent.models.pretrained import PretrainedConfig
from torchrl_agent.population.config import LeagueConfig, PopulationConfig
from torchrl_agent.runs.folder import SUMMARY
from torchrl_agent.runs.load import load_agent
from torchrl_agent.runs.members import FOLDER as MEMBERS
from torchrl_agent.runs.model_card import write_model_card
from torchrl_agent.transforms import read_statistics

FORMAT = "run"
COPIED = ("code.json", "metrics.csv", "reference.json")
"""Files of a run that are copied unchanged."""
REPORTED = ("config", "seed", "device", "ended", "seconds", "metrics", "origin")
"""Keys that are copied from a run's summary."""


def write_run(run: Path, output: Path | str | None, checkpoint: str = "last", trust: bool = False) -> Path:
    """Write a new run folder that holds an agent without the state that only training needs: optimizer, worlds, replay
    buffer, other members, files of pre-trained modules. It works everywhere as a run, except that it cannot be resumed.

    The agent is evaluated in both ways of acting, so that the figures are those of the weights that are written.

    Args:
        run: a run folder, or a checkpoint file inside one.
        checkpoint: ``last`` or ``best``.
        trust: see :func:`~torchrl_agent.runs.load.load_agent`.

    Raises:
        ValueError: no folder is given, it exists already, or cannot be made; the run has not ended.
    """
    if output is None:
        raise ValueError(f"format {FORMAT} writes a new folder: give it with --output.")
    output = Path(output)
    if output.exists():
        raise ValueError(f"{output} exists already: give a new folder with --output.")
    experiment, agent = load_agent(run, "cpu", checkpoint, trust=trust)
    path = find_checkpoint(run, checkpoint)
    state = load_checkpoint(path)
    source = path.parent.parent
    past = _summary(source)
    ways = evaluate_ways(experiment, agent)
    try:
        (output / "checkpoints").mkdir(parents=True)
    except OSError as error:
        raise ValueError(f"{output} cannot be made ({error.strerror}): give another folder with --output.") from None
    alone = _alone(experiment)
    save_checkpoint(
        output / "checkpoints",
        state["frames"],
        _agent_state(state),
        read_statistics(path.with_suffix(".normalization.json")),
        alone.hash(),
        score=None,
        keep=1,
    )
    write_config(alone, output)
    for name in COPIED:
        if (source / name).is_file():
            shutil.copyfile(source / name, output / name)
    figures = {"evaluation": ways[configured_way(experiment)], "ways": ways}
    summary = {"origin": _origin(path, experiment, state), **past, "frames": state["frames"], **figures}
    write_json(output / SUMMARY, summary)
    write_model_card(output, alone, summary)
    return output


def _alone(experiment: Experiment) -> Experiment:
    """Return the experiment of a single agent with all its weights: any device, no population, no pre-trained files."""
    return dataclasses.replace(
        experiment,
        device="auto",
        population=PopulationConfig(),
        league=LeagueConfig(),
        pretrained=PretrainedConfig(),
        frozen=[],
        run=RunConfig(),
    )


def _agent_state(state: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a checkpoint for acting and explaining: weights, statistics of observations and rewards."""
    algorithm = state["algorithm"]
    scaler = {name: value for name, value in algorithm["reward_scaler"].items() if name != "returns"}
    return {
        "agent": state["agent"],
        "algorithm": {"name": algorithm["name"], "reward_scaler": scaler},
        "frames": state["frames"],
    }


def _summary(source: Path) -> dict[str, Any]:
    """Return the entries of the run's summary about its training."""
    path = source / SUMMARY
    if not path.is_file():
        raise ValueError(f"{source} has no summary.json yet: let its training end, or stop it, before you share it.")
    known = read_json(path)
    if not isinstance(known, dict):
        raise ValueError(
            f"{path} is damaged: judge the run anew with 'torchrl-agent evaluate {source}', or share another."
        )
    return {name: known[name] for name in REPORTED if name in known}


def _origin(path: Path, experiment: Experiment, state: dict[str, Any]) -> dict[str, Any]:
    """Return the agent's origin: names of its run and checkpoint, and its pre-trained and frozen modules."""
    folder = path.parent.parent.resolve()
    population = f"{folder.parent.parent.name}/{MEMBERS}/" if folder.parent.name == MEMBERS else ""
    return {
        "run": population + folder.name,
        "checkpoint": path.name,
        "config_hash": state["metadata"]["config_hash"],
        "pretrained": list(experiment.pretrained.paths()),
        "frozen": list(experiment.frozen),
    }
