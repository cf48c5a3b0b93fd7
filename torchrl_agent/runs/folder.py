"""What a run leaves on disk: its folder, and the books that are kept in it while it trains."""

from __future__ import annotations

import atexit
import json
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from torchrl_agent import ranks
from torchrl_agent.experiment import Experiment
from torchrl_agent.judging import EVALUATION_RETURN, configured_way, evaluate_ways
from torchrl_agent.learner import Learner
from torchrl_agent.models.acting import acting_policy
from torchrl_agent.models.agent import Agent
from torchrl_agent.population.learner import PopulationLearner
from torchrl_agent.runs.film import film_policy
from torchrl_agent.runs.members import FOLDER, MemberBooks, member_folder
from torchrl_agent.runs.model_card import write_model_card
from torchrl_agent.training.checkpoint import (
    SOURCE,
    TRAINING_RETURN,
    best_score,
    checkpoints,
    save_checkpoint,
    versions,
    write_json,
    write_text,
)
from torchrl_agent.training.metrics import MetricsWriter, wandb_logger
from torchrl_agent.training.sharding import sharded

WRITTEN = (
    "checkpoints",
    "code.json",
    "config.yaml",
    "lineage.csv",
    FOLDER,
    "members.csv",
    "metrics.csv",
    "tensorboard",
    "wandb",
    "wandb_id.txt",
)
"""What a run may have written before its first checkpoint."""
LAST = ("code.json", "checkpoints")
"""What is taken away after all else."""


