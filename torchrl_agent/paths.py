"""Paths in what is written down: the home folder is ``~`` there, so that no file of a run tells whose it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def with_tilde(value: Any) -> Any:
    """Plain values, with ``~`` for the home folder where a text begins with it; paths become texts, tuples lists."""
    if isinstance(value, dict):
        return {key: with_tilde(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [with_tilde(each) for each in value]
    if not isinstance(value, (str, Path)):
        return value
    home, text = str(Path.home()), str(value)
    inside = len(home) > 1 and (text == home or text.startswith((f"{home}/", f"{home}\\")))
    return f"~{text[len(home) :]}" if inside else text


def without_tilde(value: Any) -> Any:
    """Plain values, with the home folder in place of ``~``: the opposite of :func:`with_tilde`."""
    if isinstance(value, dict):
        return {key: without_tilde(each) for key, each in value.items()}
    if isinstance(value, list):
        return [without_tilde(each) for each in value]
    if isinstance(value, str) and (value == "~" or value.startswith(("~/", "~\\"))):
        return f"{Path.home()}{value[1:]}"
    return value
