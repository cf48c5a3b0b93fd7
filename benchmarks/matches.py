"""Time of several agents that act in the seats of as many worlds, beside that of one."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDictBase

from benchmarks.arguments import add_config
from torchrl_agent.cli.arguments import check_least, print_table
from torchrl_agent.core.devices import use_device
from torchrl_agent.evaluation.matches import match_world
from torchrl_agent.experiment import Experiment
from torchrl_agent.optimization.compilation import CompiledFunction
from torchrl_agent.population.agent import PolicyGroup, SeatedPolicy
from torchrl_agent.population.seats import SEATS, seat_table
from torchrl_agent.population.stack import Stack
from torchrl_agent.profiling.timing import seconds_per_call


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a configuration and the numbers of agents and seats."""
    add_config(parser, "duel", "a configuration with two seats")
    parser.add_argument("--players", type=int, default=8, help="agents that take part (8)")
    parser.add_argument("--rows", type=int, default=4096, help="seats in all (4096)")


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Measure, and print the figures."""
    check_least(parsed, players=1)
    result = measure_matches(parsed.config, parsed.overrides, parsed.players, parsed.rows)
    print_table(result)
    return result


def measure_matches(config: str, overrides: Sequence[str], players: int, rows: int) -> dict[str, Any]:
    """Measure the milliseconds in which ``players`` agents act that hold ``rows`` seats in turn, and in which one agent
    acts that holds them all: both compiled, if so configured.
    """
    experiment = Experiment.load(config, *overrides)
    use_device(experiment.device)
    if rows % (SEATS * players):
        raise ValueError(f"--rows is {rows}: give a multiple of {SEATS * players}, so that all play equally often.")
    env = match_world(experiment, rows // SEATS)
    agents = [experiment.make_agent(env) for _ in range(players)]
    env = agents[0].attach(env)
    root, group = env.reset(), agents[0].group
    assert group is not None
    table = seat_table(rows // SEATS // players, players)
    policies = {
        "one agent": agents[0].policy,
        "all": SeatedPolicy([PolicyGroup(Stack(agents), agents[0].policy, table.members)], [], group),
    }
    with torch.no_grad():
        found = {
            name: seconds_per_call(
                functools.partial(_act, CompiledFunction(name, policy, experiment.acceleration.step), root),
                3.0,
                env.device,
            )
            for name, policy in policies.items()
        }
    return {
        "players": players,
        "rows": rows,
        "milliseconds": {name: round(1000 * seconds, 3) for name, seconds in found.items()},
        "times_as_long": round(found["all"] / found["one agent"], 3),
        "threads": torch.get_num_threads(),
    }


def _act(policy: CompiledFunction, root: TensorDictBase) -> None:
    policy(root.copy())
