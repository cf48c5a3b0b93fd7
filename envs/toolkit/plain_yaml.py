"""YAML files of any origin, checked before they are loaded: a few lines can expand to more than a machine's memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""YAML loader, the fast one where PyYAML was built with it: half of the time to make a Town is reading its content."""
MAX_CHARACTERS = 1_000_000
MAX_DEPTH = 64
MAX_NODES = 100_000
"""Largest number of scalars, lists and mappings; an alias counts as all nodes that it stands for."""
TAGS = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map")}
"""Allowed explicit tags."""


def read_text(path: Path) -> str:
    """Read the text of a YAML file that is within the limits.

    Raises:
        ValueError: it cannot be read, is not YAML, or exceeds a limit; the sentence names it.
    """
    with _one_sentence(path):
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_CHARACTERS + 1)
        _check(text)
    return text


def read_yaml(path: Path) -> Any:
    """Load the values of a YAML file that is within the limits.

    Raises:
        ValueError: see :func:`read_text`.
    """
    text = read_text(path)
    with _one_sentence(path):
        return yaml.load(text, LOADER)


@contextmanager
def _one_sentence(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{path} cannot be read as YAML ({' '.join(str(error).split())}): fix that place.") from None
    except _LimitError as error:
        raise ValueError(f"{path} {error}: give a smaller and plainer YAML file.") from None


class _LimitError(Exception):
    """Exceeded limit, as the end of a sentence."""


def _check(text: str) -> None:
    """Raise _LimitError if the text exceeds a limit; no values are built for the check."""
    if len(text) > MAX_CHARACTERS:
        raise _LimitError(f"has more than {MAX_CHARACTERS:,} characters")
    anchored: dict[str, int] = {}
    inside: list[tuple[str | None, int]] = []  # the collections that are open: their anchors, and the nodes before them
    nodes = 0
    for event in yaml.parse(text, LOADER):
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, before = inside.pop()
            if anchor is not None:
                anchored[anchor] = nodes - before
        elif isinstance(event, yaml.AliasEvent):
            holds_itself = any(anchor == event.anchor for anchor, _ in inside)
            nodes += MAX_NODES + 1 if holds_itself else anchored.get(event.anchor, 1)
        elif isinstance(event, yaml.NodeEvent):
            if event.tag not in TAGS and event.tag not in (None, "!"):
                raise _LimitError(f"has the tag {event.tag}")
            if isinstance(event, yaml.CollectionStartEvent):
                inside.append((event.anchor, nodes))
            elif event.anchor is not None:
                anchored[event.anchor] = 1
            nodes += 1
        if nodes > MAX_NODES:
            raise _LimitError(f"stands for more than {MAX_NODES:,} values")
        if len(inside) > MAX_DEPTH:
            raise _LimitError(f"is nested more than {MAX_DEPTH} deep")
