"""Runs side by side: learning curves (``plot``) and tables of figures (``compare``), over the seeds of a configuration.

Runs whose stored configurations differ only in ``seed`` and in ``run`` (names, files) belong together. A seed that is
given again begins another group, so that no seed counts twice.
"""

from __future__ import annotations

import csv
import json
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from envs.toolkit.plain_yaml import read_yaml
from torchrl_agent.core.checkpoint import MODULE_FILE, read_json, write_output
from torchrl_agent.core.run_names import find_run, run_name_of, suggest_run
from torchrl_agent.core.tables import aligned, as_csv, interquartile_mean, markdown
from torchrl_agent.core.text import dotted
from torchrl_agent.runs.metrics import read_metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPEED = "time/fps"
METRIC = "rollout/ep_rew_mean"
"""Metric that is drawn by default."""
LEGEND_WIDTH = 88
"""Letters in a line of the legend."""
LINES = ("-", "--", ":", "-.")
"""Line styles: the next one each time the colors are used up."""
FIRST = ("run", "config", "seed", "frames", "seconds", "training_return", "return_mean", "win_rate")
"""Columns of the table, as far as the runs have them; others follow."""
STATISTICS = {"mean": "mean", "standard_deviation": "std", "interquartile_mean": "iqm"}
"""Statistics over runs, with their names in a table."""
FRAMES, WALL = "frames", "wall"
AXES = {FRAMES: "frames (steps summed over worlds)", WALL: "seconds of collecting and learning"}
"""Horizontal axes of learning curves."""
POINTS = 200
"""Number of points of a mean over runs against time, which have no times in common."""
RESAMPLES = 2000
"""Number of samples of the bootstrap."""
NAMED_DIFFERENCES = 3
"""Configurations that differ in more settings are labeled by a run's folder."""


@dataclass(frozen=True)
class Run:
    """A run folder and its configuration."""

    folder: Path
    name: str
    seed: int
    settings: dict[str, str]
    """The rest of the configuration, by dotted key, written as in YAML."""


@dataclass(frozen=True)
class Curve:
    """A metric over the seeds of a configuration; all [points]."""

    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def plot(folders: Sequence[Path], metrics: Sequence[str], output: Path, x: str = FRAMES, smooth: float = 0.0) -> Path:
    """Draw learning curves into ``output``, one panel per metric, and return its path.

    Args:
        metrics: columns of ``metrics.csv``.
        output: the file; its suffix is the format.
        x: horizontal axis, one of :data:`AXES`.
        smooth: see :func:`smoothed`.

    Raises:
        ValueError: a folder is not a run, a run has no such metric, or the file cannot be written.
    """
    check_format(output)
    if not 0 <= smooth < 1:
        raise ValueError(f"--smooth is {smooth:g}: give the weight of the values before, from 0 to below 1.")
    return write_figure(draw(group_runs(folders), list(dict.fromkeys(metrics)), x, smooth), output)


