"""Tables for a terminal and for files, and means with confidence intervals."""

from __future__ import annotations

import csv
import io
import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any


def printable(text: str) -> str:
    """Return text in which control characters, and others that change a terminal's output, are escaped."""
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in ("Cc", "Cf", "Cs")
        else character
        for character in text
    )


def aligned(rows: Sequence[Sequence[str]], words: int = 1) -> list[str]:
    """Return a line for each row of cells, with columns as wide as their widest cell: words are aligned left, numbers
    right.

    Args:
        rows: rows including the header, all of one length.
        words: number of first columns that hold words; the others hold numbers.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        cells = enumerate(zip(row, widths, strict=True))
        padded = (cell.ljust(width) if column < words else cell.rjust(width) for column, (cell, width) in cells)
        return "  ".join(padded).rstrip()

    return [line(row) for row in rows]


def markdown(rows: Sequence[Sequence[object]]) -> str:
    """Return rows of cells, the header first, as a table of Markdown with one line per row."""
    cells = [[str(value).strip().replace("|", "\\|") for value in row] for row in rows]
    header, *others = [f"| {' | '.join(line)} |" for line in cells]
    return "\n".join([header, "|" + "---|" * len(cells[0]), *others])


def as_csv(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return rows as CSV with a header; a cell that a row lacks is empty, and what is in no column is left out."""
    text = io.StringIO()
    table = csv.DictWriter(text, columns, restval="", extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()


# --- intervals -------------------------------------------------------------------------------------------------------


def interquartile_mean(values: Sequence[float]) -> float:
    """Return the mean of the middle half: a quarter of the values, rounded down, is left out at each end (Agarwal et
    al. 2021, "Deep reinforcement learning at the edge of the statistical precipice", section 4.3).
    """
    cut = len(values) // 4
    return fmean(sorted(values)[cut : len(values) - cut])


STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""97.5 % quantiles of Student's t by degrees of freedom."""


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and half the width of its 95 % interval (Student's t over seeds); infinite for a single value."""
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return sum(values) / len(values), math.inf  # of infinities of both signs nan, where fmean raises
    return fmean(values), student(len(values) - 1) * stdev(values) / math.sqrt(len(values))


def student(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t; beyond the table by its expansion about the normal quantile (M.
    Abramowitz and I. Stegun, "Handbook of Mathematical Functions", 1964, 26.7.5), within 0.001.
    """
    z = 1.959964
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return STUDENT.get(freedom, z + first / freedom + second / freedom**2)


def wilson(share: float, count: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a fraction of ``count`` cases (Wilson 1927, score interval)."""
    z = 1.96
    scale = 1 + z**2 / count
    middle = (share + z**2 / (2 * count)) / scale
    half = z * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2)) / scale
    return middle - half, middle + half
