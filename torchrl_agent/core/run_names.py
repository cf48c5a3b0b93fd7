"""Names of runs: the path of a folder or a checkpoint, or ``shipped:NAME`` for an agent that comes with the package."""

from __future__ import annotations

import re
from pathlib import Path

from torchrl_agent.core.text import did_you_mean

SHIPPED = Path(__file__).resolve().parents[1] / "shipped"
PREFIX = "shipped:"
CONFIG = "config.yaml"
LONGEST = 200
"""Largest length of a folder's name in bytes; file systems allow 255, of which temporary files need some."""
_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069<>:"\\|?*`]')
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Names that Windows reserves for devices."""


def shipped_runs() -> dict[str, Path]:
    """Return the folders of the agents that come with the package, by name (``shipped:NAME``)."""
    return {f"{PREFIX}{file.parent.name}": file.parent for file in sorted(SHIPPED.glob(f"*/{CONFIG}"))}


def find_run(name: Path | str) -> Path:
    """Return the path of the named run, which need not exist.

    Raises:
        ValueError: no agent of that name comes with the package.
    """
    text = str(name)
    if not text.startswith(PREFIX):
        return Path(name).expanduser()
    known = shipped_runs()
    if text not in known:
        raise ValueError(
            f"no agent {text} comes with the package{did_you_mean(text, known)}: use one of {', '.join(known)}."
        )
    return known[text]


def suggest_run(name: Path | str) -> str:
    """Return a question to append to the name of a run that is not there, with the most similar one that is."""
    return did_you_mean(name, [*shipped_runs(), *(file.parent for file in Path("runs").glob(f"*/{CONFIG}"))])


def check_run_name(name: str) -> None:
    """Raise ValueError unless a run of this name lies inside the folder of runs, and its name is safe in a shell, a
    page and on other systems; ``GROUP/NAME`` is a run inside a group.
    """
    for part in name.split("/"):
        reason = _harm(part)
        if reason:
            raise ValueError(f"run.name is {name[:80]!r}: {reason}; give a name such as first, or group/first.")


def _harm(part: str) -> str:
    """Return the reason why a folder's name is refused; empty if it is accepted."""
    if not part:
        return "it is empty, or begins or ends with a slash: runs lie inside run.folder"
    if part.startswith("."):
        return "a name must not begin with a dot: runs lie inside run.folder, and are not hidden"
    if found := _FORBIDDEN.search(part):
        return f"{found[0]!r} cannot be in a name"
    if part != part.strip() or part.endswith("."):
        return "a name must not begin or end with a space, nor end with a dot"
    if _RESERVED.fullmatch(part):
        return "Windows keeps that name for a device"
    if len(part.encode(errors="surrogatepass")) > LONGEST:
        return f"it is longer than {LONGEST} bytes"
    return ""


def run_name_of(run: Path) -> str:
    """Return the name under which :func:`find_run` finds a run."""
    return next((name for name, folder in shipped_runs().items() if folder == run.resolve()), str(run))


def folder_of(run: Path) -> Path:
    """Return the folder of a run, given by itself or by a checkpoint file inside it."""
    return run if run.is_dir() else run.parent.parent


def output_of(run: Path, file: str) -> Path:
    """Return the path of a command's output file for a run: in the run's folder, or, for an agent that comes with the
    package, in the present folder under the name ``<agent>_<file>``.

    Args:
        run: a run folder, or a checkpoint file inside one.
        file: name of the file.
    """
    folder = folder_of(run)
    return Path(f"{folder.name}_{file}") if SHIPPED in folder.resolve().parents else folder / file