def compare(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Figures of runs, one entry per configuration.

    Returns:
        Entries with ``config``, ``runs`` (one row of figures each) and, where there are several, their ``mean`` and
        ``standard_deviation`` over seeds (of a sample, n - 1), of the figures that all of them have; of four or more
        runs also the ``interquartile_mean``.

    Raises:
        ValueError: a folder is not a run, or what it holds is damaged.
    """
    entries = []
    for label, runs in group_runs(folders).items():
        rows = [_figures(run) for run in runs]
        entry: dict[str, Any] = {"config": label, "runs": rows}
        if len(rows) > 1:
            known = [name for name in rows[0] if all(row.get(name) is not None for row in rows)]
            columns = {name: [row[name] for row in rows] for name in known if name not in ("run", "seed")}
            entry["mean"] = {name: fmean(column) for name, column in columns.items()}
            entry["standard_deviation"] = {name: stdev(column) for name, column in columns.items()}
        if len(rows) > 3:
            entry["interquartile_mean"] = {name: interquartile_mean(column) for name, column in columns.items()}
        entries.append(entry)
    return entries


def table(entries: Sequence[dict[str, Any]], form: str = "text") -> str:
    """The result of :func:`compare` as a table: ``text``, ``markdown`` or, with all digits, ``csv``."""
    rows: list[dict[str, Any]] = []
    for entry in entries:
        rows += [{**row, "config": entry["config"]} for row in entry["runs"]]
        for name, word in STATISTICS.items():
            if name in entry:
                rows.append({"run": "", "config": entry["config"], "seed": word, **entry[name]})
    present = list(dict.fromkeys(name for row in rows for name in row))
    columns = [*(name for name in FIRST if name in present), *(name for name in present if name not in FIRST)]
    if form == "csv":
        return as_csv(rows, columns).rstrip("\n")
    cells = [columns, *([_cell(row.get(name)) for name in columns] for row in rows)]
    return markdown(cells) if form == "markdown" else "\n".join(aligned(cells, words=2))


def group_runs(folders: Sequence[Path]) -> dict[str, list[Run]]:
    """The runs of each configuration, by a label that distinguishes the configurations; beside runs, folders of
    pre-trained modules are left out, so that ``runs/*`` may hold some.
    """
    folders = [find_run(folder) for folder in folders]
    folders = [folder for folder in folders if not (folder / MODULE_FILE).is_file()] or folders
    groups: dict[tuple, list[Run]] = {}
    given: set[Path] = set()
    for folder in folders:
        if folder.resolve() in given:
            raise ValueError(f"run {folder} is given twice: name each run once.")
        given.add(folder.resolve())
        run = _read_run(folder)
        configuration = (run.name, *sorted(run.settings.items()))
        repeats = 0
        while any(other.seed == run.seed for other in groups.get((repeats, *configuration), [])):
            repeats += 1
        groups.setdefault((repeats, *configuration), []).append(run)
    return dict(zip(_labels(list(groups.values())), groups.values(), strict=True))


def draw(groups: dict[str, list[Run]], metrics: Sequence[str], x: str = FRAMES, smooth: float = 0.0) -> Figure:
    """One panel per metric with one curve per configuration."""
    from matplotlib.figure import Figure  # slow to import, and only wanted here; such a figure needs no display
    from matplotlib.ticker import EngFormatter

    figure = Figure(figsize=(8, 1 + 0.25 * len(groups) + 3.2 * len(metrics)), layout="constrained")
    panels: list[Any] = list(figure.subplots(len(metrics), sharex=True, squeeze=False).flat)
    for panel, metric in zip(panels, metrics, strict=True):
        for index, (label, runs) in enumerate(groups.items()):
            curve = learning_curve([run.folder for run in runs], metric, x, smooth)
            color = COLORS[index % len(COLORS)]
            panel.plot(
                curve.x,
                curve.mean,
                color=color,
                linestyle=LINES[index // len(COLORS) % len(LINES)],
                marker="o" if len(curve.x) == 1 else "",
                label=_legend(label, runs),
            )
            if len(runs) > 1:
                panel.fill_between(curve.x, curve.low, curve.high, color=color, alpha=0.15, linewidth=0)
        panel.set_ylabel(metric)
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel(AXES[x])
    panels[-1].xaxis.set_major_formatter(EngFormatter())
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", frameon=False)
    return figure


def learning_curve(folders: Sequence[Path], metric: str, x: str = FRAMES, smooth: float = 0.0) -> Curve:
    """The mean of a metric over runs and its interval, at the frames where every one of them has a number, or between
    the times that all of them have reached.

    The interval is the 95 % bootstrap interval of the mean for three runs or more, smallest to largest for two.
    """
    curves = [_read_curve(folder, metric, x) for folder in folders]
    curves = [dict(zip(curve, smoothed(list(curve.values()), smooth), strict=True)) for curve in curves]
    if x == WALL and len(curves) > 1:
        begin, end = max(map(min, curves)), min(map(max, curves))
        places = list(np.linspace(begin, end, POINTS)) if begin <= end else []
        curves = [dict(zip(places, np.interp(places, list(c), list(c.values())), strict=True)) for c in curves]
    places = sorted(set(curves[0]).intersection(*curves[1:]))
    if not places:
        names = ", ".join(str(folder) for folder in folders)
        what = "times" if x == WALL else "frames"
        raise ValueError(f"{names} have no {what} in common with a number for {metric}: plot them one by one.")
    values = np.array([[curve[place] for place in places] for curve in curves])
    return Curve(np.array(places), values.mean(0), *_interval(values))


def smoothed(values: Sequence[float], weight: float) -> list[float]:
    """Running means of a series that weigh each value before the last one ``weight`` times less, as TensorBoard's do,
    corrected for their beginning.
    """
    total = count = 0.0
    result = []
    for value in values:
        total, count = weight * total + value, weight * count + 1
        result.append(total / count)
    return result


def _interval(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bounds [frames] of the mean of ``values`` [runs, frames]; the same values give the same bounds."""
    count = len(values)
    if count < 3:
        return values.min(0), values.max(0)
    drawn = np.random.default_rng(0).multinomial(count, [1 / count] * count, RESAMPLES)
    low, high = np.quantile(drawn @ values / count, (0.025, 0.975), axis=0)
    return low, high


def _read_run(folder: Path) -> Run:
    path = folder / "config.yaml"
    if not path.is_file():
        raise ValueError(
            f"{folder} is not a run (it has no config.yaml){suggest_run(folder)}: give a run folder, such as runs/NAME."
        )
    config = read_yaml(path)
    try:
        name, seed = str(config.pop("name")), config.pop("seed")
    except (AttributeError, TypeError, KeyError):
        raise ValueError(f"{path} is damaged or not a run's configuration: leave this run out.") from None
    rest = dotted({key: value for key, value in config.items() if key not in {"run", "defaults", "tuned"}})
    texts = {key: each if isinstance(each, str) else json.dumps(each, default=str) for key, each in rest.items()}
    return Run(folder, name, seed, texts)


def _labels(groups: list[list[Run]]) -> list[str]:
    """Names of configurations, with the settings in which those of one name differ, or else with their first run."""
    labels = []
    for run, *_ in groups:
        alike = [first.settings for (first, *_) in groups if first.name == run.name]
        names = sorted({name for settings in alike for name in settings})
        # a key that one of them lacks, such as of another algorithm's section, is no setting in which they differ
        differing = [name for name in names if len({each[name] for each in alike if name in each}) > 1]
        if len(differing) > NAMED_DIFFERENCES:
            differing = []
        labels.append(
            " ".join([run.name, *(f"{name}={run.settings[name]}" for name in differing if name in run.settings)])
        )
    return [
        f"{label} from {group[0].folder}" if labels.count(label) > 1 else label
        for label, group in zip(labels, groups, strict=True)
    ]


def _legend(label: str, runs: list[Run]) -> str:
    """Legend of a curve, in lines that fit the figure."""
    band = "smallest to largest" if len(runs) == 2 else "95\u00a0% bootstrap interval"
    what = f"seed {runs[0].seed}" if len(runs) == 1 else f"mean of {len(runs)} seeds, {band}"
    return textwrap.fill(f"{label} ({what})", LEGEND_WIDTH).replace("$", r"\$")


def _read_rows(folder: Path) -> list[dict[str, str]]:
    path = folder / "metrics.csv"
    try:
        rows = read_metrics(path) if path.is_file() else []
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is damaged ({error}): leave this run out.") from None
    if not rows:
        raise ValueError(f"{path} has no rows: let the run train for an iteration, or leave it out.")
    return rows


def _read_curve(folder: Path, metric: str, x: str) -> dict[float, float]:
    """The metric by frames or seconds, where it is a number."""
    rows = _read_rows(folder)
    if metric not in rows[0]:
        names = ", ".join(name for name in rows[0] if name and name != "frames")
        raise ValueError(f"run {folder} has no metric {metric}: give --metric one of {names}.")
    places = _seconds(rows, folder) if x == WALL else [_number(row, "frames", folder) for row in rows]
    curve = {place: _number(row, metric, folder) for place, row in zip(places, rows, strict=True)}
    curve = {place: value for place, value in curve.items() if math.isfinite(place) and math.isfinite(value)}
    if not curve:
        raise ValueError(f"run {folder} has no number for {metric} yet: let it train longer, or leave it out.")
    return curve


def _seconds(rows: Sequence[dict[str, str]], folder: Path) -> list[float]:
    """Seconds of collecting and learning until each row: the frames since the row before by their speed."""
    if SPEED not in rows[0]:
        raise ValueError(f"run {folder} has no metric {SPEED}, from which its time is known: use --x {FRAMES}.")
    frames = [0.0, *(_number(row, "frames", folder) for row in rows)]
    speeds = [_number(row, SPEED, folder) for row in rows]
    return list(
        accumulate((b - a) / (speed or math.nan) for (a, b), speed in zip(pairwise(frames), speeds, strict=True))
    )


def _number(row: dict[str, str], name: str, folder: Path) -> float:
    """A cell of metrics.csv; NaN if it is empty."""
    try:
        return float(row.get(name) or "nan")
    except ValueError:
        raise ValueError(
            f"{folder / 'metrics.csv'} is damaged ({name} is {row[name]!r}): fix that cell, or leave the run out."
        ) from None


def _figures(run: Run) -> dict[str, Any]:
    """A row of the table: from summary.json, or from metrics.csv for a run that has not finished."""
    path = run.folder / "summary.json"
    try:
        summary = read_json(path) if path.is_file() else _unfinished(run.folder)
        figures = {name: summary[name] for name in ("frames", "seconds")}
        figures |= {"training_return": summary["metrics"].get(METRIC), **summary.get("evaluation", {})}
        known = {name: value for name, value in figures.items() if value is not None and math.isfinite(value)}
    except (OverflowError, TypeError, AttributeError, KeyError):
        raise ValueError(f"{path} is damaged: delete it, or leave this run out.") from None
    return {"run": run_name_of(run.folder), "seed": run.seed, **dict.fromkeys(figures), **known}


def _unfinished(folder: Path) -> dict[str, Any]:
    """Content of summary.json, as far as it is known before the run has finished."""
    last = _read_rows(folder)[-1]
    frames, score = (_number(last, name, folder) for name in ("frames", METRIC))
    return {"frames": frames, "seconds": None, "metrics": {METRIC: score}}


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 or value.is_integer() else f"{value:.4g}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


# --- metrics ---------------------------------------------------------------------------------------------------------

FORMATS = (".png", ".svg", ".pdf")
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Colors of Okabe and Ito, which color-blind people can distinguish."""


def check_format(output: Path, formats: Sequence[str] = FORMATS) -> None:
    """Raise ValueError unless a figure can be written as a file of that name."""
    if output.suffix.lower() not in formats:
        raise ValueError(
            f"a figure cannot be written as {output.name!r}: use a name that ends in {', '.join(formats)}."
        )


def write_figure(figure: Figure, output: Path, about: dict[str, str] | None = None, option: str = "--output") -> Path:
    """Write a figure, atomically, and return its path.

    Args:
        output: the file; its suffix is the format.
        about: metadata in words that the format knows, such as ``Title`` and ``Description``.
        option: of the command that named the file, for the error.

    Raises:
        ValueError: the file cannot be written.
    """
    form = output.suffix[1:].lower()
    return write_output(output, lambda file: figure.savefig(file, format=form, dpi=150, metadata=about), option)
