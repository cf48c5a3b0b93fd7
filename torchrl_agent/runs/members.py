"""The members of a population as runs of their own, and tables of their fitness and descent.

``members/03/`` is an ordinary run folder, so that every function and command for runs takes a member, too.
"""

from __future__ import annotations

import copy
import math
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from torchrl_agent.core.checkpoint import (
    TRAINING_RETURN,
    checkpoints,
    forget_checkpoint,
    frames_of,
    load_checkpoint,
    save_checkpoint,
    write_atomically,
    write_json,
    write_text,
)
from torchrl_agent.core.tables import as_csv
from torchrl_agent.core.text import did_you_mean
from torchrl_agent.experiment import Experiment
from torchrl_agent.experiment.config_files import write_config
from torchrl_agent.population.config import NEUTRAL, RATING, LeagueConfig, PopulationConfig
from torchrl_agent.population.league_learner import LeagueLearner
from torchrl_agent.population.learner import PopulationLearner
from torchrl_agent.population.seats import SEATS
from torchrl_agent.runs.lineage import PICTURE, plot_lineage
from torchrl_agent.runs.locks import Locks, clean
from torchrl_agent.runs.metrics import MetricsWriter

FOLDER = "members"
BEST = "best"
POPULATION = "population"
"""Mark of a member's checkpoint that was written with its population's."""


class MembersWriter:
    """Writer of each member's metrics, checkpoints and configuration, and of the population's tables.

    Nothing is written before :meth:`begin`.

    Args:
        resumed: True if it goes on from a checkpoint in the folder.

    Raises:
        ValueError: a member has gone on alone, or its metrics are damaged.
    """

    def __init__(self, folder: Path, learner: PopulationLearner, resumed: bool) -> None:
        self.folder, self.learner = folder, learner
        self._folders = [member_folder(folder, index) for index in range(learner.members)]
        run, frames = learner.experiment.run, learner.frames if resumed else None
        self._writers = [
            MetricsWriter(place, run.tensorboard, frames, record_host=run.record_host) for place in self._folders
        ]
        self._newer = [path for place in self._folders if resumed for path in newer_checkpoints(place, learner.frames)]
        self._steps = 0

    def begin(self, locks: Locks) -> None:
        """Make and hold the members' folders, and delete checkpoints in them that are newer than the population."""
        for path in self._newer:
            forget_checkpoint(path)
        for place in self._folders:
            (place / "checkpoints").mkdir(parents=True, exist_ok=True)
            locks.hold(place)
            clean(place)
            (place / "summary.json").unlink(missing_ok=True)
            if not (place / "code.json").is_file():
                write_atomically(place / "code.json", partial(shutil.copyfile, self.folder / "code.json"))
        self._describe()

    def write(self) -> None:
        """Write each member's metrics of the last iteration, and the tables after an evolution step."""
        for writer, metrics in zip(self._writers, self.learner.member_metrics, strict=True):
            writer.write(self.learner.frames, metrics)
        steps = self.learner.evolution.steps
        if len(steps) != self._steps:
            self._steps = len(steps)
            tables = {"members.csv": member_rows(self.learner), "lineage.csv": lineage_rows(self.learner)}
            for name, rows in tables.items():
                if rows:
                    write_text(self.folder / name, as_csv(rows, list(rows[0])))

    def save(self) -> None:
        """Write a checkpoint of each member, before the population's, without which they do not count."""
        self._describe()
        for index, place in enumerate(self._folders):
            score = self.learner.member_metrics[index].get(TRAINING_RETURN, math.nan)
            experiment = member_experiment(self.learner, index)
            save_checkpoint(
                place / "checkpoints",
                self.learner.frames,
                self.learner.member_state(index),
                self.learner.member_statistics(index),
                experiment.hash(),
                None if math.isnan(score) else score,
                experiment.run.keep_checkpoints,
                marks={POPULATION: True},
            )

    def summarize(self, summary: dict[str, Any]) -> None:
        """Write a summary of each member: the population's, with its own metrics, without the best one's results."""
        for index, (place, metrics) in enumerate(zip(self._folders, self.learner.member_metrics, strict=True)):
            known = {name: None if math.isnan(value) else value for name, value in metrics.items()}
            shared = {name: value for name, value in summary.items() if name not in ("evaluation", "ways", "film")}
            seed = member_experiment(self.learner, index).seed
            write_json(place / "summary.json", {**shared, "seed": seed, "metrics": known})

    def describe(self) -> dict[str, Any]:
        """Present state of a population, as plain values: each member's strength (``rating`` in a league, else its
        latest episodes' ``return``; None if unknown) and genes, and the numbers of evolution steps and of replaced
        members.
        """
        learner, evolution = self.learner, self.learner.evolution
        name, tag = (RATING, f"league/{RATING}") if isinstance(learner, LeagueLearner) else ("return", TRAINING_RETURN)
        members = []
        for index, metrics in enumerate(learner.member_metrics):
            strength = metrics.get(tag, math.nan)
            known = {name: None if math.isnan(strength) else strength}
            members.append(known | {gene: float(values[index]) for gene, values in evolution.genes.items()})
        return {"members": members, "evolution_steps": len(evolution.steps), "replaced": evolution.births}

    def picture(self) -> None:
        """Draw the lineage, if there was an evolution step."""
        if self.learner.evolution.steps:
            plot_lineage(self.folder, self.folder / PICTURE)

    def close(self) -> None:
        """Flush everything."""
        for writer in self._writers:
            writer.close()

    def _describe(self) -> None:
        """Write the present configuration of each member."""
        for index, place in enumerate(self._folders):
            write_config(member_experiment(self.learner, index), place)


