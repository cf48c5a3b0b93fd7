"""Recordings: rollouts of policies in a folder, in TorchRL's memory-mapped storage, from which any agent can learn."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torchrl.data import LazyMemmapStorage

from torchrl_agent.core import keys
from torchrl_agent.core.checkpoint import write_json
from torchrl_agent.models.agent import Agent

SHEET = "recording.json"
"""File of a recording with its ``world``, ``players`` and number of ``worlds``."""
PLAIN = re.compile(r".*\.memmap|meta\.json|storage_metadata\.json")
"""Files of tensors; others, such as pickles, are never opened."""
TYPES = {"<class 'tensordict._td.TensorDict'>", "TensorDict"}
"""Types that the metadata of a recording may name."""


class RecordingError(ValueError):
    """A recording is missing, damaged, or not of this world."""


def write_recording(folder: Path, rollout: TensorDictBase, sheet: dict[str, Any]) -> None:
    """Write a rollout [steps, rows], without an agent's memory, and what is to be known of it to a new folder.

    Raises:
        RecordingError: the folder exists.
    """
    if folder.exists():
        raise RecordingError(f"{folder} exists already: choose another --record.")
    folder.mkdir(parents=True)
    rollout = rollout.exclude(*keys.MEMORY)
    storage = LazyMemmapStorage(len(rollout), scratch_dir=folder / "frames")
    storage.set(range(len(rollout)), rollout)
    storage.dumps(folder / "frames")
    write_json(folder / SHEET, sheet)


def read_recording(folder: Path) -> tuple[TensorDict, dict[str, Any]]:
    """Return the rollout [steps, rows], which stays on the disk until it is read, and its sheet.

    Raises:
        RecordingError: it is missing or damaged.
    """
    frames = folder / "frames"
    try:
        sheet = json.loads((folder / SHEET).read_text(encoding="utf-8"))
        _check_plain(frames)
        if json.loads((frames / "storage_metadata.json").read_text(encoding="utf-8"))["is_pytree"]:
            raise ValueError("its frames are no TensorDict")
        storage = LazyMemmapStorage(1, scratch_dir=frames)
        storage.loads(frames)
        return storage.get(slice(None)), sheet
    except (OSError, AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise RecordingError(f"{folder} is no recording ({error}): give a folder of pretrain --record.") from None


def _check_plain(folder: Path) -> None:
    """Raise ValueError if there is anything but tensors."""
    for path in folder.rglob("*"):
        if path.is_symlink() or (path.is_file() and not PLAIN.fullmatch(path.name)):
            raise ValueError(f"it holds {path.name}, which is no tensor")
        if path.name == "meta.json":
            _check_metadata(json.loads(path.read_text(encoding="utf-8")), path.parent)


def _check_metadata(metadata: dict[str, Any], folder: Path) -> None:
    """Raise ValueError if a file names other types, or a tensor has another size; a shorter one would be lengthened."""
    if not _types(metadata) <= TYPES:
        raise ValueError(f"{folder.name} names another type than a TensorDict's")
    for name, entry in metadata.items():
        if isinstance(entry, dict) and "dtype" in entry:
            size = math.prod(entry["shape"]) * getattr(torch, entry["dtype"].removeprefix("torch.")).itemsize
            if (folder / f"{name}.memmap").stat().st_size != size:
                raise ValueError(f"{name} has another size than it should")


def _types(value: Any) -> set[str]:
    """Return the types that a file of metadata names."""
    if not isinstance(value, dict):
        return set()
    own = {str(found) for key in ("_type", "type") if isinstance(found := value.get(key), str)}
    return own.union(*(_types(inner) for inner in value.values()))


def fit(rollout: TensorDictBase, agent: Agent) -> TensorDict:
    """Return the rollout [steps, rows] on the agent's device with what this agent reads: its memory is empty, and
    begins where an episode does.

    Raises:
        RecordingError: the recording lacks an observation.
    """
    carried = {keys.IS_INIT, *agent.memory}
    missing = [key for key in agent.input_keys if key not in carried and key not in rollout.keys()]
    if missing:
        raise RecordingError(f"the recording has no {missing[0]!r}, which the agent reads: record this world anew.")
    rollout = rollout.to(next(agent.parameters()).device).clone()
    done = rollout.get((keys.NEXT, keys.DONE))
    rollout.set(keys.IS_INIT, torch.cat([torch.ones_like(done[:1]), done[:-1]]))
    for key, spec in agent.memory.items():
        rollout.set(key, torch.zeros(*rollout.shape, *spec.shape, dtype=spec.dtype, device=rollout.device))
    return rollout
