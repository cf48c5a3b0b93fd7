"""Numbers and tables of the page of one step, for a terminal and as HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from torch import Tensor

from torchrl_agent.core.tables import aligned

MOST_DIGITS = 6
"""Largest number of decimals, for numbers that hardly differ."""


@dataclass(frozen=True)
class Table:
    """Rows of words below a header."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def as_lines(table: Table) -> list[str]:
    """Return the table as lines for a terminal."""
    return [f"  {line}" for line in aligned([table.header, *table.rows], words=len(table.header))]


def as_html_table(table: Table) -> str:
    """Return the table as HTML."""

    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return "<table>" + row(table.header, "th") + "".join(row(cells, "td") for cells in table.rows) + "</table>"


def as_number(value: Tensor | float) -> str:
    """Return a single number with two decimals."""
    return f"{float(value):.2f}"


def as_numbers(values: Tensor) -> list[str]:
    """Return numbers [...] that are compared with each other, row by row: with two decimals, or as many more as show
    two digits of their spread.
    """
    spread = float(values.max() - values.min()) if values.numel() else 0.0
    digits = 1 - math.floor(math.log10(spread)) if 0 < spread < math.inf else 2
    return [f"{value:.{min(max(digits, 2), MOST_DIGITS)}f}" for value in values.flatten().tolist()]
