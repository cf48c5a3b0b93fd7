"""Figures as files: the formats that they may have, their colors, and how they are written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchrl_agent.training.checkpoint import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Of Okabe and Ito: color-blind people tell them apart."""


def check_format(output: Path, formats: Sequence[str] = FORMATS) -> None:
    """Raise ValueError unless a figure can be written as a file of that name."""
    if output.suffix.lower() not in formats:
        raise ValueError(
            f"a figure cannot be written as {output.name!r}: use a name that ends in {', '.join(formats)}."
        )


def write_figure(figure: Figure, output: Path, about: dict[str, str] | None = None, option: str = "--output") -> Path:
    """Write a figure, atomically, and return its path.

    Args:
        figure: what to write.
        output: the file; its suffix is the format.
        about: metadata in words that the format knows, such as ``Title`` and ``Description``.
        option: of the command that named the file, for the error.

    Raises:
        ValueError: the file cannot be written.
    """
    form = output.suffix[1:].lower()
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(output, lambda file: figure.savefig(file, format=form, dpi=150, metadata=about))
    except (OSError, ValueError):
        raise ValueError(f"{output} cannot be written: choose another file with {option}.") from None
    return output
