"""The folder of a run: made, found again, locked while somebody trains in it, and from which code it was written."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import ExitStack
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from torchrl_agent.experiment import Experiment
from torchrl_agent.runs.members import FOLDER, member_folder
from torchrl_agent.training.checkpoint import SOURCE, checkpoints, versions, write_json, write_text

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
    write_json(folder / "code.json", running_code())
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


def lock_all(folder: Path, members: int) -> list[IO[bytes]]:
    """Locks on the run's folder and on those of its members, each of which may go on alone; see :func:`lock`."""
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
        write_json(path, running_code())
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


def running_code() -> dict[str, Any]:
    """What makes the numbers: ``versions`` of this project and its libraries, and its :func:`code_state`."""
    return {"versions": versions(), **code_state()}


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
