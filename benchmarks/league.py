"""Gain of a league: its members against their past selves, against members that met only themselves or a scripted
player, and the exploitability of each.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.arguments import add_config
from torchrl_agent.cli.arguments import add_seeds
from torchrl_agent.core.tables import interval
from torchrl_agent.evaluation.exploitability import exploitability, exploiters_of
from torchrl_agent.evaluation.matches import Competitor, check_games, competitors_of, play_tournament, snapshots_of
from torchrl_agent.experiment import Experiment
from torchrl_agent.experiment.judging import WAYS
from torchrl_agent.population.config import LeagueConfig
from torchrl_agent.population.league import make_seats
from torchrl_agent.population.seats import SEATS
from torchrl_agent.runs.run import train

TEACHER = "turret"
"""The scripted player that is the only opponent of the third population."""
WAY = list(WAYS)[1]
"""Way of acting in which members are evaluated: by sampled actions, as in training."""
OLDER = "against its members' older selves"
AGE = "Kendall's tau of the age of their past selves and the share taken from them"
WON = 0.55
"""A fraction of the points above this is better beyond chance."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a league, seeds, games and the exploiters' frames."""
    add_config(parser, "duel_league", "a league")
    add_seeds(parser)
    parser.add_argument("--games", type=int, default=64, help="games of each pair of players (64)")
    parser.add_argument(
        "--exploit-frames", type=int, default=1_000_000, help="frames of each exploiter, 0 for none (1,000,000)"
    )


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Measure, and print the figures beside the criteria."""
    result = measure_league(parsed.config, parsed.overrides, parsed.seeds, parsed.games, parsed.exploit_frames)
    for question, found in result["found"].items():
        print(f"{question}: {found['mean']:.3f} +- {found['half_width']:.3f}, asked {found['asked']}")
    return result


def measure_league(
    config: str, overrides: Sequence[str], seeds: Sequence[int], games: int, exploit_frames: int
) -> dict[str, Any]:
    """Train, for each seed, a league, as many members that meet themselves alone, and as many that meet a scripted
    player alone: equal updates, frames of learning, and initial weights.

    Args:
        config: a league.
        overrides: changes of it.
        seeds: seeds of the trainings.
        games: number of games of each pair of players.
        exploit_frames: number of frames of each exploiter; 0 leaves exploiters out.

    Returns:
        ``of_each_seed``: fractions of the points; ``found``: their means with half the widths of their intervals.

    Raises:
        ValueError: the configuration has no league, or has too few snapshots to evaluate; an odd number of games, or
            a negative number of frames.
    """
    check_games(games)  # before any training
    if exploit_frames < 0:
        raise ValueError(f"--exploit-frames is {exploit_frames}: give 0 for no exploiters, or more.")
    rows = []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(_measure(config, [*overrides, f"seed={seed}"], Path(folder), games, exploit_frames))
    asked = {
        OLDER: f"above {WON}",
        AGE: "above 0.8",
        "against members that met themselves alone": f"above {WON}",
        f"against members that met the {TEACHER} alone": f"above {WON}",
        "exploited less than members that met themselves alone": "above 0",
        f"exploited less than members that met the {TEACHER} alone": "above 0",
    }
    found = {}
    for what, wanted in asked.items():
        if what not in rows[0]:  # no exploiters
            continue
        mean, half = interval([row[what] for row in rows])
        found[what] = {"mean": mean, "half_width": half, "asked": wanted}
    return {
        "seeds": list(seeds),
        "games": games,
        "exploit_frames": exploit_frames,
        "of_each_seed": rows,
        "found": found,
    }


def _measure(config: str, overrides: Sequence[str], folder: Path, games: int, exploit_frames: int) -> dict[str, Any]:
    league = Experiment.load(config, *overrides)
    if not league.league.enabled:
        raise ValueError(f"configuration {config} has no league: set league.enabled=true.")
    if 2 * league.league.snapshot_every >= league.total_frames:
        raise ValueError(
            f"league.snapshot_every is {league.league.snapshot_every}: keep a snapshot in the first half of "
            f"{league.total_frames} frames, to be judged against."
        )
    exploiters = {}
    for name, experiment in {"league": league, **rivals(league)}.items():
        quiet = dataclasses.replace(experiment.run, tensorboard=False, film=False, final_evaluation=False)
        _finish(dataclasses.replace(experiment, run=dataclasses.replace(quiet, folder=str(folder), name=name)))
        if exploit_frames:
            exploiters[name] = exploiters_of(folder / name, 2, exploit_frames, experiment.device)
            _finish(exploiters[name])
    exploited = {name: exploitability(experiment, games)[WAY]["mean"] for name, experiment in exploiters.items()}
    return {**_judge(league, folder, games), **(_differences(exploited) if exploited else {})}


def _judge(league: Experiment, folder: Path, games: int) -> dict[str, Any]:
    """Return the fractions of the points that trained populations take from each other."""
    members = {name: competitors_of(folder / name, device=league.device) for name in ("league", *rivals(league))}
    everybody, scripted = [each for group in members.values() for each in group], ("scripted", TEACHER)
    played = play_tournament(league, [*everybody, *map(Competitor, scripted)], games)[WAY]
    shares, size = played.standings(len(everybody) + len(scripted)).shares(0), len(members["league"])
    at = {name: slice(index * size, (index + 1) * size) for index, name in enumerate(members)}
    return {
        **_against_past(league, folder / "league", members["league"], games),
        "against members that met themselves alone": shares[at["league"], at["alone"]].mean().item(),
        f"against members that met the {TEACHER} alone": shares[at["league"], at["fixed"]].mean().item(),
        "against scripted players": {
            name: dict(zip(scripted, shares[at[name], -2:].mean(0).tolist(), strict=True)) for name in members
        },
    }


def _differences(exploited: dict[str, float]) -> dict[str, Any]:
    return {
        "exploited": exploited,
        "exploited less than members that met themselves alone": exploited["alone"] - exploited["league"],
        f"exploited less than members that met the {TEACHER} alone": exploited["fixed"] - exploited["league"],
    }


def rivals(league: Experiment) -> dict[str, Experiment]:
    """Return the populations that a league is compared with, whose members learn from as many rows in as many updates:
    ``alone``, which meet themselves, and ``fixed``, which meet one scripted player.
    """
    worlds = league.world["num_envs"]
    rows = make_seats(league.league, league.population.members, worlds).members.shape[1]
    settings = {
        "alone": (rows // SEATS, LeagueConfig()),
        "fixed": (rows, LeagueConfig(True, 0.0, scripted={TEACHER: 1.0})),
    }
    return {
        name: dataclasses.replace(
            league,
            world={**league.world, "num_envs": count},
            total_frames=league.total_frames * count // worlds,
            league=config,
        )
        for name, (count, config) in settings.items()
    }


def _finish(experiment: Experiment) -> None:
    for _ in train(experiment):
        pass


def _against_past(league: Experiment, run: Path, members: Sequence[Competitor], games: int) -> dict[str, Any]:
    """Return the fractions of the points that members take from their own snapshots, by the snapshots' frames."""
    by_frames: dict[int, list[float]] = {}
    snapshots = snapshots_of(run, league.device)
    for index, member in enumerate(members):
        past = [each for each in snapshots if each.member == index]
        met = [member, *(Competitor(f"{each.frames}", each.agent) for each in past)]
        table = play_tournament(league, met, games)[WAY].standings(len(met)).shares(0)
        for each, share in zip(past, table[0, 1:].tolist(), strict=True):
            by_frames.setdefault(each.frames, []).append(share)
    frames = sorted(by_frames)
    shares = [fmean(by_frames[each]) for each in frames]
    return {
        OLDER: fmean(share for each, share in zip(frames, shares, strict=True) if each < league.total_frames // 2),
        AGE: rank_correlation([-each for each in frames], shares),
        "against its members' past, oldest first": shares,
    }


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Kendall's tau of two series: concordant minus discordant pairs, as a fraction of all pairs; ties count for
    neither (M. G. Kendall, "A New Measure of Rank Correlation", 1938, tau-a).

    Raises:
        ValueError: fewer than two values, or series of unequal length.
    """
    if len(first) < 2 or len(first) != len(second):
        raise ValueError(
            f"there is no rank correlation of {len(first)} and {len(second)} values: give two or more each."
        )
    pairs = list(combinations(zip(first, second, strict=True), 2))
    products = [(one[0] - other[0]) * (one[1] - other[1]) for one, other in pairs]
    return sum((product > 0) - (product < 0) for product in products) / len(pairs)
