"""Descent of the members in a population's run, as a picture: generations from left to right, members from top to
bottom, lines from parents to children, colored by fitness.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchrl_agent.runs.metrics import read_metrics
from torchrl_agent.runs.report import COLORS, check_format, write_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
"""Formats that hold an alternative text."""
PICTURE = "lineage.png"
SECOND_PARENT, FIRST_PARENT = COLORS[:2]


@dataclass(frozen=True)
class Lineage:
    """Evolution steps of a population, oldest first."""

    frames: list[int]
    """Frames of each step."""
    fitness: list[list[float]]
    """Fitness of each member at each step; NaN where too little was known."""
    parents: list[dict[int, tuple[int, int]]]
    """For each step, the two parents of each member that was replaced; they may be the same."""


def read_lineage(run: Path) -> Lineage:
    """Read the lineage of a run from its members.csv and lineage.csv.

    Raises:
        ValueError: the run has had no evolution step, or its tables are damaged.
    """
    path = run / "members.csv"
    if not path.is_file():
        raise ValueError(
            f"{run} has no members.csv: give the run of a population that evolves, after its first evolution step."
        )
    try:
        rows = read_metrics(path)
        frames = sorted({int(row["frames"]) for row in rows})
        members = 1 + max(int(row["member"]) for row in rows)
        fitness = [[math.nan] * members for _ in frames]
        for row in rows:
            fitness[frames.index(int(row["frames"]))][int(row["member"])] = float(row["fitness"])
        parents: list[dict[int, tuple[int, int]]] = [{} for _ in frames]
        path = run / "lineage.csv"
        for row in read_metrics(path) if path.is_file() else []:
            pair = int(row["parent"]), int(row["second_parent"])
            if not 0 <= min(pair) <= max(pair) < members:
                raise ValueError("no such parent")
            parents[frames.index(int(row["frames"]))][int(row["child"])] = pair
    except (KeyError, TypeError, ValueError, UnicodeDecodeError, csv.Error):
        raise ValueError(f"{path} is damaged: leave this run out.") from None
    return Lineage(frames, fitness, parents)


def plot_lineage(run: Path, output: Path) -> Path:
    """Draw a run's lineage into ``output``, with a description as its alternative text, and return its path.

    Raises:
        ValueError: the run has no lineage, or the file cannot be written.
    """
    check_format(output, FORMATS)
    lineage = read_lineage(run)
    about = {"Title": f"Lineage of {run.resolve().name}", "Description": describe(lineage)}
    return write_figure(draw(lineage), output, about)


def describe(lineage: Lineage) -> str:
    """The picture in words."""
    births, last = sum(len(each) for each in lineage.parents), lineage.fitness[-1]
    known = [value for value in last if not math.isnan(value)]
    fittest = f", the fittest at the last one {max(known):.4g}" if known else ""
    two = sum(first != second for each in lineage.parents for first, second in each.values())
    return (
        f"Who descends from whom among {len(last)} members over {len(lineage.frames)} steps: {births} were replaced, "
        f"{two} of them by children of two parents{fittest}."
    )


def draw(lineage: Lineage) -> Figure:
    """Members [top to bottom] at every evolution step [left to right], and once more after the last."""
    from matplotlib.figure import Figure  # slow to import, and only wanted here; such a figure needs no display

    steps, members = len(lineage.frames), len(lineage.fitness[0])
    figure = Figure(figsize=(2.5 + 0.6 * (steps + 1), 1.5 + 0.35 * members), layout="constrained")
    panel: Any = figure.subplots()
    _draw_lines(panel, lineage)
    points = [(step, member, value) for step, row in enumerate(lineage.fitness) for member, value in enumerate(row)]
    judged = [point for point in points if not math.isnan(point[2])]
    unknown = [point[:2] for point in points if math.isnan(point[2])] + [(steps, member) for member in range(members)]
    panel.scatter(*zip(*unknown, strict=True), facecolor="white", edgecolor="0.6", s=40, zorder=3)
    if judged:
        x, y, fitness = zip(*judged, strict=True)
        figure.colorbar(panel.scatter(x, y, c=fitness, cmap="viridis", s=55, zorder=3), label="fitness")
    panel.set_xticks(range(steps + 1), [f"{frames:,}" for frames in lineage.frames] + ["now"], rotation=45, ha="right")
    panel.set_yticks(range(members))
    panel.invert_yaxis()
    panel.set(xlabel="frames of each member at the evolution step", ylabel="member")
    panel.spines[["top", "right"]].set_visible(False)
    for color, style, label in ((FIRST_PARENT, "-", "first parent"), (SECOND_PARENT, "--", "second parent")):
        panel.plot([], [], color=color, linestyle=style, label=label)
    figure.legend(loc="outside upper left", ncols=2, frameon=False)
    return figure


def _draw_lines(panel: Any, lineage: Lineage) -> None:
    """Lines from every evolution step to the next: members that stayed in gray, children to each of their parents."""
    for step, parents in enumerate(lineage.parents):
        for member in range(len(lineage.fitness[0])):
            if member not in parents:
                panel.plot([step, step + 1], [member, member], color="0.8", zorder=1)
                continue
            first, second = parents[member]
            panel.plot([step, step + 1], [first, member], color=FIRST_PARENT, zorder=2)
            if second != first:
                panel.plot([step, step + 1], [second, member], color=SECOND_PARENT, linestyle="--", zorder=2)
