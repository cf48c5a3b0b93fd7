"""``torchrl-agent bench``: measure speed, skill and claims, or learning against Stable-Baselines3.

``bench CONFIG`` is ``bench speed CONFIG``.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchrl_agent.benchmarks import ablations, headroom, modules, skill
from torchrl_agent.benchmarks.against_sb3 import learn_against_baseline
from torchrl_agent.benchmarks.results import put_result
from torchrl_agent.benchmarks.sb3_baseline import BASELINES
from torchrl_agent.benchmarks.speed import Timed, device_name, header, line, measure, measure_in_own_process
from torchrl_agent.commands import bench_populations
from torchrl_agent.commands.arguments import add_json, add_overrides, add_seeds, add_short, add_trust, check_least
from torchrl_agent.devices import resolve_device
from torchrl_agent.experiment import Experiment
from torchrl_agent.json_text import to_json
from torchrl_agent.progress import Progress
from torchrl_agent.training.checkpoint import versions

MODES = ("eager", "compiled", "cudagraphs")
CPU_SIZES, CUDA_SIZES = (512, 2048, 8192), (4096, 16384, 65536, 262144)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is measured, each with arguments of its own."""
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


def complete(words: list[str]) -> list[str]:
    """The words behind ``bench`` with its subject, where it was left out."""
    first = next((word for word in words if not word.startswith("-")), None)
    return words if first in SUBJECTS or {"-h", "--help"} & set(words) else ["speed", *words]


def run(parsed: argparse.Namespace) -> None:
    """Measure, and print the figures for people or for programs."""
    result = parsed.measured(parsed)
    if parsed.json:
        print(to_json(result))


def _add_speed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", nargs="?", default="arena", help="a configuration (arena)")
    add_overrides(parser)
    parser.add_argument("--num-envs", type=int, nargs="+", help="numbers of worlds")
    parser.add_argument(
        "--vary", metavar="KEY=V1,V2", help="rows for several values of a key, such as world.level=L3,L5,L6"
    )
    parser.add_argument("--modes", nargs="+", choices=MODES, help="how it runs (all that the device has)")
    _add_seconds(parser)
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
    """The overrides of each variant of ``--vary KEY=V1,V2``."""
    if vary is None:
        return [()]
    key, _, values = vary.partition("=")
    if not values:
        raise ValueError(f"--vary is {vary!r}: write it like world.level=L3,L5.")
    return [(f"{key}={value}",) for value in values.split(",")]


def _add_agent(parser: argparse.ArgumentParser) -> None:
    add_overrides(parser)
    parser.add_argument("--num-envs", type=int, help="number of worlds")
    _add_seconds(parser)


def _agent(parsed: argparse.Namespace) -> dict[str, Any]:
    """Speed of the four-module agent, each module and the whole, compiled beside eager."""
    experiment = Experiment.load("town_agent", *parsed.overrides)
    size = parsed.num_envs or experiment.world["num_envs"]
    timed = Timed("town_agent", (*parsed.overrides, f"world.num_envs={size}"), size, "eager", parsed.seconds)
    result = modules.measure_agent(
        [*timed.overrides], lambda mode: measure_in_own_process(replace(timed, mode=mode)), parsed.seconds
    )
    print(modules.table(result))
    return {"device": device_name(resolve_device(experiment.device)), "versions": versions(), **result}


def _add_learn(parser: argparse.ArgumentParser) -> None:
    add_overrides(parser)
    _add_seconds(parser, "training time (2)")
    parser.add_argument("--baseline-seconds", type=float, help="training time of the baseline, if another")
    parser.add_argument("--algorithm", choices=list(BASELINES), default="ppo", help="the same of both (ppo)")


def _learn(parsed: argparse.Namespace) -> dict[str, Any]:
    """Time to the same skill in the Arena, beside Stable-Baselines3."""
    result = learn_against_baseline(parsed.overrides, parsed.seconds, parsed.baseline_seconds, parsed.algorithm)
    if not parsed.json:
        print(to_json(result, indent=2))
    return result


def _add_skill(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", nargs="?", default="arena", help="a configuration (arena)")
    add_overrides(parser)
    add_seeds(parser)
    _add_record(parser)


def _skill(parsed: argparse.Namespace) -> dict[str, Any]:
    """How well a configuration plays, over seeds, beside scripted players."""
    result = skill.measure_skill(parsed.config, parsed.overrides, parsed.seeds)
    print(skill.table(result))
    return _recorded(result, parsed.record)


def _add_headroom(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", nargs="?", default="town", help="a configuration (town)")
    add_overrides(parser)
    parser.add_argument("--levels", nargs="+", default=[], help="values of world.level (the configuration's own)")
    parser.add_argument(
        "--modules", nargs="+", default=[], help="those to measure (all that the world has experts for)"
    )
    parser.add_argument("--episodes", type=int, default=64, help="games of each player (64)")
    _add_record(parser)


def _headroom(parsed: argparse.Namespace) -> dict[str, Any]:
    """How much return each module of the agent could gain at best, by players that need no training."""
    result = headroom.measure_headroom(parsed.config, parsed.overrides, parsed.levels, parsed.episodes, parsed.modules)
    print(headroom.table(result))
    return _recorded(result, parsed.record)


def _add_claims(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "overrides", nargs="*", metavar="CLAIM|KEY=VALUE", help="claims (all), and changes of every run"
    )
    add_seeds(parser)
    parser.add_argument("--jobs", type=int, help="runs at the same time, one thread each (one per processor)")
    purpose = "keep each run's figures in this file as it ends, and measure again only what it lacks"
    parser.add_argument("--keep", metavar="FILE", type=Path, help=purpose)


def _claims(parsed: argparse.Namespace) -> dict[str, Any]:
    """What each module of the agent must prove, over seeds."""
    names = [word for word in parsed.overrides if "=" not in word]
    overrides = [word for word in parsed.overrides if "=" in word]
    result = ablations.prove(names, parsed.seeds, overrides, parsed.jobs, parsed.keep)
    print(ablations.table(result))
    return result


def _add_seconds(parser: argparse.ArgumentParser, purpose: str = "shortest time per measurement (2)") -> None:
    parser.add_argument("--seconds", type=float, default=2.0, help=purpose)


def _add_record(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--record", metavar="FILE", help="also put the result into this JSON file of results")


def _recorded(result: dict[str, Any], file: str | None) -> dict[str, Any]:
    if file is not None:
        put_result(Path(file), result)
    return result


SUBJECTS = {
    "speed": (_add_speed, _speed),
    "agent": (_add_agent, _agent),
    "learn": (_add_learn, _learn),
    "skill": (_add_skill, _skill),
    "claims": (_add_claims, _claims),
    "headroom": (_add_headroom, _headroom),
    **bench_populations.SUBJECTS,
}
"""What can be measured: its arguments, and what measures it."""
