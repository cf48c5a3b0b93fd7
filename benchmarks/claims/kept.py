"""File of the figures of finished runs, so that an interrupted study measures only the missing ones."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

from benchmarks.claims.measures import Run
from torchrl_agent.core.checkpoint import write_json
from torchrl_agent.runs.folder import running_code


class Kept:
    """The figures by run and seed, including those of earlier calls.

    Args:
        path: path of a JSON file, created if missing; None keeps the figures in this process only.

    Raises:
        ValueError: the file is something else, holds figures of other code, or cannot be written.
    """

    def __init__(self, path: Path | None) -> None:
        self.path, self.code = path, running_code()
        self.figures: dict[str, dict[str, float]] = {}
        if path is None:
            return
        if path.exists():
            try:
                held = json.loads(path.read_text(encoding="utf-8"))
                code, self.figures = held["code"], dict(held["figures"])
            except (OSError, ValueError, KeyError, TypeError):
                raise ValueError(f"{path} holds no figures of claims: choose another file with --keep.") from None
            if code != self.code:
                raise ValueError(
                    f"{path} holds figures of other code, and they would be mixed: choose another file with --keep."
                )
        try:
            self._write(path)
        except (OSError, ValueError):  # fail now, not after the first hour
            raise ValueError(f"{path} cannot be written: choose another file with --keep.") from None

    def has(self, run: Run, seed: int) -> bool:
        """True if the figures of a run are present."""
        return _name(run, seed) in self.figures

    def get(self, run: Run, seed: int) -> dict[str, float]:
        """Return the figures of a finished run."""
        figures = self.figures[_name(run, seed)]
        return {name: math.nan if value is None else value for name, value in figures.items()}  # NaN is null in JSON

    def put(self, run: Run, seed: int, figures: dict[str, float]) -> None:
        """Store the figures of a finished run."""
        self.figures[_name(run, seed)] = figures
        if self.path is not None:
            self._write(self.path)

    def _write(self, path: Path) -> None:
        write_json(path, {"code": self.code, "figures": self.figures})


def _name(run: Run, seed: int) -> str:
    return json.dumps([*dataclasses.astuple(run), seed])
