"""Figures of finished runs in a file: who was interrupted measures what is missing, and nothing twice."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

from benchmarks.claims.measures import Run
from torchrl_agent.core.checkpoint import write_json
from torchrl_agent.runs.folder import running_code


class Kept:
    """The figures by run and seed, those of earlier calls included.

    Args:
        path: of a JSON file, made if it is not there; None keeps nothing beyond this process.

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
        except (OSError, ValueError):  # now, and not after the first hour
            raise ValueError(f"{path} cannot be written: choose another file with --keep.") from None

    def has(self, run: Run, seed: int) -> bool:
        """Whether the figures of a run are there already."""
        return _name(run, seed) in self.figures

    def get(self, run: Run, seed: int) -> dict[str, float]:
        """The figures of a run that is over."""
        figures = self.figures[_name(run, seed)]
        return {name: math.nan if value is None else value for name, value in figures.items()}  # as JSON tells NaN

    def put(self, run: Run, seed: int, figures: dict[str, float]) -> None:
        """Keep the figures of a run that is over."""
        self.figures[_name(run, seed)] = figures
        if self.path is not None:
            self._write(self.path)

    def _write(self, path: Path) -> None:
        write_json(path, {"code": self.code, "figures": self.figures})


def _name(run: Run, seed: int) -> str:
    return json.dumps([*dataclasses.astuple(run), seed])
