"""The format of a recorded episode: plain values of JSON with a version."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from torchrl_agent.core.checkpoint import write_output
from torchrl_agent.explain.thought import Names

FORMAT, VERSION = "torchrl_agent.replay", 1
"""Name and version of the format: a reader refuses a newer version."""


def hexadecimal_of(names: Names) -> dict[str, str]:
    """Return the world's colors of things and meters by name, as HTML writes them."""
    return {name: "#{:02x}{:02x}{:02x}".format(*color) for name, color in names.legend.items()}


def pack(record: dict[str, Any]) -> bytes:
    """Return a record as compressed JSON, the same bytes for the same record."""
    text = json.dumps({"format": FORMAT, "version": VERSION, **record}, separators=(",", ":"), allow_nan=False)
    return gzip.compress(text.encode(), 9, mtime=0)


def write_record(record: dict[str, Any], path: Path) -> Path:
    """Write a packed record.

    Raises:
        ValueError: the name does not end in .json.gz, or it cannot be written there.
    """
    if not path.name.endswith(".json.gz"):
        raise ValueError(f"the record cannot be written as {path.name!r}: use a name that ends in .json.gz.")
    return write_output(path, lambda temporary: temporary.write_bytes(pack(record)), "--record")


def read_record(path: Path | str) -> dict[str, Any]:
    """Return the record of a file that :func:`pack` has filled, or of the same JSON without compression.

    Raises:
        ValueError: it cannot be read, is no record, or is of a newer version.
    """
    try:
        content = Path(path).read_bytes()
        record = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    except (OSError, EOFError, ValueError):
        raise ValueError(f"{path} is no recorded episode that can be read: record it anew with --record.") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT or not isinstance(record.get("version"), int):
        raise ValueError(f"{path} is no recorded episode: give a file that 'torchrl-agent replay --record' wrote.")
    if record["version"] > VERSION:
        raise ValueError(
            f"{path} is of version {record['version']} of the format, and this torchrl-agent reads up to {VERSION}: "
            "update it."
        )
    return record
