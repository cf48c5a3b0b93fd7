"""Replay of a mind in a browser: an evaluation episode with everything that the agents thought, in one HTML file."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchrl_agent.replay.page import as_page, write_page
from torchrl_agent.replay.play import game_of
from torchrl_agent.replay.record import read_record
from torchrl_agent.replay.recorder import RecordConfig, record_run

__all__ = ["RecordConfig", "Replay", "as_page", "game_of", "read_record", "record_run", "replay", "write_page"]


@dataclass
class Replay:
    """A recorded episode; in a notebook it shows itself."""

    record: dict[str, Any]
    height: int = 900

    def write(self, path: Path | str) -> Path:
        """Write the page as one file and return its path."""
        return write_page(self.record, Path(path))

    def _repr_html_(self) -> str:
        style = f'style="width: 100%; height: {self.height}px; border: 0"'
        page = html.escape(as_page(self.record), quote=True)
        return f'<iframe sandbox="allow-scripts" title="replay" {style} srcdoc="{page}"></iframe>'


def replay(
    run: Path | str,
    world: int = 0,
    checkpoints: int = 8,
    ahead: int = 16,
    steps: int = 400,
    which: str = "last",
    overrides: Sequence[str] = (),
    trust: bool = False,
) -> Replay:
    """Record an evaluation episode of a run's agent; see :func:`~torchrl_agent.replay.recorder.record_run`."""
    return Replay(record_run(run, RecordConfig(world, checkpoints, ahead, steps), which, overrides, trust))
