"""Bounds of a configuration's values: a number lies within its field's range, a word is one of its choices."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import torch

from torchrl_agent.core.text import did_you_mean

MOST = 1_000_000
"""Largest whole number that a key takes, unless its field says otherwise."""
MOST_STEPS = 1000
"""Largest number of steps that are taken one after another within one step of an agent."""
FRAMES = 2**53
"""Largest number of frames: exact in float64 too."""
SEED = 2**63 - 1
"""Largest seed."""
_ANYTHING = {"most": 2**63 - 1, "infinite": True, "float64": True}
"""Limits of values that are arguments of other code, such as a world's."""


def number(default: Any, **limits: Any) -> Any:
    """Return a dataclass field that is a number, or holds numbers, within limits.

    Args:
        default: its value; a function that makes it, for a list or a dictionary.
        **limits: ``least`` and ``most``, which belong to the range, ``above`` and ``below``, which do not;
            ``infinite=True`` where infinity means without bound.
    """
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=limits)
    return dataclasses.field(default=default, metadata=limits)


def choice(default: Any, words: Iterable[str]) -> Any:
    """Return a field that is one of the given words."""
    return dataclasses.field(default=default, metadata={"choices": tuple(words)})


def count(default: Any, most: int = MOST) -> Any:
    """Return a field that is a whole number of at least 1."""
    return number(default, least=1, most=most)


def share(default: Any) -> Any:
    """Return a field that is a fraction: within [0, 1]."""
    return number(default, least=0, most=1)


def weight(default: Any) -> Any:
    """Return a field that is the weight of a loss, a reward or a bonus: at least 0."""
    return number(default, least=0)


def any_number(default: Any) -> Any:
    """Return a field that may be any finite number."""
    return number(default, least=-math.inf)


_WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", list: "a list", dict: "keys"}


def check_ranges(config: Any, path: str = "") -> None:
    """Check every number and word of a configuration's dataclasses.

    Raises:
        ValueError: a number is not finite, beyond float32 or beyond its field's range, a word is none of the choices,
            or a list of numbers holds something else; the sentence names its key.
    """
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        _check(getattr(config, field.name), f"{path}{field.name}", hints[field.name], field.metadata)


def check_choice(value: object, words: Iterable[object], name: str) -> None:
    """Raise ValueError for a word that is none of the known ones, with the nearest of them."""
    if value not in words:
        known = ", ".join(map(str, words))
        raise ValueError(f"{name} is {value!r}{did_you_mean(value, words)}: use one of {known}.")


def _check(value: Any, name: str, hint: Any, limits: Mapping[str, Any]) -> None:
    if get_origin(hint) in (Union, UnionType):
        hint = next(each for each in get_args(hint) if each is not type(None))
    kind, inner = get_origin(hint) or hint, (get_args(hint) or (Any,))[-1]
    if dataclasses.is_dataclass(value):
        check_ranges(value, f"{name}.")
    elif isinstance(value, str) and "choices" in limits:
        check_choice(value, limits["choices"], name)
    elif value is None or isinstance(value, (str, bool)):
        return
    elif kind is not Any and isinstance(value, (list, dict)) != (kind in (list, dict)):
        raise ValueError(f"{name} is {value}: give {_WORDS[kind]}.")
    elif isinstance(value, dict):
        for key, each in value.items():
            _check(each, f"{name}.{key}", inner, limits)
    elif isinstance(value, list):
        for place, each in enumerate(value):
            _check(each, f"{name}[{place}]", inner, limits)
    else:
        _check_number(value, name, _ANYTHING if kind is Any else limits)


def _check_number(value: float, name: str, limits: Mapping[str, Any]) -> None:
    most = limits.get("most", MOST if isinstance(value, int) else math.inf)
    least = limits.get("least", -most)
    if isinstance(value, float):
        _check_float(value, name, limits)
    bounds = {
        f"within [{least}, {most}]": (least, most) == (0, 1) and not 0 <= value <= 1,
        f"above {limits.get('above')}": value <= limits.get("above", -math.inf),
        f"below {limits.get('below')}": value >= limits.get("below", math.inf) and not limits.get("infinite"),
        f"at least {least}": value < least,
        f"at most {most}": value > most and not (limits.get("infinite") and math.isinf(value)),
    }
    broken = [bound for bound, is_broken in bounds.items() if is_broken]
    if broken:
        raise ValueError(f"{name} is {value}: it must be {broken[0]}.")


def _check_float(value: float, name: str, limits: Mapping[str, Any]) -> None:
    if math.isnan(value) or (math.isinf(value) and not limits.get("infinite")):
        raise ValueError(f"{name} is {value}: give a finite number.")
    held = torch.tensor(value, dtype=torch.float32).item()
    if not limits.get("float64") and (math.isinf(held) > math.isinf(value) or (held == 0) > (value == 0)):
        raise ValueError(f"{name} is {value}: float32 would make {held:g} of it, give a number that it can hold.")
