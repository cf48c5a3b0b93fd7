"""``torchrl-agent evaluate``: evaluate a run's policy."""

from __future__ import annotations

import argparse

from torchrl_agent.cli.arguments import (
    add_acting,
    add_agent,
    add_json,
    add_overrides,
    add_without,
    print_json,
    print_table,
    print_ways,
    run_of,
)
from torchrl_agent.evaluation.ablation import without
from torchrl_agent.experiment.judging import configured_way, evaluate, evaluate_ways
from torchrl_agent.explain import keep_reference
from torchrl_agent.runs.load import load_agent


def add_evaluate(parser: argparse.ArgumentParser) -> None:
    """Add an agent, its way of acting and its worlds."""
    add_agent(parser)
    add_overrides(parser)
    add_acting(parser)
    parser.add_argument("--episodes", type=int, help="worlds, one episode each (256)")
    parser.add_argument("--seed", type=int, help="seed of the worlds")
    add_without(parser)
    parser.add_argument(
        "--reference",
        action="store_true",
        help="also keep in the run what is usual of this healthy agent, with which explain and replay compare",
    )
    add_json(parser)


def run_evaluate(parsed: argparse.Namespace) -> None:
    """Evaluate, and print the figures."""
    seed = [] if parsed.seed is None else [f"evaluation.seed={parsed.seed}"]
    overrides = (*parsed.changes, *seed, *parsed.overrides)
    if parsed.reference and (overrides or parsed.without):
        raise ValueError("--reference keeps what is usual of the run's own agent: leave changes and --without out.")
    experiment, agent = load_agent(run_of(parsed), parsed.device, parsed.checkpoint, overrides)
    with without(agent, parsed.without):
        if parsed.stochastic:
            result = evaluate(experiment, agent, parsed.episodes, deterministic=False)
            print_table(result)
        else:
            ways = evaluate_ways(experiment, agent, parsed.episodes)
            print_ways(ways)
            result = {**ways[configured_way(experiment)], "ways": ways}
    if parsed.reference:
        print(keep_reference(run_of(parsed), parsed.checkpoint, experiment, agent))
    print_json(parsed, result)