class Books:
    """The books of a run: metrics after every iteration, checkpoints when they are due, a summary and a model card in
    the end. A context: other processes cannot train in the same folder, and whoever leaves it between two iterations,
    by Ctrl-C or by closing the generator, leaves what :meth:`stop` does.

    Args:
        folder: of the run.
        learner: that trains.
        resumed: the learner goes on from a checkpoint in the folder.

    Raises:
        ValueError: the folder is in use, or cannot be written to.
    """

    def __init__(self, folder: Path, learner: Learner, resumed: bool) -> None:
        self.folder, self.learner, self.experiment = folder, learner, learner.experiment
        self._locks = _hold(folder, learner)
        text, self._hash = self.experiment.to_yaml(), self.experiment.hash()
        write_text(folder / "config.yaml", text)
        logger = wandb_logger(folder, self.experiment.run.wandb)
        frames = learner.frames if resumed else None
        self._writer = MetricsWriter(folder, self.experiment.run.tensorboard, frames, logger)
        self._writer.describe(text, self.experiment.settings())
        self._members = MemberBooks(folder, learner, resumed) if isinstance(learner, PopulationLearner) else None
        self._metrics: dict[str, float] = {}
        self._saved_frames, self._saved_at = learner.frames, time.monotonic()
        self._start = time.monotonic()
        self._between = False

    def __enter__(self) -> Books:
        # a generator that is still open when Python ends would be closed only when modules are gone already
        atexit.register(self.__exit__, SystemExit)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        atexit.unregister(self.__exit__)
        if self._locks[0].closed:
            return
        try:
            # ranks save together or not at all
            if self._between and kind is not None and not issubclass(kind, Exception) and ranks.size() == 1:
                self.stop()
        finally:
            self._writer.close()
            if self._members is not None:
                self._members.close()
            for each in self._locks:
                each.close()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """In here the learner is changing: were it left in the middle, there would be nothing whole to save."""
        self._between = False
        yield
        self._between = True

    def enter(self, metrics: dict[str, float]) -> None:
        """Write down an iteration that the learner has just finished; a checkpoint too, if one is due."""
        if not self._metrics:  # of a run that is resumed
            (self.folder / "summary.json").unlink(missing_ok=True)
        self._metrics = metrics
        self._writer.write(self.learner.frames, metrics)
        if self._members is not None:
            self._members.enter()
        if ranks.highest(self._due()):
            self._save()

    def stop(self) -> None:
        """Leave a checkpoint of the last finished iteration, and a summary without a new judgement: whoever asked for
        the end may give seconds only.
        """
        self._save_unless_saved()
        self._summarize("stopped", {})

    def finish(self) -> None:
        """Leave the last checkpoint, the summary and the model card; then judge and film, and write these two anew."""
        self._between = False
        self._save_unless_saved()
        ended = "total_frames" if self.learner.frames >= self.experiment.total_frames else "mark"
        if self._members is not None:
            self._members.picture()
        self._summarize(ended, {})
        agent = self.learner.present()
        if sharded(agent):
            return  # no process has all of it: what judges loads the checkpoint
        with ranks.alone():  # the others have nothing left to do
            judgement = self._judge(agent)
        if judgement:
            self._summarize(ended, judgement)

    def where_to_go_on(self) -> str:
        """What is left of a run that cannot go on."""
        found = checkpoints(self.folder / "checkpoints")
        if not found:
            return "no checkpoint was written yet, so begin again"
        return f"the last checkpoint, {found[-1].name}, is good"

    def _due(self) -> bool:
        config, metrics = self.experiment.run, self._metrics
        minutes = (time.monotonic() - self._saved_at) / 60
        return (
            self.learner.frames - self._saved_frames >= config.checkpoint_every
            or (config.checkpoint_minutes is not None and minutes >= config.checkpoint_minutes)
            or (EVALUATION_RETURN in metrics and metrics[EVALUATION_RETURN] >= self._best())
        )

    def _best(self) -> float:
        return best_score(self.folder / "checkpoints", self._measure)

    @property
    def _measure(self) -> str:
        return TRAINING_RETURN if self.experiment.evaluation.every is None else EVALUATION_RETURN

    def _save(self) -> None:
        if self._members is not None:
            self._members.save()
        save_learner(self.learner, self._metrics, self.folder, self._measure, self._hash)
        self._saved_frames, self._saved_at = self.learner.frames, time.monotonic()

    def _save_unless_saved(self) -> None:
        if self._saved_frames != self.learner.frames:
            self._save()

    def _summarize(self, ended: str, judgement: dict[str, Any]) -> None:
        learner = self.learner
        summary: dict[str, Any] = {
            "config": self.experiment.name,
            "seed": self.experiment.seed,
            "device": str(learner.device),
            "frames": learner.frames,
            "ended": ended,
            "seconds": round(time.monotonic() - self._start, 1),
            "compile_seconds": round(learner.compile_seconds, 1),
            "acceleration": learner.modes(),
            "metrics": {key: None if math.isnan(value) else value for key, value in self._metrics.items()},
            **judgement,
        }
        if self._members is not None:
            self._members.summarize(summary)
            summary["population"] = self._members.describe()
        write_json(self.folder / "summary.json", summary)
        write_model_card(self.folder, self.experiment, summary)

    def _judge(self, agent: Agent) -> dict[str, Any]:
        """Figures and film of the final policy, as far as they are wanted."""
        experiment, judgement = self.experiment, dict[str, Any]()
        if experiment.run.final_evaluation:
            ways = evaluate_ways(experiment, agent)
            judgement |= {"evaluation": ways[configured_way(experiment)], "ways": ways}
        if experiment.run.film:
            world = experiment.make_world(evaluation=True, num_envs=4, seed=experiment.evaluation.seed)
            path, acceleration = self.folder / "film.gif", experiment.acceleration
            film = film_policy(agent.attach(world), acting_policy(agent), path, acceleration=acceleration)
            judgement["film"] = None if film is None else film.name
        return judgement


def save_learner(
    learner: Learner,
    metrics: dict[str, float],
    folder: Path,
    measure: str = TRAINING_RETURN,
    config_hash: str | None = None,
) -> Path:
    """Write a checkpoint into the run's folder; the best is the one with the highest metric ``measure``. Who saves
    often hands over the hash of the configuration.
    """
    score = metrics.get(measure, math.nan)
    return save_checkpoint(
        folder / "checkpoints",
        learner.frames,
        learner.state_dict(),
        learner.statistics(),
        learner.experiment.hash() if config_hash is None else config_hash,
        None if math.isnan(score) else score,
        learner.experiment.run.keep_checkpoints,
        measure,
    )


def new_run(experiment: Experiment) -> Path:
    """Make the run's folder, with the state of the code; one whose run ended before its first checkpoint is emptied and
    used again.

    Raises:
        ValueError: the folder is there already, or cannot be made.
    """
    experiment.run.name = run_name(experiment)
    folder = Path(experiment.run.folder) / experiment.run.name
    try:
        if not _emptied(folder):
            folder.mkdir(parents=True)
        (folder / "checkpoints").mkdir()
    except FileExistsError:
        raise ValueError(
            f"run {folder} exists already: choose another run.name=, or continue it with 'torchrl-agent resume "
            f"{folder}'."
        ) from None
    except OSError as error:
        raise ValueError(
            f"run folder {folder} cannot be made ({error.strerror}): choose another with run.folder=."
        ) from None
    write_json(folder / "code.json", {"versions": versions(), **code_state()})
    return folder


