"""Checks of names, with suggestions for misspelled ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """Return a question to append to an unknown name, `` (did you mean NAME?)``; empty if no known name is similar."""
    plain = {str(each).lower(): each for each in known}
    return "".join(f" (did you mean {plain[each]}?)" for each in difflib.get_close_matches(str(name).lower(), plain, 1))


def check_choice(value: object, known: Iterable[str], name: str) -> None:
    """Raise ValueError for a value that is none of the known ones, with the nearest of them."""
    if value not in list(known):
        raise ValueError(f"{name} is {value!r}{did_you_mean(value, known)}: use one of {', '.join(known)}.")
