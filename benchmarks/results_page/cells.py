"""Sections, tables and their cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from torchrl_agent.core.tables import interval

Table = tuple[list[str], list[list[str]]]
"""Header and rows of cells."""
SPEEDS = {"world": "world", "world + policy": "world_policy", "training": "training"}
MEMORY = {"compile, s": "compile_seconds", "memory, MB": "peak_memory_mb"}
"""Columns of `torchrl-agent bench speed`."""


class Section(NamedTuple):
    """A table of a page."""

    title: str
    files: tuple[str, ...]
    table: Callable[..., Table]
    """Function of the contents of the files."""
    note: str
    """Sentence on how to read the table."""


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
    ends = (each * scale for each in (ordered[0], ordered[-1]))
    texts = dict.fromkeys(f"{each:,.0f}" if each >= 1e3 else f"{each:.3g}" for each in ends)
    return " to ".join(texts) + unit


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


def by_mode(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str], figures: Mapping[str, str]) -> Table:
    """Return a table of some columns, with the figures of rows that differ in the mode in one cell: eager / compiled.

    Args:
        rows: rows of a file.
        columns: keys of what the modes have in common, by header.
        figures: keys of the figures, by header.
    """
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in columns.values()), []).append(row)
    cells = [
        [*map(number, common), *(" / ".join(number(row[key]) for row in group) for key in figures.values())]
        for common, group in groups.items()
    ]
    return [*columns, *figures], cells
