"""Tables of the page about one step, for a terminal and as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from torchrl_agent.tables import aligned


@dataclass(frozen=True)
class Table:
    """Rows of words below a header."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def as_lines(table: Table) -> list[str]:
    """Lines for a terminal."""
    return [f"  {line}" for line in aligned([table.header, *table.rows], words=len(table.header))]


def as_html_table(table: Table) -> str:
    """The same as HTML."""

    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return "<table>" + row(table.header, "th") + "".join(row(cells, "td") for cells in table.rows) + "</table>"
