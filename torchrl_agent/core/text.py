"""Text helpers: the nearest of known names, JSON without NaN, paths without the home folder."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def nearest(name: str, known: Iterable[object], count: int = 1) -> list[str]:
    """Return the known names most similar to a name, best first, ignoring case, dashes and version."""
    names = [str(each) for each in known]
    matches = difflib.get_close_matches
    plain: dict[str, list[str]] = {}
    for each in names:
        for form in {_plain(each), *(_plain(each.rpartition(mark)[2]) for mark in "/.:")}:
            plain.setdefault(form, []).append(each)
    found = [each for form in matches(_plain(name), plain, count, 0.7) for each in plain[form]]
    return list(dict.fromkeys([*found, *matches(name, names, count)]))[:count]


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """Return a question to append to an unknown name, `` (did you mean NAME?)``; empty if no known name is similar."""
    return "".join(f" (did you mean {each}?)" for each in nearest(str(name), known))


def check_known(names: Iterable[str], known: Iterable[str], where: str, tolerated: Iterable[str] = ()) -> None:
    """Raise ValueError for an unknown name, with the nearest of the known ones.

    Args:
        where: the key that holds the given names.
        tolerated: names that may be unknown too, such as a key's default.
    """
    known = list(known)
    for name in names:
        if name not in known and name not in tolerated:
            listed = ", ".join(map(str, known))
            raise ValueError(f"{where} names {name!r}, which there is not{did_you_mean(name, known)}: use {listed}.")


def _plain(name: str) -> str:
    """Return a name without its case, version (``-v1``), dashes and underscores."""
    return re.sub(r"[\W_]", "", re.sub(r"-v\d+$", "", name.lower()))


# --- JSON ------------------------------------------------------------------------------------------------------------


def to_json(value: Any, indent: int | None = None) -> str:
    """Return plain values as JSON; numbers that are not finite become null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, (list, tuple)) else value


def dotted(values: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Return nested dictionaries as one, by dotted names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= dotted(value, f"{above}{name}.") if isinstance(value, dict) else {f"{above}{name}": value}
    return found


# --- paths -----------------------------------------------------------------------------------------------------------


def with_tilde(value: Any) -> Any:
    """Return plain values with ``~`` for the home folder at the start of texts; paths become texts, tuples lists."""
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
    """Return plain values with the home folder in place of ``~``: the inverse of :func:`with_tilde`."""
    if isinstance(value, dict):
        return {key: without_tilde(each) for key, each in value.items()}
    if isinstance(value, list):
        return [without_tilde(each) for each in value]
    if isinstance(value, str) and (value == "~" or value.startswith(("~/", "~\\"))):
        return f"{Path.home()}{value[1:]}"
    return value
