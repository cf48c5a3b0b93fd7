"""The folder that a run leaves its files in, and the state of the code that wrote them."""

from __future__ import annotations

import json
import shutil
import subprocess
from datetime import datetime
from importlib import metadata
from pathlib import Path

from torchrl_agent.experiment import Experiment
from torchrl_agent.training.checkpoint import versions, write_json


def new_run(experiment: Experiment) -> Path:
    """Make the run's folder, with the state of the code."""
    name = experiment.run.name or f"{experiment.name}-{datetime.now():%Y%m%d-%H%M%S}"
    experiment.run.name = name
    folder = Path(experiment.run.folder) / name
    try:
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


SOURCE = Path(__file__).resolve().parents[1]


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
