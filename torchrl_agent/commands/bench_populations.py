"""What ``torchrl-agent bench`` measures of several agents, or of several processes."""

from __future__ import annotations

import argparse
from typing import Any

from torchrl_agent.benchmarks import distributed, families, lag, league, population
from torchrl_agent.commands.arguments import add_overrides, add_seeds, check_least, print_table
from torchrl_agent.training.checkpoint import versions


def _add_config(parser: argparse.ArgumentParser, default: str, what: str) -> None:
    parser.add_argument("config", nargs="?", default=default, help=what)
    add_overrides(parser)


def _told(parsed: argparse.Namespace, result: dict[str, Any]) -> dict[str, Any]:
    """A result with what it was measured of."""
    return {"config": parsed.config, "overrides": parsed.overrides, "versions": versions(), **result}


def _add_population(parser: argparse.ArgumentParser) -> None:
    _add_config(parser, "arena", "a configuration of one agent (arena)")
    parser.add_argument("--members", type=int, default=8, help="members of the population (8)")


def _population(parsed: argparse.Namespace) -> dict[str, Any]:
    """Speed of members that learn in one program, beside as many runs one after another."""
    check_least(parsed, members=2)
    result = population.measure_speed(parsed.config, parsed.overrides, parsed.members)
    print_table(result)
    return _told(parsed, result)


def _add_evolution(parser: argparse.ArgumentParser) -> None:
    _add_config(parser, "arena_pbt", "a population that evolves (arena_pbt)")
    add_seeds(parser)
    parser.add_argument("--episodes", type=int, default=64, help="unseen episodes by which each member is judged (64)")


def _evolution(parsed: argparse.Namespace) -> dict[str, Any]:
    """What evolution gains over the same members without it, at equal frames and first genes, over seeds."""
    result = population.measure_evolution(parsed.config, parsed.overrides, parsed.seeds, parsed.episodes)
    for what in ("best", "median"):
        found = result[what]["difference"]
        print(f"{what} member: {found['mean']:+,.4g} +- {found['half_width']:,.3g} over random search")
    return _told(parsed, result)


def _add_league(parser: argparse.ArgumentParser) -> None:
    _add_config(parser, "duel_league", "a league (duel_league)")
    add_seeds(parser)
    parser.add_argument("--games", type=int, default=64, help="games of each two players (64)")
    parser.add_argument(
        "--exploit-frames", type=int, default=1_000_000, help="frames of each exploiter, 0 for none (1,000,000)"
    )


def _league(parsed: argparse.Namespace) -> dict[str, Any]:
    """What a league gains over members that meet only themselves, or a scripted player, at equal frames, over seeds."""
    result = league.measure_league(parsed.config, parsed.overrides, parsed.seeds, parsed.games, parsed.exploit_frames)
    for what, found in result["found"].items():
        print(f"{what}: {found['mean']:.3f} +- {found['half_width']:.3f}, asked {found['asked']}")
    return _told(parsed, result)


def _add_matches(parser: argparse.ArgumentParser) -> None:
    _add_config(parser, "duel", "a configuration with two seats (duel)")
    parser.add_argument("--players", type=int, default=8, help="agents that take part (8)")
    parser.add_argument("--rows", type=int, default=4096, help="seats in all (4096)")


def _matches(parsed: argparse.Namespace) -> dict[str, Any]:
    """How much longer several agents take to act in the seats of as many worlds than one."""
    check_least(parsed, players=1)
    result = league.measure_matches(parsed.config, parsed.overrides, parsed.players, parsed.rows)
    print_table(result)
    return _told(parsed, result)


def _add_distributed(parser: argparse.ArgumentParser) -> None:
    _add_config(parser, "arena", "a configuration (arena)")
    parser.add_argument("--processes", type=int, default=2, help="ranks, and threads of the one process (2)")
    parser.add_argument("--rounds", type=int, default=5, help="iterations of each, in turn (5)")


def _distributed(parsed: argparse.Namespace) -> dict[str, Any]:
    """Speed of ranks with a thread each beside one process with as many threads, and what they tell each other."""
    check_least(parsed, processes=2, rounds=1)
    result = distributed.measure(parsed.config, ["device=cpu", *parsed.overrides], parsed.processes, parsed.rounds)
    print_table(result)
    return _told(parsed, result)


def _add_families(parser: argparse.ArgumentParser) -> None:
    _add_config(parser, "families", "a population with families (families)")
    add_seeds(parser)
    parser.add_argument(
        "--trait",
        default="world.traits.neuroticism",
        help="a gene, compared with the neutral one (world.traits.neuroticism)",
    )
    parser.add_argument(
        "--wealth",
        type=float,
        default=0.5,
        help="share left to children where any is (0.5); 0 for populations that leave none only",
    )


def _families(parsed: argparse.Namespace) -> dict[str, Any]:
    """Whether a trait moves beyond drift, fitness is inherited, and wealth that is left concentrates, over seeds."""
    result = families.measure_families(parsed.config, parsed.overrides, parsed.seeds, parsed.trait, parsed.wealth)
    print(families.table(result))
    return _told(parsed, result)


def _add_lag(parser: argparse.ArgumentParser) -> None:
    _add_config(parser, "cartpole", "a configuration (cartpole)")
    add_seeds(parser)
    parser.add_argument("--lags", type=int, nargs="+", default=[0, 8, 32], help="iterations of lag (0 8 32)")
    parser.add_argument("--steps", type=int, default=32, help="length of a rollout, of both (32)")


def _lag(parsed: argparse.Namespace) -> dict[str, Any]:
    """What V-trace gains over PPO where those that play lag behind the one that learns, over seeds."""
    result = lag.measure_lag(parsed.config, parsed.overrides, parsed.seeds, parsed.lags, parsed.steps)
    print(lag.table(result))
    return _told(parsed, result)


SUBJECTS = {
    "lag": (_add_lag, _lag),
    "population": (_add_population, _population),
    "evolution": (_add_evolution, _evolution),
    "league": (_add_league, _league),
    "matches": (_add_matches, _matches),
    "families": (_add_families, _families),
    "distributed": (_add_distributed, _distributed),
}
"""See ``bench.py``."""
