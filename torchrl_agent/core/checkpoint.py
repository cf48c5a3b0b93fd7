"""Checkpoints: written whole or not at all, read without unpickling anything but tensors and plain values."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchrl_agent.core.run_names import suggest_run
from torchrl_agent.core.text import to_json

FORMAT = 1
SOURCE = Path(__file__).resolve().parents[2]
"""Folder that holds this project's packages."""
_NAME = re.compile(r"checkpoint_(\d+)\.pt")
BEST = "best.json"
MANIFEST, STATISTICS, REPLAY = ".json", ".normalization.json", ".replay.pt"
FILES = (".pt", STATISTICS, REPLAY)
"""Files of a checkpoint, by the ends of their names; its manifest has a checksum of each."""
CHECKSUMS = "sha256"
MODULE_FILE = "module.pt"
"""File of the module, in a folder that a pre-training wrote."""
TRAINING_RETURN = "rollout/ep_rew_mean"
"""The metric by which the best checkpoint is chosen, unless another one is configured."""


class CheckpointError(ValueError):
    """A checkpoint is missing, damaged or of another kind."""


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, flush it to disk, then rename it to ``path``.

    Raises:
        ValueError: the folder cannot be written to.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        with temporary.open("r+b") as file:  # Windows flushes only what was opened for writing
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:  # torch.save reports a missing folder as a RuntimeError
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path} cannot be written ({reason}): choose a folder that can, with run.folder=.") from None
    finally:
        temporary.unlink(missing_ok=True)


def write_output(path: Path, write: Callable[[Path], object], named_by: str = "--output") -> Path:
    """Write a file that the user has named, atomically, into a folder that is made if it is missing; return its path.

    Args:
        path: the file.
        write: function that fills a file of a given path.
        named_by: option or argument by which the user names the file, for the error.

    Raises:
        ValueError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, write)
    except (OSError, ValueError):
        raise ValueError(f"{path} cannot be written: choose another file with {named_by}.") from None
    return path


def write_text(path: Path, text: str) -> None:
    """Write text in UTF-8, atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as JSON, atomically; numbers that are not finite become null."""
    write_text(path, to_json(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; None if it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def save_checkpoint(
    folder: Path,
    frames: int,
    state: dict[str, Any],
    statistics: dict[str, Any],
    config_hash: str,
    score: float | None,
    keep: int,
    measure: str = TRAINING_RETURN,
    marks: dict[str, Any] | None = None,
) -> Path:
    """Write ``checkpoint_<frames>.pt`` with its normalization statistics and a manifest (its metadata and the checksums
    of its files); keep the newest ``keep`` and the best. A ``replay`` in the state becomes a file beside the newest
    checkpoint only, as it is large.

    Args:
        statistics: normalization statistics, also written beside it as JSON.
        score: decides the best checkpoint, higher is better; None if there is none yet.
        measure: the score's metric; scores of different metrics are not compared.
        marks: further metadata.
    """
    path = folder / f"checkpoint_{frames}.pt"
    judged = {"score": score, "measure": measure}
    metadata = {"format": FORMAT, "frames": frames, **judged, "config_hash": config_hash, "versions": versions()}
    metadata |= marks or {}
    path.with_suffix(MANIFEST).unlink(missing_ok=True)  # its checksums are of the files that are replaced now
    write_json(path.with_suffix(STATISTICS), statistics)
    state = {"metadata": metadata, **state}
    replay = state.pop("replay", None)
    if replay is not None:
        write_atomically(path.with_suffix(REPLAY), lambda temporary: torch.save(replay, temporary))
    write_atomically(path, lambda temporary: torch.save(state, temporary))
    sums = {end: _checksum(path.with_suffix(end)) for end in FILES if path.with_suffix(end).is_file()}
    write_json(path.with_suffix(MANIFEST), {**metadata, CHECKSUMS: sums})
    for older in set(folder.glob(f"checkpoint_*{REPLAY}")) - {path.with_suffix(REPLAY)}:
        older.unlink()
    if score is not None and score >= best_score(folder, measure):
        write_json(folder / BEST, {"checkpoint": path.name, **judged})
    _forget_old(folder, keep)
    return path


def load_checkpoint(path: Path, device: torch.device | str = "cpu", replay: bool = False) -> dict[str, Any]:
    """Return the state in a checkpoint file, on ``device``; with its ``replay`` if requested and present.

    Raises:
        CheckpointError: the file is missing, damaged (not what its manifest says) or not a checkpoint of this project,
            or holds weights that are not finite.
    """
    if not path.is_file():
        raise CheckpointError(
            f"there is no checkpoint {path}: give a run folder that has trained for a while, or one of its .pt files."
        )
    _check_files(path)
    try:
        state = torch.load(path, map_location=device, weights_only=True)
        if replay and path.with_suffix(REPLAY).is_file():
            state["replay"] = torch.load(path.with_suffix(REPLAY), map_location=device, weights_only=True)
    except Exception as error:  # torch.load raises many kinds for damaged or foreign files
        reason = str(error).strip().split("\n")[0][:120]
        raise CheckpointError(f"{path} is damaged or not a checkpoint ({reason}): {_instead_of(path)}.") from None
    if not isinstance(state, dict) or any(not isinstance(state.get(part), dict) for part in ("agent", "metadata")):
        raise CheckpointError(
            f"{path} is not a checkpoint of torchrl_agent: its parts (metadata, agent, ...) are missing: give a run "
            "folder, or a .pt file of its checkpoints."
        )
    if state["metadata"].get("format") != FORMAT:
        raise CheckpointError(
            f"{path} has checkpoint format {state['metadata'].get('format')}, this version reads {FORMAT}: "
            "use the version of torchrl_agent that wrote it."
        )
    algorithm = state.get("algorithm")
    members = algorithm.get("members") if isinstance(algorithm, dict) else None  # a population's, all in one tensor
    name = not_finite({**state["agent"], "members": members})
    if name is not None:
        raise CheckpointError(f"{path} holds NaN or infinity in {name}: {_instead_of(path)}.")
    return state


def _check_files(path: Path) -> None:
    """Raise CheckpointError if a file of a checkpoint differs from its manifest's checksum; a checkpoint without a
    manifest, or of a release that kept no checksums, is accepted as it is.
    """
    manifest = path.with_suffix(MANIFEST)
    known = read_json(manifest)
    sums = known.get(CHECKSUMS, {}) if isinstance(known, dict) else None
    if manifest.is_file() and not isinstance(sums, dict):
        raise CheckpointError(f"{manifest} is damaged: delete it, and {path.name} is read without its checksums.")
    for end in FILES:
        file = path.with_suffix(end)
        if sums and end in sums and file.is_file() and _checksum(file) != sums[end]:
            instead = "delete it, and the replay begins empty" if end == REPLAY else _instead_of(path)
            raise CheckpointError(f"{file} is damaged (it is not what {manifest.name} says): {instead}.")


def _checksum(path: Path) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def _instead_of(path: Path) -> str:
    """Return advice for a checkpoint that cannot be read."""
    older = [
        each for each in checkpoints(path.parent) if _NAME.fullmatch(path.name) and frames_of(each) < frames_of(path)
    ]
    return f"delete {path.name} to go on with {older[-1].name}" if older else "use another checkpoint of the run"


def not_finite(weights: Mapping[str, Any]) -> str | None:
    """Return the name of the first tensor that holds NaN or infinity."""
    floating = {
        name: value for name, value in weights.items() if isinstance(value, Tensor) and value.is_floating_point()
    }
    return next((name for name, value in floating.items() if not bool(value.isfinite().all())), None)


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, oldest first."""
    result = [(int(match[1]), path) for path in folder.glob("checkpoint_*.pt") if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(result)]


