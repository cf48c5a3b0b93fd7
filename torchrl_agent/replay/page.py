"""The page of a replay: one HTML file with the record in it, which needs neither a server nor a library."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchrl_agent.explain.page import write_html
from torchrl_agent.replay.record import pack

HERE = Path(__file__).parent
PROGRAMS = HERE.parent / "export"
REPLAY: tuple[str | Path, ...] = ("record.js", "scene.js", "panels.js", "timeline.js", "page.js")
PLAY: tuple[str | Path, ...] = (
    *(PROGRAMS / name for name in ("program.js", "instructions.js", "game.js")),
    *("record.js", "scene.js", "panels.js", "marks.js", "play.js"),
)
"""Scripts of the pages, in the order in which they run."""


def as_page(record: dict[str, Any]) -> str:
    """Return the page of a record (see :func:`~torchrl_agent.replay.recorder.record_run`), or of a game to be played
    (:func:`~torchrl_agent.replay.play.game_of`).
    """
    plays = "programs" in record
    parts = {
        "TITLE": html.escape(f"{record['run']}: {'play' if plays else 'replay'}"),
        "STYLE": read_part("page.css"),
        "MAIN": read_part("play.html" if plays else "replay.html"),
        "SCRIPT": "\n".join(map(read_part, PLAY if plays else REPLAY)),
        "RECORD": base64.b64encode(pack(record)).decode(),
    }
    return filled("page.html", parts)


def write_page(record: dict[str, Any], path: Path) -> Path:
    """Write the page of a record.

    Raises:
        ValueError: the name does not end in .html, or it cannot be written there.
    """
    return write_html(as_page(record), path)


def filled(template: str, parts: Mapping[str, str]) -> str:
    """Return a template of a page with texts in place of its ``%%NAME%%``."""
    page = read_part(template)
    for name, text in parts.items():
        page = page.replace(f"%%{name}%%", text)
    return page


def read_part(name: str | Path) -> str:
    """Return the text of a part of a page."""
    return (HERE / name).read_text(encoding="utf-8")
