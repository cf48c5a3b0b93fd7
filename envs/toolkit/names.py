"""Suggestions for misspelled names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """Return a question to append to an unknown name, `` (did you mean NAME?)``; empty if no known name is similar."""
    plain = {str(each).lower(): each for each in known}
    return "".join(f" (did you mean {plain[each]}?)" for each in difflib.get_close_matches(str(name).lower(), plain, 1))
