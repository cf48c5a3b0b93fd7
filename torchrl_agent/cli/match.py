"""``torchrl-agent match``, ``league`` and ``exploit``: games of agents against each other."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchrl_agent.cli.arguments import add_agent, add_json, add_trust, check_least, print_json, run_of
from torchrl_agent.cli.train import follow
from torchrl_agent.core.tables import aligned
from torchrl_agent.evaluation.exploitability import exploitability, exploiters_of
from torchrl_agent.evaluation.matches import match, rate_league
from torchrl_agent.experiment.judging import WAYS
from torchrl_agent.population.ratings import LEAST_GAMES
from torchrl_agent.runs.report import check_format, write_figure
from torchrl_agent.runs.run import train

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def add_match(parser: argparse.ArgumentParser) -> None:
    """Add the two players and the number of games."""
    for name in ("one", "other"):
        parser.add_argument(name, metavar=name.upper(), help="a run, a member's folder, or a scripted player's name")
    parser.add_argument("--games", type=int, default=512, help="games, half of them from each seat (512)")
    parser.add_argument("--seed", type=int, help="seed of the worlds")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    add_json(parser)
    add_trust(parser)


def run_match(parsed: argparse.Namespace) -> None:
    """Play the match, and print the fractions of the points."""
    result = match(parsed.one, parsed.other, parsed.games, parsed.device, parsed.seed)
    for way in WAYS:
        found = result[way]
        print(
            f"{way} actions: {parsed.one} takes {found['share']:.3f} ({found['low']:.3f} to {found['high']:.3f}) of "
            f"the points against {parsed.other}: {found['won']} won, {found['drawn']} drawn, {found['lost']} lost"
        )
    print_json(parsed, result)


# --- league ----------------------------------------------------------------------------------------------------------


def add_league(parser: argparse.ArgumentParser) -> None:
    """Add the players of the league."""
    parser.add_argument("run_folders", metavar="RUN", nargs="+", help="runs; of populations all members take part")
    parser.add_argument("--games", type=int, default=64, help="games of each pair of players (64)")
    parser.add_argument("--snapshots", type=int, default=8, help="past selves of each league that take part (8)")
    parser.add_argument("--stochastic", action="store_true", help="report sampled actions instead of the most likely")
    parser.add_argument("--picture", metavar="FILE", help="draw ratings and table: .png, .svg or .pdf")
    parser.add_argument("--seed", type=int, help="seed of the worlds")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    add_json(parser)
    add_trust(parser)


def run_league(parsed: argparse.Namespace) -> None:
    """Print ratings, best first, and the fractions of the points beside them."""
    check_least(parsed, snapshots=0)
    if parsed.picture is not None:
        check_format(Path(parsed.picture))
    result = rate_league(parsed.run_folders, parsed.games, parsed.snapshots, parsed.device, parsed.seed)
    way = list(WAYS)[parsed.stochastic]
    print("\n".join(table(result, way)))
    if parsed.picture is not None:
        print(write_figure(draw(result, way), Path(parsed.picture), option="--picture"))
    print_json(parsed, result)


def table(result: dict[str, Any], way: str) -> list[str]:
    """Return lines of text: every player's rating and its fraction of the points against all others, by number."""
    names, found = result["players"], result[way]
    order = sorted(range(len(names)), key=lambda index: -found["rating"][index])
    lines = [f"{way} actions, {result['games']} games of each two, in hundredths of the points (row against column)"]
    rows = [["", "player", "rating", *(str(place) for place in range(1, len(names) + 1))]]
    for place, index in enumerate(order, 1):
        rated = f"{found['rating'][index]:.0f} +- {1.96 * found['error'][index]:4.0f}"
        shares = ["." if other == index else f"{100 * found['shares'][index][other]:.0f}" for other in order]
        rows.append([str(place), names[index], rated, *shares])
    lines += aligned(rows, words=2)
    if result["games"] >= LEAST_GAMES:
        lines.append(f"one number per player hides up to {found['misfit']:.2f} of a share")
    return lines


def draw(result: dict[str, Any], way: str) -> Figure:
    """Draw ratings with their intervals beside the table of fractions of the points, best player first."""
    from matplotlib.figure import Figure  # slow to import, and only needed here; such a figure needs no display

    found = result[way]
    order = sorted(range(len(result["players"])), key=lambda index: -found["rating"][index])
    names, places = [result["players"][index] for index in order], range(len(order))
    figure = Figure(figsize=(4 + 0.5 * len(order), 1.5 + 0.35 * len(order)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[1, 2])
    errors = [1.96 * found["error"][index] for index in order]
    left.errorbar([found["rating"][index] for index in order], places, xerr=errors, fmt="o", capsize=3)
    left.set_yticks(places, [name.replace("$", r"\$") for name in names])  # no formulas
    left.set_xlabel("rating (400 points: odds of 10 to 1)")
    left.grid(alpha=0.3)
    shares = [[found["shares"][row][column] for column in order] for row in order]
    image = right.imshow(shares, vmin=0, vmax=1, cmap="RdBu", aspect="auto")
    right.set_xticks(places, names, rotation=90)
    figure.colorbar(image, ax=right, label="share of the points, row against column")
    return figure


# --- exploitability --------------------------------------------------------------------------------------------------


def add_exploit(parser: argparse.ArgumentParser) -> None:
    """Add the agent to exploit, and the extent of the training."""
    add_agent(parser)
    parser.add_argument("--frames", type=int, default=5_000_000, help="frames that each trains for (5,000,000)")
    parser.add_argument("--members", type=int, default=4, help="members that train, each with its own seed (4)")
    parser.add_argument("--games", type=int, default=512, help="games of each in the end (512)")
    parser.add_argument("--name", help="name of the run that this makes (the run's with _exploit)")
    add_json(parser)


def run_exploit(parsed: argparse.Namespace) -> int:
    """Train exploiters, and print the fraction of the points that they take."""
    check_least(parsed, frames=1, members=1)
    experiment = exploiters_of(run_of(parsed), parsed.members, parsed.frames, parsed.device, parsed.name)
    stopped = follow(train(experiment), experiment)
    if stopped:
        return stopped
    found = exploitability(experiment, parsed.games)
    for way in WAYS:
        result = found[way]
        half = "" if math.isinf(result["half_width"]) else f" +- {result['half_width']:.3f}"
        print(
            f"{way} actions: after {found['frames']:,} frames the best of {parsed.members} takes {result['best']:.3f} "
            f"of the points against {found['target']}, the mean {result['mean']:.3f}{half}"
        )
    print_json(parsed, found)
    return 0