def run_name(experiment: Experiment) -> str:
    """The configured name of the run's folder; by default the configuration's and the time."""
    return experiment.run.name or f"{experiment.name}-{datetime.now():%Y%m%d-%H%M%S}"


def run_to_go_on(experiment: Experiment) -> Path | None:
    """The folder of this experiment's run, if it has a checkpoint.

    Raises:
        ValueError: the run has no name.
    """
    if experiment.run.name is None:
        raise ValueError("run.resume=auto goes on in the folder of the run's name: give run.name=.")
    folder = Path(experiment.run.folder) / experiment.run.name
    return folder if checkpoints(folder / "checkpoints") else None


def _emptied(folder: Path) -> bool:
    """Whether there was a run that ended before its first checkpoint; what it wrote is gone then."""
    inside = {path.name: path for path in folder.iterdir()} if folder.is_dir() else {}
    visible = {name for name in inside if not name.startswith(".")}  # hidden is what a killed process was writing
    whole = set(LAST) <= visible <= set(WRITTEN)
    barely = folder.is_dir() and all(name == "checkpoints" or name.startswith(".code.json.") for name in inside)
    if not (whole or barely) or checkpoints(folder / "checkpoints"):
        return False
    if "code.json" in inside:  # only then may somebody hold it
        lock(folder).close()
    # what tells that it was a run goes last, or a kill between would leave a folder that is nobody's
    for path in sorted(inside.values(), key=lambda path: LAST.index(path.name) if path.name in LAST else -1):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return True


def _hold(folder: Path, learner: Learner) -> list[IO[bytes]]:
    """Locks on the run's folder and on those of its members, each of which may go on alone; see :func:`lock`."""
    members = learner.members if isinstance(learner, PopulationLearner) else 0
    with ExitStack() as held:
        locks = [held.enter_context(lock(folder))]
        for place in (member_folder(folder, index) for index in range(members)):
            place.mkdir(parents=True, exist_ok=True)
            if not (place / "code.json").is_file():
                write_text(place / "code.json", (folder / "code.json").read_text(encoding="utf-8"))
            locks.append(held.enter_context(lock(place)))
        held.pop_all()
    return locks


def lock(folder: Path) -> IO[bytes]:
    """Hold a run's folder for this process until the returned file is closed, or the process has ended in any way.

    Raises:
        ValueError: somebody else holds it.
    """
    path = folder / "code.json"
    if not path.is_file():
        write_json(path, {"versions": versions(), **code_state()})
    file = path.open("r+b")
    if not _locked(file):
        file.close()
        raise ValueError(
            f"run {folder} is in use: stop the process that trains it (in Python, close() the generator) first."
        )
    return file


def _locked(file: IO[bytes]) -> bool:
    """Whether the lock on an open file was free, and is ours now; also where the file system knows no locks."""
    if sys.platform == "win32":
        import msvcrt  # Windows alone has it

        file.seek(2**30)  # beyond the end: a locked byte could not be read by anybody else
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    import fcntl  # Unix alone has it

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def code_state(source: Path = SOURCE) -> dict[str, str]:
    """Commit and uncommitted changes of this project, where ``source`` is its git checkout; the commit alone where pip
    installed it from one. Of any other repository that lies around ``source`` nothing is told.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(source), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", errors="replace", check=False)
        return done.stdout.strip()

    checkout = shutil.which("git") is not None and git("rev-parse", "--show-toplevel")
    if checkout and Path(checkout).resolve() == source.resolve() and (source / "torchrl_agent").is_dir():
        return {"commit": git("rev-parse", "HEAD"), "changes": git("diff", "HEAD")}
    try:
        origin = json.loads(metadata.distribution("torchrl_agent").read_text("direct_url.json") or "{}")
    except metadata.PackageNotFoundError:
        return {}
    commit = origin.get("vcs_info", {}).get("commit_id")
    return {"commit": commit} if commit else {}
