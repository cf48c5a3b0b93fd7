"""Weights of an exported perception (``.pt2`` of ``torchrl-agent export --module perception``).

Only numbers are read, by the archive's own table of them: the program in it is neither unpickled nor run.
"""

from __future__ import annotations

import json
import math
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchrl_agent.transforms import STATISTICS

SUFFIX = ".pt2"
TABLE = "data/weights/model_weights_config.json"
DTYPES = {7: torch.float32, 8: torch.float64}
"""The archive's numbers of types."""
NORMALIZER, PERCEPTION = "module.module.0.", "module.module.1."
"""Prefixes of names in a program of a normalizer followed by a perception."""


def read_exported(path: Path) -> dict[str, Any]:
    """Return the content of a module's file (see ``models/pretrained.py``) as far as an exported perception has it:
    its weights, the statistics of observations and, if its JSON lies beside, the observations' shapes.

    Raises:
        Exception: of any kind, if the file is damaged or another program.
    """
    with zipfile.ZipFile(path) as archive:
        (table,) = (name for name in archive.namelist() if name.endswith(TABLE))
        entries = json.loads(archive.read(table))["config"]
        folder = table.removesuffix(table.split("/")[-1])
        tensors = {name: _tensor(archive, folder, entry) for name, entry in entries.items()}
    if not all(name.startswith((NORMALIZER, PERCEPTION)) for name in tensors):
        raise ValueError("it holds more than a perception")
    weights = {name.removeprefix(PERCEPTION): value for name, value in tensors.items() if name.startswith(PERCEPTION)}
    running = [tensors[f"{NORMALIZER}running.{name}"].tolist() for name in ("mean", "var", "count")]
    never = [0.0, 1.0, 0.0]  # returns, which an export leaves out
    statistics = dict(zip(STATISTICS, [*running, *never], strict=True))
    return {
        "module": "perception",
        "parts": {"perception": weights},
        "auxiliary": {},
        "observations": _observations(path),
        "statistics": statistics,
    }


def _tensor(archive: zipfile.ZipFile, folder: str, entry: dict[str, Any]) -> Tensor:
    """Read one tensor, which lies in the archive as it lies in memory."""
    meta = entry["tensor_meta"]
    sizes, strides = ([int(each["as_int"]) for each in meta[name]] for name in ("sizes", "strides"))
    dtype, place = DTYPES[meta["dtype"]], folder + entry["path_name"]
    if entry["use_pickle"] or strides != list(torch.empty(sizes, device="meta").stride()):
        raise ValueError("it holds tensors in another form")
    if archive.getinfo(place).file_size != math.prod(sizes) * dtype.itemsize:
        raise ValueError("it holds tensors of other sizes than it says")
    return torch.frombuffer(bytearray(archive.read(place)), dtype=dtype).reshape(sizes)


def _observations(path: Path) -> dict[str, list[int]] | None:
    described = path.with_name(f"{path.name}.json")
    if not described.is_file():
        return None
    inputs = json.loads(described.read_text(encoding="utf-8"))["inputs"]
    seen = [
        each for each in inputs if each["meaning"].startswith("observation") and each["dtype"] in ("float32", "uint8")
    ]
    return {each["name"]: each["shape"][1:] for each in seen}
