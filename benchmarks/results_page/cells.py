"""Cells of the tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torchrl_agent.core.tables import interval

Table = tuple[list[str], list[list[str]]]
"""Header and rows of cells."""
SPEEDS = {"mode": "mode", "world": "world", "world + policy": "world_policy", "training": "training"}
MEMORY = {"compile, s": "compile_seconds", "memory, MB": "peak_memory_mb"}
"""Columns of `torchrl-agent bench speed`."""


def number(value: float | str | None) -> str:
    """Return a number with four digits, whole ones in full; text as it is, and nothing for None."""
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def spread(values: Sequence[float]) -> str:
    """Return mean ± half the width of the 95 % interval over seeds; a single value alone."""
    return plus_minus(*interval(values)) if len(values) > 1 else number(values[0])


def plus_minus(mean: float, half: float) -> str:
    """Return mean ± half the width of an interval, both with the decimals that show two digits of the latter."""
    decimals = max(0, 1 - math.floor(math.log10(half))) if half else 1
    return f"{mean:,.{decimals}f} ± {half:,.{decimals}f}"


def between(values: Iterable[float], scale: float = 1.0, unit: str = "") -> str:
    """Return the range of some values, multiplied by ``scale``."""
    ordered = sorted(values)
    ends = dict.fromkeys(f"{each * scale:.3g}" for each in (ordered[0], ordered[-1]))
    return " to ".join(ends) + unit


def joined(seeds: Sequence[int]) -> str:
    """Return seeds in words, with those that follow each other as a range."""
    ranges: list[list[int]] = []
    for seed in sorted(seeds):
        if ranges and seed == ranges[-1][-1] + 1:
            ranges[-1].append(seed)
        else:
            ranges.append([seed])
    return ", ".join(f"{each[0]} to {each[-1]}" if len(each) > 1 else str(each[0]) for each in ranges)


def yes(value: bool) -> str:
    """Return yes or no."""
    return "yes" if value else "no"


def only(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> Table:
    """Return a table of some columns.

    Args:
        rows: rows of a file.
        columns: keys of the rows, by header.
    """
    return list(columns), [[number(row.get(key)) for key in columns.values()] for row in rows]
