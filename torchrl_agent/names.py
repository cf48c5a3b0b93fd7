"""Names that were misspelt: the nearest of those that there are."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


def nearest(name: str, known: Iterable[object], count: int = 1) -> list[str]:
    """The known names that a name is most like, best first, whatever its case, its dashes and its version."""
    names = [str(each) for each in known]
    matches = difflib.get_close_matches
    plain: dict[str, list[str]] = {}
    for each in names:
        for form in {_plain(each), _plain(each.rpartition("/")[2]), _plain(each.rpartition(".")[2])}:
            plain.setdefault(form, []).append(each)
    found = [each for form in matches(_plain(name), plain, count, 0.7) for each in plain[form]]
    return list(dict.fromkeys([*found, *matches(name, names, count)]))[:count]


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """A question to put behind an unknown name, `` (did you mean NAME?)``; nothing where no known one is like it."""
    return "".join(f" (did you mean {each}?)" for each in nearest(str(name), known))


def check_known(names: Iterable[str], known: Iterable[str], where: str, tolerated: Iterable[str] = ()) -> None:
    """Raise ValueError for a name that is unknown, with the nearest of those that there are.

    Args:
        names: what was given.
        known: what there is.
        where: the key that gives them.
        tolerated: names that may be unknown too, such as a key's default.
    """
    known = list(known)
    for name in names:
        if name not in known and name not in tolerated:
            listed = ", ".join(map(str, known))
            raise ValueError(f"{where} names {name!r}, which there is not{did_you_mean(name, known)}: use {listed}.")


def _plain(name: str) -> str:
    """A name without its case, version (``-v1``), dashes and underscores."""
    return re.sub(r"[\W_]", "", re.sub(r"-v\d+$", "", name.lower()))
