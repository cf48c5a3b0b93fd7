"""Names of runs: the path of a folder or a checkpoint, or ``shipped:NAME`` for an agent that comes with the package."""

from __future__ import annotations

import difflib
from pathlib import Path

SHIPPED = Path(__file__).resolve().parent / "shipped"
PREFIX = "shipped:"
CONFIG = "config.yaml"


def shipped_runs() -> dict[str, Path]:
    """Folders of the agents that come with the package, by name (``shipped:NAME``)."""
    return {f"{PREFIX}{file.parent.name}": file.parent for file in sorted(SHIPPED.glob(f"*/{CONFIG}"))}


def find_run(name: Path | str) -> Path:
    """Path of the run that is named, which need not be there.

    Raises:
        ValueError: no agent of that name comes with the package.
    """
    text = str(name)
    if not text.startswith(PREFIX):
        return Path(name)
    known = shipped_runs()
    if text not in known:
        nearest = difflib.get_close_matches(text, known, 1)
        meant = f" (did you mean {nearest[0]}?)" if nearest else ""
        raise ValueError(f"no agent {text} comes with the package{meant}: use one of {', '.join(known)}.")
    return known[text]


def run_name_of(run: Path) -> str:
    """Name under which :func:`find_run` finds a run."""
    return next((name for name, folder in shipped_runs().items() if folder == run.resolve()), str(run))


def output_of(run: Path, file: str) -> Path:
    """Place of a file that a command makes of a run: in its folder, or for one that comes with the package in the
    present folder, by the name ``<agent>_<file>``.

    Args:
        run: a run folder, or a checkpoint file inside one.
        file: name of the file.
    """
    folder = run if run.is_dir() else run.parent.parent
    return Path(f"{folder.name}_{file}") if SHIPPED in folder.resolve().parents else folder / file
