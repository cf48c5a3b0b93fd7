"""Numbers of a configuration: each is finite and within its range, whatever key it stands under."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from types import MappingProxyType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import torch

MOST = 1_000_000
"""Largest whole number that a key takes, unless its field says otherwise."""
FRAMES = MappingProxyType({"most": 2**53})
"""Metadata of a field that counts frames: exact in float64 too."""
SEED = MappingProxyType({"most": 2**63 - 1})
"""Metadata of a field that is a seed."""
INFINITE = MappingProxyType({"infinite": True})
"""Metadata of a field in which infinity means without bound."""
OLD = MappingProxyType({"old": True})
"""Metadata of a field that has moved: null, unless a file of the last release says something there."""
_ANYTHING = {"most": 2**63 - 1, "infinite": True, "float64": True}
"""Of values that are somebody else's arguments, such as a world's."""
_WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", list: "a list", dict: "keys"}


def check_ranges(config: Any, path: str = "") -> None:
    """Walk through a configuration's dataclasses.

    Raises:
        ValueError: a number is not finite, beyond float32 or beyond its field's range, or something that is no number
            stands in a list of numbers; the sentence names its key.
    """
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        _check(getattr(config, field.name), f"{path}{field.name}", hints[field.name], field.metadata)


def _check(value: Any, name: str, hint: Any, limits: Mapping[str, Any]) -> None:
    if get_origin(hint) in (Union, UnionType):
        hint = next(each for each in get_args(hint) if each is not type(None))
    kind, inner = get_origin(hint) or hint, (get_args(hint) or (Any,))[-1]
    if dataclasses.is_dataclass(value):
        check_ranges(value, f"{name}.")
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


def _check_number(value: Any, name: str, limits: Mapping[str, Any]) -> None:
    most = limits.get("most", MOST if isinstance(value, int) else None)
    if most is not None and abs(value) > most:
        bound = f"at most {most}" if value > 0 else f"at least {-most}"
        raise ValueError(f"{name} is {value}: it must be {bound}.")
    if isinstance(value, float):
        if math.isnan(value) or (math.isinf(value) and not limits.get("infinite")):
            raise ValueError(f"{name} is {value}: give a finite number.")
        held = torch.tensor(value, dtype=torch.float32).item()
        if not limits.get("float64") and (math.isinf(held) > math.isinf(value) or (held == 0) > (value == 0)):
            raise ValueError(f"{name} is {value}: float32 would make {held:g} of it, give a number that it can hold.")