def newer_checkpoints(place: Path, frames: int) -> list[Path]:
    """A member's checkpoints beyond the population's frames, written by a population that was stopped before its own.

    Raises:
        ValueError: the member wrote them, as it has gone on alone: they would be lost.
    """
    newer = [path for path in checkpoints(place / "checkpoints") if frames_of(path) > frames]
    if not all(load_checkpoint(path)["metadata"].get(POPULATION) for path in newer):
        raise ValueError(
            f"{place} has gone on alone, to {newer[-1].name}, so the population cannot go on: move that folder away "
            "first."
        )
    return newer


def member_folder(run: Path, member: int) -> Path:
    """The folder of a member of a population's run."""
    return run / FOLDER / f"{member:02d}"


def member_folders(run: Path) -> list[Path]:
    """The folders of the members of a run, by their numbers; none if it is no population's."""
    return sorted((run / FOLDER).glob("[0-9]*"))


def find_member(run: Path, member: int | str) -> Path:
    """The folder of an existing member, by its number, or that of the run itself for ``best``: it holds that agent.

    Raises:
        ValueError: the run is no population's, or has no such member.
    """
    known = member_folders(run)
    if not known:
        raise ValueError(f"{run} is not the run of a population, it has no {FOLDER}: leave --member out.")
    if member == BEST:
        return run
    if str(member).isdecimal() and (folder := member_folder(run, int(member))) in known:
        return folder
    raise ValueError(
        f"{run} has no member {member}{did_you_mean(member, [BEST])}: use best, or a number from 0 to {len(known) - 1}."
    )


def member_experiment(learner: PopulationLearner, member: int) -> Experiment:
    """The configuration of one member, with the numbers that it has now."""
    experiment = copy.deepcopy(learner.experiment)
    experiment.seed += member
    experiment.population = PopulationConfig()
    if isinstance(learner, LeagueLearner):  # alone it learns from both seats
        experiment.league = LeagueConfig()
        experiment.world["num_envs"] = learner.seats.members.shape[1] // SEATS
    config = OmegaConf.structured(experiment)
    for name, values in learner.evolution.genes.items():
        if name == NEUTRAL:
            continue
        OmegaConf.update(config, name, float(values[member]))
    result = OmegaConf.to_object(config)
    assert isinstance(result, Experiment)
    return result


def member_rows(learner: PopulationLearner) -> list[dict[str, Any]]:
    """Fitness and genes of every member at every evolution step."""
    return [
        {"frames": step.frames, "member": index, "fitness": float(step.fitness[index])}
        | {name: float(values[index]) for name, values in step.before.items()}
        for step in learner.evolution.steps
        for index in range(learner.members)
    ]


def lineage_rows(learner: PopulationLearner) -> list[dict[str, Any]]:
    """Every replacement: the child, its parents, their fitness, and its genes beside the parents'."""
    rows: list[dict[str, Any]] = []
    for step in learner.evolution.steps:
        for child in step.children.nonzero().flatten().tolist():
            people = dict(
                zip(("child", "parent", "second_parent"), (child, *step.parents[child].tolist()), strict=True)
            )
            row: dict[str, Any] = {"frames": step.frames, **people}
            row |= {f"{who}_fitness": float(step.fitness[index]) for who, index in people.items()}
            for name in step.after:
                parents = {who: index for who, index in people.items() if who != "child"}
                row |= {f"{name} ({who})": float(step.before[name][index]) for who, index in parents.items()}
                row[name] = float(step.after[name][child])
            rows.append(row)
    return rows
