"""Check of a configuration of any origin: its targets are on the allowed list, or its reader trusts it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torchrl_agent.trust.allowed import ANY_ARGUMENT, ARGUMENTS, allowed_targets
from torchrl_agent.trust.targets import OBJECTS, search_present_folder

Place = tuple[str, ...]
Found = Iterator[tuple[str, str]]
"""Dotted places that need trust, each with the reason, as the middle of a sentence."""

ON_CUDA = "on_cuda"
"""The section whose keys are dotted places themselves."""
ALGORITHM, TUNED = "algorithm", "tuned"
WORLDS = (("world",), ("evaluation", "world"))
KEY = re.compile(r"(?!hydra\b)[\w.]+")
INTERPOLATION = re.compile(r"\$\{[\w.\[\]]+\}")
"""Interpolation of another key's value: the only kind that a configuration of any origin may use."""


def check(found: Iterable[tuple[str, str]], path: Path, trusted: bool, given: Collection[str] = ()) -> None:
    """Raise ValueError for the first finding, unless the file is trusted or the finding stands at one of the places
    that were ``given`` a value by overrides, which the reader wrote. Modules of the present folder may be imported for
    accepted findings.
    """
    for place, what in found:
        if not trusted and place not in given:
            raise ValueError(
                f"{place} in {path} {what}: read the file, and if you trust its author, say so with --trust (in Python "
                "trust=True)."
            )
        search_present_folder()


def in_file(content: Mapping[str, Any], bases: Collection[str]) -> Found:
    """Find entries of a file that need trust before it is composed: other files, and settings of Hydra.

    Args:
        content: content of the file, nothing resolved.
        bases: names that ``defaults`` may hold.
    """
    listed = content.get("defaults", [])
    for entry in listed if isinstance(listed, list) else [listed]:
        if not isinstance(entry, str) or entry not in bases:
            yield "defaults", f"names {entry!r}, which is none of this project's configurations"
    if "hydra" in content:
        yield "hydra", "changes how Hydra reads files"
    section = content.get(ON_CUDA)
    for key in section if isinstance(section, Mapping) else ():
        if not KEY.fullmatch(str(key)):
            yield f"{ON_CUDA}.{key}", "is no key of an experiment"


def in_words(content: Mapping[str, Any]) -> Found:
    """Find values that need trust before a configuration is resolved and its algorithm is found: interpolations that
    read more than other keys, and algorithms of other packages (a name without a dot is never imported).
    """
    for place, value in leaves(content):
        if isinstance(value, str) and "${" in INTERPOLATION.sub("", value):
            yield ".".join(place), f"is {value!r}, which may read this machine's environment"
        if place in ((ALGORITHM,), (ALGORITHM, "_target_")) and "." in str(value):
            yield from _target(place, value)
        if place[0] == TUNED and len(place) > 1 and "." in place[1]:
            yield from _target(place[:2], place[1])


def in_targets(content: Mapping[str, Any]) -> Found:
    """Find values of a resolved configuration that need trust: other targets, and words that make worlds import."""
    for place, value in leaves(content):
        if place[0] in (ALGORITHM, TUNED):
            continue
        if "_target_" in place:
            yield from _target(place, value)
        elif isinstance(value, str) and any(place[: len(world)] == world for world in WORLDS):
            pattern = ARGUMENTS.get(place[-1], ANY_ARGUMENT)
            if place[-2:-1] == ("_args_",) or not pattern.fullmatch(value):
                yield ".".join(place), f"is {value!r}, which may name a module or a file that is run"


def _target(place: Place, name: Any) -> Found:
    if not isinstance(name, str) or not (name in allowed_targets(place) or name in OBJECTS):
        yield ".".join(place), f"names {name}, which is not on the list of what every configuration may use"


def leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield values, and empty lists and mappings, with their places; the dots of keys are split only where the keys are
    places themselves.
    """
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, (list, tuple)):
        parts = enumerate(value)
    below = False
    for key, each in parts:
        below = True
        inner = tuple(str(key).split(".")) if place == (ON_CUDA,) else (*place, str(key))
        yield from leaves(each, inner)
    if not below and place:
        yield place, value
