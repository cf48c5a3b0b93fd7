"""Tables of the page about one step, for a terminal and as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Table:
    """Rows of words below a header."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def aligned(table: Table) -> list[str]:
    """Lines for a terminal."""
    rows = [table.header, *table.rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.header))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def as_html_table(table: Table) -> str:
    """The same as HTML."""

    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return "<table>" + row(table.header, "th") + "".join(row(cells, "td") for cells in table.rows) + "</table>"