def frames_of(path: Path) -> int:
    """Return the number of frames that a checkpoint was trained for."""
    return int(path.stem.rpartition("_")[2])


def forget_checkpoint(path: Path) -> None:
    """Delete a checkpoint with all of its files."""
    for end in (*FILES, MANIFEST):
        path.with_suffix(end).unlink(missing_ok=True)


def find_checkpoint(run: Path, which: str = "last") -> Path:
    """Return the checkpoint of a run: ``last`` or ``best``; ``run`` may also be a checkpoint file."""
    if run.is_file():
        return run
    if not run.is_dir():
        raise CheckpointError(
            f"there is no run {run}{suggest_run(run)}: give the path of a run folder, such as runs/NAME."
        )
    folder = run / "checkpoints"
    best = str(_best(folder).get("checkpoint"))
    if which == "best" and _NAME.fullmatch(best) and (folder / best).is_file():
        return folder / best
    found = checkpoints(folder)
    if not found and (run / MODULE_FILE).is_file():
        raise CheckpointError(f"{run} is no run but a pre-trained module: train with pretrained.MODULE={run}.")
    if not found:
        raise CheckpointError(f"{run} has no checkpoint yet: give a run that has written its first one.")
    return found[-1]


def best_score(folder: Path, measure: str = TRAINING_RETURN) -> float:
    """Return the score of the best checkpoint so far; one that was chosen by another ``measure`` does not count."""
    best = _best(folder)
    score = best.get("score") if best.get("measure", TRAINING_RETURN) == measure else None
    return float(score) if isinstance(score, (int, float)) else -math.inf


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that a result depends on."""
    found = {"python": platform.python_version()}
    for package in ("torch", "torchrl", "tensordict", "torchrl_agent"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def code_digest() -> str:
    """Return a short hash of all code that a result depends on: the versions, and every file of this project."""
    digest = hashlib.sha256(json.dumps(versions()).encode())
    for file in sorted(file for package in ("envs", "torchrl_agent") for file in (SOURCE / package).rglob("*.py")):
        digest.update(file.relative_to(SOURCE).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _best(folder: Path) -> dict[str, Any]:
    """Return the content of best.json; empty if it is missing or damaged."""
    found = read_json(folder / BEST)
    return found if isinstance(found, dict) else {}


def _forget_old(folder: Path, keep: int) -> None:
    kept = _best(folder).get("checkpoint")
    for path in checkpoints(folder)[:-keep]:
        if path.name != kept:
            forget_checkpoint(path)
