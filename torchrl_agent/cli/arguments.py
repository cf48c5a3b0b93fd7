"""Arguments that several verbs of the command share."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from torchrl_agent.core.run_names import find_run
from torchrl_agent.core.tables import aligned
from torchrl_agent.core.text import to_json
from torchrl_agent.experiment.compose import config_names
from torchrl_agent.experiment.overrides import quoted
from torchrl_agent.runs.members import find_member
from torchrl_agent.training.evaluator import clearly_other, intervals

RUN_NAME = "run.name"


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add a configuration and changes of it."""
    parser.add_argument(
        "config", help=f"one of {', '.join(config_names())}, the path of a YAML file, or a world such as gym:Hopper-v5"
    )
    add_overrides(parser)
    add_trust(parser)
    add_short(parser, "seed", "NUMBER")
    add_short(parser, "device", "DEVICE")


def add_short(parser: argparse.ArgumentParser, key: str, metavar: str) -> None:
    """Add an option that stands for an override: ``--seed 1`` for ``seed=1``, ``--name a`` for ``run.name=a``."""
    parser.add_argument(
        f"--{key.rpartition('.')[2]}",
        dest="short",
        action="append",
        default=[],
        type=lambda value: f"{key}={quoted(value) if key == RUN_NAME else value}",
        metavar=metavar,
        help=f"the same as {key}={metavar}",
    )


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """Add changes of a configuration."""
    parser.add_argument(
        "overrides",
        nargs="*",
        default=[],  # or argparse says that they are required
        metavar="KEY=VALUE",
        help="changes of the configuration, such as algorithm.gamma=0.99",
    )


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add trust in a configuration's targets; :func:`torchrl_agent.cli.main` passes it to every reader of one."""
    parser.add_argument(
        "--trust", action="store_true", help="let the configuration run code that is not this project's own"
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add a run with one of its checkpoints, and of a population one of its members; see :func:`run_of`."""
    parser.add_argument(
        "run_folder", metavar="RUN", help="a run folder, a checkpoint file or shipped:NAME (torchrl-agent runs)"
    )
    parser.add_argument("--checkpoint", choices=("last", "best"), default="last")
    parser.add_argument("--member", metavar="NUMBER", help="of a population: its number, or best (best)")
    add_trust(parser)


def run_of(parsed: argparse.Namespace) -> Path:
    """Return the folder of the given run, or of its given member."""
    run = find_run(parsed.run_folder)
    return run if parsed.member is None else find_member(run, parsed.member)


def add_agent(parser: argparse.ArgumentParser) -> None:
    """Add a trained agent: its run, and its device."""
    add_run(parser)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")


def add_acting(parser: argparse.ArgumentParser) -> None:
    """Add options of an agent's way of acting."""
    parser.add_argument("--stochastic", action="store_true", help="sample actions instead of taking the most likely")
    parser.add_argument(
        "--planner",
        action="append_const",
        const="model.planner.enabled=true",
        dest="changes",
        default=[],
        help="act by plans of the agent's world model",
    )


def add_without(parser: argparse.ArgumentParser) -> None:
    """Add the modules to ablate."""
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="MODULE",
        help="ablate this module (social_model, world_model, manager, memory); may be given several times",
    )


def add_seeds(parser: argparse.ArgumentParser) -> None:
    """Add the seeds to measure over."""
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="seeds to train with (0 1 2)")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option of machine-readable results."""
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")


def print_json(parsed: argparse.Namespace, result: Any) -> None:
    """Print a result as one line of JSON if it was requested."""
    if parsed.json:
        print(to_json(result))


def check_least(parsed: argparse.Namespace, **least: int) -> None:
    """Raise ValueError naming the first option that was given a number below its minimum.

    Args:
        **least: minimum by the option's name in ``parsed``; an option may hold several numbers, or None if not given.
    """
    for name, bound in least.items():
        given = getattr(parsed, name)
        for number in given if isinstance(given, list) else [given]:
            if number is not None and number < bound:
                raise ValueError(f"--{name.replace('_', '-')} is {number}: give at least {bound}.")


def print_table(values: dict[str, Any]) -> None:
    """Print figures by name."""
    _print_words([[name, _shown(value)] for name, value in values.items()])


def print_ways(ways: dict[str, dict[str, Any]]) -> None:
    """Print figures of a policy in its two ways of acting side by side, with 95 % confidence intervals, and a sentence
    for each that clearly differs.
    """
    (one, first), (other, second) = ways.items()
    rows = [[name, *(_with_interval(name, figures) for figures in (first, second))] for name in first]
    _print_words([["actions", one, other], *rows])
    for name in clearly_other(first, second):
        print(
            f"{name} depends on how actions are taken: {_shown(first[name])} {one}, {_shown(second[name])} {other}; "
            "judge the policy in the way in which it will be used."
        )


def _print_words(rows: list[list[str]]) -> None:
    for line in aligned(rows, words=len(rows[0])):
        print(f"  {line}")


def _with_interval(name: str, figures: dict[str, Any]) -> str:
    low, high = intervals(figures).get(name, (None, None))
    known = low is not None and math.isfinite(low)
    return f"{_shown(figures[name])} ({_shown(low)} to {_shown(high)})" if known else _shown(figures[name])


def _shown(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
