"""The folder of a run: made, found again, held while a process trains in it, with a record of the running code."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from collections.abc import Iterator
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from torchrl_agent.core.checkpoint import SOURCE, checkpoints, read_json, versions, write_json
from torchrl_agent.core.run_names import check_run_name
from torchrl_agent.experiment import Experiment
from torchrl_agent.runs.locks import LOCK, HeldError, Locks
from torchrl_agent.runs.members import FOLDER, member_folders

WRITTEN = (
    "checkpoints",
    "code.json",
    "config.yaml",
    "events.jsonl",
    "lineage.csv",
    FOLDER,
    "members.csv",
    "metrics.csv",
    "tensorboard",
    "wandb",
    "wandb_id.txt",
)
"""Names of what a run may have written before its first checkpoint."""
LAST = ("code.json", "checkpoints")
"""Names of what is deleted last."""


SUMMARY = "summary.json"
FILMS = "films"
"""Folder of the films that were made during training."""


class TakenError(ValueError):
    """The path of a run's folder is taken already."""


def new_run(experiment: Experiment, locks: Locks, here: Path | None = None) -> Path:
    """Make the run's folder and hold it, with the state of the code inside; one whose run ended before its first
    checkpoint is emptied and used again. A run without a configured name gets the first of its default names that is
    free.

    Args:
        experiment: experiment of the run; its ``run.name`` is set.
        here: folder in which ``run.folder`` lies unless it is absolute; by default the working directory.

    Raises:
        HeldError: another training holds the folder.
        TakenError: it exists already.
        ValueError: it cannot be made.
    """
    base = Path(experiment.run.folder).expanduser()
    for name in _names(experiment):
        check_run_name(name)
        try:
            _take(base / name, here or Path.cwd(), locks)
        except (HeldError, TakenError):
            if experiment.run.name is not None:
                raise
            continue
        break
    experiment.run.name = name
    folder = (here or Path.cwd()) / base / name
    (folder / "checkpoints").mkdir()
    write_json(folder / "code.json", running_code())
    return folder


def run_folder(experiment: Experiment) -> Path:
    """The folder of a run that has a name."""
    return Path(experiment.run.folder).expanduser() / str(experiment.run.name)


def reserve_names(experiment: Experiment) -> str:
    """A default name for runs called NAME-1, NAME-2, ..., of which the first gets its folder now, so that no other run
    takes that name.
    """
    base = Path(experiment.run.folder).expanduser()
    for name in _names(experiment):
        check_run_name(name)
        try:
            (base / f"{name}-1").mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise _cannot_be_made(base / f"{name}-1", error) from None
        break
    return name


def run_to_go_on(experiment: Experiment) -> Path | None:
    """The folder of this experiment's run, if it has a checkpoint.

    Raises:
        ValueError: the run has no name.
    """
    if experiment.run.name is None:
        raise ValueError("run.resume=auto goes on in the folder of the run's name: give run.name=.")
    check_run_name(experiment.run.name)
    folder = run_folder(experiment)
    return folder if checkpoints(folder / "checkpoints") else None


def _names(experiment: Experiment) -> Iterator[str]:
    """The configured name; else the configuration's and the time, and the same numbered."""
    if experiment.run.name is not None:
        yield experiment.run.name
        return
    default = f"{experiment.name}-{datetime.now():%Y%m%d-%H%M%S}"
    yield default
    yield from (f"{default}_{number}" for number in itertools.count(2))


def _take(folder: Path, here: Path, locks: Locks) -> None:
    """Make and hold a folder; empty it if a run ended in it before its first checkpoint.

    It is made and held before anything is written in it, and what is in it decides only once it is held: of several
    that try at once one gets it.
    """
    place = here / folder
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_be_made(folder, error) from None
    if not _unused(place):
        raise _taken(folder)
    locks.hold(place)
    if not _unused(place):  # another process has had it in between
        raise _taken(folder)
    _empty(place)


def _taken(folder: Path) -> TakenError:
    return TakenError(
        f"run {folder} exists already: choose another run.name=, or continue it with 'torchrl-agent resume {folder}'."
    )


def _cannot_be_made(folder: Path, error: OSError) -> ValueError:
    reason = error.strerror
    if isinstance(error, FileExistsError):
        reason = f"{error.filename} is no folder but a file, or a link that leads nowhere"
    return ValueError(f"run folder {folder} cannot be made ({reason}): choose another with run.folder=.")


def _unused(folder: Path) -> bool:
    """True if there was no run in a folder, or one that ended before its first checkpoint."""
    inside = {path.name for path in folder.iterdir()} - {LOCK}
    visible = {name for name in inside if not name.startswith(".")}  # hidden: files that a killed process was writing
    whole = set(LAST) <= visible <= set(WRITTEN)
    barely = all(name == "checkpoints" or name.startswith(".code.json.") for name in inside)
    return (whole or barely) and not checkpoints(folder / "checkpoints")


def _empty(folder: Path) -> None:
    """Delete what a run wrote before its first checkpoint."""
    inside = [path for path in folder.iterdir() if path.name != LOCK]
    # what shows that it was a run goes last, or a kill in between would leave a folder of unknown origin
    for path in sorted(inside, key=lambda path: LAST.index(path.name) if path.name in LAST else -1):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def read_summary(folder: Path) -> dict[str, Any]:
    """The summary of a run; empty if it has none, or a damaged one."""
    found = read_json(folder / SUMMARY)
    whole = isinstance(found, dict) and isinstance(found.get("seconds"), (int, float))
    return found if whole else {}


def hold_run(folder: Path, locks: Locks) -> None:
    """Hold the folder of a run that goes on, and those of its members."""
    for place in (folder, *member_folders(folder)):
        locks.hold(place)


def running_code() -> dict[str, Any]:
    """Code that produces the results: ``versions`` of this project and its libraries, and its :func:`code_state`."""
    return {"versions": versions(), **code_state()}


def code_state(source: Path = SOURCE) -> dict[str, str]:
    """Commit and uncommitted changes of this project, where ``source`` is its git checkout; the commit alone where pip
    installed it from one. Any other repository around ``source`` is ignored.
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
