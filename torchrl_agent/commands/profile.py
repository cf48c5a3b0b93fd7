"""``torchrl-agent profile``: say where the time of a training iteration goes."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from torchrl_agent.commands.arguments import add_config, add_json, check_least
from torchrl_agent.experiment import Experiment
from torchrl_agent.json_text import to_json
from torchrl_agent.profiling.profile import profile_training, table


def add_profile(parser: argparse.ArgumentParser) -> None:
    """A configuration, and how much of it."""
    add_config(parser)
    parser.add_argument("--iterations", type=int, default=1, help="iterations to profile, after a warm-up (1)")
    parser.add_argument("--output", help="folder of the tables and the trace (profiles/NAME-TIME)")
    parser.add_argument("--top", type=int, default=20, help="operators to list (20)")
    add_json(parser)


def run_profile(parsed: argparse.Namespace) -> None:
    """Profile, print the tables and where they are."""
    check_least(parsed, iterations=1, top=1)
    experiment = Experiment.load(parsed.config, *parsed.overrides)
    output = Path(parsed.output or f"profiles/{experiment.name}-{datetime.now():%Y%m%d-%H%M%S}")
    found = profile_training(experiment, output, parsed.iterations, parsed.top)
    print(table(found))
    print(output)
    if parsed.json:
        print(to_json(asdict(found)))
