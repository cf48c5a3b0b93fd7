"""Tables and other text for a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence


def printable(text: str) -> str:
    """Text in which control characters, and others that change how a terminal shows what follows, are written out."""
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in ("Cc", "Cf", "Cs")
        else character
        for character in text
    )


def aligned(rows: Sequence[Sequence[str]], words: int = 1) -> list[str]:
    """A line for each row of cells, in which the cells of a column are as wide as the widest of them: words begin below
    each other, numbers end below each other.

    Args:
        rows: the header among them, all of one length.
        words: so many of the first columns hold words, the others numbers.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        cells = enumerate(zip(row, widths, strict=True))
        padded = (cell.ljust(width) if column < words else cell.rjust(width) for column, (cell, width) in cells)
        return "  ".join(padded).rstrip()

    return [line(row) for row in rows]
