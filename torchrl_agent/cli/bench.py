"""``torchrl-agent bench``: measure the speed and skill of a configuration.

``bench CONFIG`` is ``bench speed CONFIG``. Studies of this project are run from a clone: ``python -m benchmarks``.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from torchrl_agent.cli.arguments import (
    add_config,
    add_json,
    add_overrides,
    add_seeds,
    add_short,
    add_trust,
    check_least,
    print_json,
)
from torchrl_agent.core.checkpoint import versions
from torchrl_agent.core.devices import resolve_device
from torchrl_agent.core.progress import Progress
from torchrl_agent.core.text import to_json
from torchrl_agent.evaluation import skill
from torchrl_agent.evaluation.results import put_result
from torchrl_agent.experiment import Experiment
from torchrl_agent.profiling.profile import profile_training, table
from torchrl_agent.profiling.speed import Timed, device_name, header, line, measure, measure_in_own_process

MODES = ("eager", "compiled", "cudagraphs")
CPU_SIZES, CUDA_SIZES = (512, 2048, 8192), (4096, 16384, 65536, 262144)


def add_bench(parser: argparse.ArgumentParser) -> None:
    """Add the subjects of measurement, each with its own arguments."""
    subjects = parser.add_subparsers(
        dest="subject", required=True, metavar="|".join(SUBJECTS), parser_class=type(parser)
    )
    for name, (add, measured) in SUBJECTS.items():
        subject = subjects.add_parser(name, help=(measured.__doc__ or "").partition(".")[0])
        add(subject)
        add_json(subject)
        add_trust(subject)
        add_short(subject, "device", "DEVICE")
        subject.set_defaults(measured=measured)


def complete_bench(words: list[str]) -> list[str]:
    """Return the words after ``bench``, with the subject filled in if it was left out.

    Raises:
        ValueError: the subject is a study.
    """
    first = next((word for word in words if not word.startswith("-")), None)
    if first in STUDIES:
        raise ValueError(f"bench {first} is a study: run 'python -m benchmarks {STUDIES[first]}' from a clone.")
    return words if first in SUBJECTS or {"-h", "--help"} & set(words) else ["speed", *words]


def run_bench(parsed: argparse.Namespace) -> None:
    """Measure, and print the figures, also as JSON on request."""
    result = parsed.measured(parsed)
    print_json(parsed, result)


def _add_speed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", nargs="?", default="arena", help="a configuration (arena)")
    add_overrides(parser)
    parser.add_argument("--num-envs", type=int, nargs="+", help="numbers of worlds")
    parser.add_argument(
        "--vary", metavar="KEY=V1,V2", help="rows for several values of a key, such as world.level=L3,L5,L6"
    )
    parser.add_argument("--modes", nargs="+", choices=MODES, help="how it runs (all that the device has)")
    parser.add_argument("--seconds", type=float, default=2.0, help="shortest time per measurement (2)")
    parser.add_argument("--world-only", action="store_true", help="leave policy and training out")
    parser.add_argument("--row", action="store_true", help=argparse.SUPPRESS)  # measure one row in this process


def _speed(parsed: argparse.Namespace) -> dict[str, Any]:
    """Steps per second of a configuration's world, policy and training."""
    check_least(parsed, num_envs=1)
    experiment = Experiment.load(parsed.config, *parsed.overrides)
    if parsed.row:
        row = measure(experiment, parsed.num_envs[0], parsed.modes[0], parsed.seconds, parsed.world_only)
        print(to_json(row))
        return row
    device = resolve_device(experiment.device)
    sizes = parsed.num_envs or (CUDA_SIZES if device.type == "cuda" else CPU_SIZES)
    modes = parsed.modes or (MODES if device.type == "cuda" else MODES[:2])
    if parsed.seconds <= 0:
        raise ValueError(f"--seconds is {parsed.seconds:g}: it must be above 0.")
    todo = [
        Timed(parsed.config, (*parsed.overrides, *variant), size, mode, parsed.seconds, parsed.world_only)
        for variant in _variants(parsed.vary)
        for size in sizes
        for mode in modes
    ]
    rows = []
    for timed in Progress(len(todo), "row").over(todo):
        rows.append(measure_in_own_process(timed))
        print(line(rows[-1]) if len(rows) > 1 else f"{header()}\n{line(rows[-1])}", flush=True)
    return {"world": parsed.config, "device": device_name(device), "versions": versions(), "rows": rows}


def _variants(vary: str | None) -> list[tuple[str, ...]]:
    """Return the overrides of each variant of ``--vary KEY=V1,V2``."""
    if vary is None:
        return [()]
    key, _, values = vary.partition("=")
    if not values:
        raise ValueError(f"--vary is {vary!r}: write it like world.level=L3,L5.")
    return [(f"{key}={value}",) for value in values.split(",")]


def _add_skill(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", nargs="?", default="arena", help="a configuration (arena)")
    add_overrides(parser)
    add_seeds(parser)
    parser.add_argument("--record", metavar="FILE", help="also put the result into this JSON file of results")


def _skill(parsed: argparse.Namespace) -> dict[str, Any]:
    """Skill of a configuration's agents over seeds, beside scripted policies."""
    result = skill.measure_skill(parsed.config, parsed.overrides, parsed.seeds)
    print(skill.table(result))
    if parsed.record is not None:
        put_result(Path(parsed.record), result)
    return result


SUBJECTS = {"speed": (_add_speed, _speed), "skill": (_add_skill, _skill)}
"""Subjects of measurement: the functions that add the arguments of each and measure it."""
STUDIES = {
    **{name: name for name in ("claims", "distributed", "evolution", "families", "gpu", "headroom", "lag")},
    **{name: name for name in ("league", "matches", "modules", "population", "roofline", "sb3_speed")},
    **{"ablations": "claims", "agent": "modules", "learn": "time_to_skill"},
}
"""Studies that are run from a clone, by the names under which they are looked for here."""


# --- profile ---------------------------------------------------------------------------------------------------------


def add_profile(parser: argparse.ArgumentParser) -> None:
    """Add a configuration and the extent of the profile."""
    add_config(parser)
    parser.add_argument("--iterations", type=int, default=1, help="iterations to profile, after a warm-up (1)")
    parser.add_argument("--output", help="folder of the tables and the trace (profiles/NAME-TIME)")
    parser.add_argument("--top", type=int, default=20, help="operators to list (20)")
    add_json(parser)


def run_profile(parsed: argparse.Namespace) -> None:
    """Profile, print the tables and their folder."""
    check_least(parsed, iterations=1, top=1)
    experiment = Experiment.load(parsed.config, *parsed.overrides)
    output = Path(parsed.output or f"profiles/{experiment.name}-{datetime.now():%Y%m%d-%H%M%S}")
    found = profile_training(experiment, output, parsed.iterations, parsed.top)
    print(table(found))
    print(output)
    print_json(parsed, asdict(found))
