"""Overrides ``KEY=VALUE``: a text is taken as it is typed, everything else by Hydra's grammar of values."""

from __future__ import annotations

import dataclasses
import functools
import re
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

NULLS = ("null", "None")
"""Words for no value, where a key may have none."""
_SWEEP = re.compile(r"(choice|range|interval|glob|sort|shuffle|tag)\(.*\)", re.DOTALL)
_CHOICE = re.compile(r"choice\((.*)\)", re.DOTALL)


class Typed(str):
    """A value as it was typed, whose type its key decides."""


class Override(NamedTuple):
    """A change of a configuration: ``key=value``, or ``~key``, which takes the key away."""

    key: str
    value: Typed | None
    """None takes the key away."""
    word: str
    """The word of the command line."""


def parse_override(word: str) -> Override:
    """Parse a word of the command line as an override. A plus before it, for a new key, is not needed.

    Raises:
        ValueError: it is no override, or gives several values.
    """
    key, equals, value = word.partition("=")
    if key.startswith("~"):
        return Override(key[1:].strip(), None, word)
    key = key.lstrip("+").strip()
    if not equals or not key:
        raise ValueError(f"{word} changes nothing: write KEY=VALUE, such as seed=1.")
    value = value.strip()
    if len(split(value)) > 1 or _SWEEP.fullmatch(value):
        raise ValueError(f"{word} gives several values: give one, or train with each by 'torchrl-agent train -m'.")
    return Override(key, Typed(value), word)


def values_of(word: str) -> list[str]:
    """An override once for each of the values that it lists: ``KEY=VALUE,VALUE``, ``KEY=choice(...)`` or
    ``KEY=range(...)``.

    Raises:
        ValueError: it is no override, or its values cannot be listed.
    """
    key, equals, value = word.partition("=")
    choice = _CHOICE.fullmatch(value)
    if equals and (choice or not _SWEEP.fullmatch(value)):
        return [f"{key}={each}" for each in split(choice[1] if choice else value)]
    try:
        override = OverridesParser.create().parse_override(word)
        return [f"{override.get_key_element()}={each}" for each in override.sweep_string_iterator()]
    except HydraException:
        raise ValueError(
            f"{word} lists no values: write KEY=VALUE, or several as KEY=VALUE,VALUE, KEY=choice(...) or "
            "KEY=range(...)."
        ) from None


def split(text: str) -> list[str]:
    """The parts of a text between its commas, without those in quotes or brackets."""
    parts, depth, quote = [""], 0, ""
    for place, mark in enumerate(text):
        escaped = place > 0 and text[place - 1] == "\\"
        if quote:
            quote = "" if mark == quote and not escaped else quote
        elif mark in "'\"" and parts[-1].strip(" [{(:") == "":  # elsewhere it is an apostrophe
            quote = mark
        elif mark == "," and depth == 0 and not escaped:
            parts.append("")
            continue
        else:
            depth += (mark in "([{") - (mark in ")]}")
        parts[-1] += mark
    return [part.strip() for part in parts]


# --- values by the type of their key ---------------------------------------------------------------------------------


def fitted(value: Any, hint: Any, name: str) -> Any:
    """Convert a value to the type of its key.

    - A :class:`Typed` value stays a text if the key is a text; otherwise it is read by Hydra's grammar.
    - A number for a section that says which key a number means, such as a learning rate's ``initial``, is that key.
    - A whole number may be typed as ``1e6``.

    Raises:
        ValueError: a value that cannot be read; the sentence names the key.
    """
    if isinstance(value, Typed):
        value = _read(value, hint, name)
    kind = without_none(hint)
    if isinstance(value, dict):
        hints, others = field_hints(hint), inner_hint(hint)
        return {key: fitted(each, hints.get(key, others), f"{name}.{key}") for key, each in value.items()}
    if isinstance(value, list):
        return [fitted(each, inner_hint(hint), name) for each in value]
    if hasattr(kind, "number_means") and isinstance(value, (int, float)) and not isinstance(value, bool):
        return {kind.number_means: value}
    if hasattr(kind, "number_means") and isinstance(value, str) and "${" not in value:
        try:
            return {kind.number_means: float(value)}
        except ValueError:
            raise ValueError(f"{name} is {value!r}: give a number, such as 3e-4.") from None
    return int(value) if kind is int and isinstance(value, float) and value.is_integer() else value


def _read(text: str, hint: Any, name: str) -> Any:
    """Read a typed value by the type of its key."""
    if text in NULLS and type(None) in get_args(hint):
        return None
    if is_text(hint):
        return _unquoted(text)
    if get_origin(hint) is list and is_text(inner_hint(hint)) and re.fullmatch(r"\[.*\]", text, re.DOTALL):
        return [_unquoted(each) for each in split(text[1:-1]) if each]
    try:
        return OverridesParser.create().parse_override(f"key={text}").value()
    except HydraException:
        if text[:1] in ("[", "{", "(", "'", '"') or "${" in text:
            raise ValueError(
                f"{name}={text} cannot be read: write lists as [a,b], keys as {{a: 1}}, and texts with anything but "
                "letters and digits in quotes."
            ) from None
        return str(text)


def quoted(text: str) -> str:
    """Quote a text, so that as an override's value it is read as this text."""
    escaped = re.sub(r"(['\\])", r"\\\1", text)
    return f"'{escaped}'"


def _unquoted(text: str) -> str:
    """A text without the quotes around it."""
    quoted = re.fullmatch(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"", text, re.DOTALL)
    if quoted is None:
        return str(text)
    return re.sub(r"\\(['\"\\])", r"\1", quoted[1] if quoted[1] is not None else quoted[2])


# --- types by key ----------------------------------------------------------------------------------------------------


def hint_at(root: Any, key: str) -> tuple[Any, bool]:
    """Type of a dotted key below a root type, Any if none is declared; and True if it is in a section that takes any
    keys.
    """
    hint, is_open = root, False
    for name in key.split("."):
        hints = field_hints(hint)
        is_open = is_open or get_origin(without_none(hint)) is dict
        hint = hints.get(name, inner_hint(hint))
    return hint, is_open


@functools.cache
def field_hints(hint: Any) -> dict[str, Any]:
    """Types of a dataclass's fields by name; empty for anything else."""
    kind = without_none(hint)
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        return {}
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in dataclasses.fields(kind)}


def inner_hint(hint: Any) -> Any:
    """Type of the items of a list or dictionary; Any for anything else."""
    kind = without_none(hint)
    return get_args(kind)[-1] if get_origin(kind) in (list, dict) else Any


def is_text(hint: Any) -> bool:
    """True if a type is a text, or one that may be missing."""
    return without_none(hint) is str


def without_none(hint: Any) -> Any:
    """A type without the None that it may be."""
    if get_origin(hint) in (Union, UnionType):
        return next(each for each in get_args(hint) if each is not type(None))
    return hint
