"""Speed, measured the same way everywhere: ratios come from one run, compile time stands apart."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torchrl_agent import bench_agent, claims
from torchrl_agent.benchmarks.against_sb3 import learn_against_baseline
from torchrl_agent.benchmarks.sb3_baseline import BASELINES
from torchrl_agent.benchmarks.skill import measure_skill, record, table
from torchrl_agent.benchmarks.timing import seconds_per_call
from torchrl_agent.experiment import Experiment, resolve_device
from torchrl_agent.learner import Learner
from torchrl_agent.models.specs import group_spec
from torchrl_agent.progress import Progress
from torchrl_agent.runs.folder import SOURCE
from torchrl_agent.training.acceleration import COMPILED, CUDA_GRAPH, EAGER, Captured
from torchrl_agent.training.checkpoint import versions

MODES = ("eager", "compiled", "cudagraphs")
BLOCK = 16
"""Steps of the world per measured call."""
CPU_SIZES, CUDA_SIZES = (512, 2048, 8192), (4096, 16384, 65536, 262144)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``torchrl-agent bench``."""
    parser.add_argument(
        "what",
        nargs="?",
        default="arena",
        help="a configuration to time (arena), 'agent', 'claims', 'learn', or 'skill'",
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="'skill': a configuration first")
    parser.add_argument("--num-envs", type=int, nargs="+", help="numbers of worlds")
    parser.add_argument(
        "--vary", metavar="KEY=V1,V2", help="rows for several values of a key, such as world.level=L3,L5,L6"
    )
    parser.add_argument(
        "--modes", nargs="+", choices=MODES, help="eager, compiled, cudagraphs (all that the device has)"
    )
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="shortest time per measurement; 'learn': training time"
    )
    parser.add_argument("--baseline-seconds", type=float, help="'learn': training time of the baseline, if another")
    parser.add_argument("--algorithm", choices=list(BASELINES), default="ppo", help="'learn': the same of both")
    parser.add_argument("--world-only", action="store_true", help="leave policy and training out")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[0, 1, 2], help="'skill' and 'claims': seeds to train with"
    )
    parser.add_argument("--record", metavar="FILE", help="'skill': also put the result into this JSON file of results")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--row", action="store_true", help=argparse.SUPPRESS)  # measure one row in this process


def run(parsed: argparse.Namespace) -> None:
    """Carry out ``torchrl-agent bench``."""
    others = {"learn": _bench_learn, "skill": _bench_skill, "claims": _bench_claims, "agent": _bench_agent}
    if parsed.what in others:
        result = others[parsed.what](parsed)
        if parsed.json:
            print(json.dumps(result))
        return
    if parsed.row:
        experiment = Experiment.load(parsed.what, *parsed.overrides)
        row = measure(experiment, parsed.num_envs[0], parsed.modes[0], parsed.seconds, parsed.world_only)
        print(json.dumps(row))
        return
    device = resolve_device(Experiment.load(parsed.what, *parsed.overrides).device)
    sizes = parsed.num_envs or (CUDA_SIZES if device.type == "cuda" else CPU_SIZES)
    modes = parsed.modes or (MODES if device.type == "cuda" else MODES[:2])
    if min(sizes) < 1 or parsed.seconds <= 0:
        raise ValueError("--num-envs and --seconds must be above 0.")
    rows = []
    variants = _variants(parsed.vary)
    todo = [(variant, size, mode) for variant in variants for size in sizes for mode in modes]
    for variant, size, mode in Progress(len(todo), "row").over(todo):
        rows.append(_in_own_process(parsed, [*parsed.overrides, *variant], size, mode))
        print(_line(rows[-1]) if len(rows) > 1 else f"{_header()}\n{_line(rows[-1])}", flush=True)
    if parsed.json:
        print(json.dumps({"world": parsed.what, "device": device_name(device), "versions": versions(), "rows": rows}))


def _bench_learn(parsed: argparse.Namespace) -> dict[str, Any]:
    result = learn_against_baseline(parsed.overrides, parsed.seconds, parsed.baseline_seconds, parsed.algorithm)
    if not parsed.json:
        print(json.dumps(result, indent=2))
    return result


def _bench_skill(parsed: argparse.Namespace) -> dict[str, Any]:
    config, *overrides = parsed.overrides or ["arena"]
    result = measure_skill(config, overrides, parsed.seeds)
    print(table(result))
    if parsed.record is not None:
        record(Path(parsed.record), result)
    return result


def _bench_claims(parsed: argparse.Namespace) -> dict[str, Any]:
    names = [word for word in parsed.overrides if "=" not in word]
    changes = [word for word in parsed.overrides if "=" in word]
    result = claims.prove(names, parsed.seeds, changes)
    print(claims.table(result))
    return result


def _bench_agent(parsed: argparse.Namespace) -> dict[str, Any]:
    experiment = Experiment.load("town_agent", *parsed.overrides)
    size = parsed.num_envs[0] if parsed.num_envs else experiment.world["num_envs"]
    parsed.what = "town_agent"
    overrides = [*parsed.overrides, f"world.num_envs={size}"]
    result = bench_agent.measure_agent(
        overrides, lambda mode: _in_own_process(parsed, overrides, size, mode), parsed.seconds
    )
    print(bench_agent.table(result))
    return {"device": device_name(resolve_device(experiment.device)), "versions": versions(), **result}


def measure(
    experiment: Experiment, num_envs: int, mode: str, seconds: float, world_only: bool = False
) -> dict[str, Any]:
    """One row: steps per second (summed over the agents of a world) of the world alone, of world and policy, and of
    training, with ``num_envs`` worlds; the latter two are None if the ``world_only`` is measured.
    """
    acceleration = experiment.acceleration
    acceleration.step = acceleration.advantages = acceleration.update = mode != "eager"
    acceleration.cudagraphs = mode == "cudagraphs"
    experiment.world["num_envs"] = num_envs
    hyperparameters = experiment.hyperparameters
    frames = num_envs * hyperparameters.rollout_steps
    if hasattr(hyperparameters, "minibatch_size"):
        hyperparameters.minibatch_size = math.gcd(frames, hyperparameters.minibatch_size)
    learner = Learner(experiment)
    agents = math.prod(group_spec(learner.env).shape) // num_envs
    world, compile_seconds, world_mode = _world_only(experiment, learner, mode, seconds)

    def iteration() -> None:
        learner.improve(learner.collector.collect(), hyperparameters.learning_rate.initial)

    def rate(function: Callable[[], Any]) -> int | None:
        return None if world_only else round(agents * frames / seconds_per_call(function, seconds, learner.device))

    rollouts, training = rate(learner.collector.collect), rate(iteration)
    level = {"level": experiment.world["level"]} if "level" in experiment.world else {}
    return {
        **level,
        "num_envs": num_envs,
        "num_agents": agents,
        "mode": mode,
        "world": round(world * agents),
        "world_policy": rollouts,
        "training": training,
        "compile_seconds": round(compile_seconds + learner.compile_seconds, 1),
        "peak_memory_mb": _peak_memory_mb(learner.device),
        "ran": {"world": world_mode, **({} if world_only else learner.modes())},
    }


def _world_only(experiment: Experiment, learner: Learner, mode: str, seconds: float) -> tuple[float, float, str]:
    """Steps per second with random actions, resets included; the time of the first steps; and how they ran."""
    env = experiment.make_world()
    root = env.reset().clone()
    actions = [env.full_action_spec[env.action_key].rand() for _ in range(BLOCK)]

    def play() -> None:
        current = root
        for action in actions:
            _, current = env.step_and_maybe_reset(current.copy().set(env.action_key, action))
        root.update_(current)

    start = time.perf_counter()
    if mode != "eager":
        env.compile()
    block = Captured("the world", play, env.device if mode == "cudagraphs" else None)
    block()
    first = time.perf_counter() - start
    rate = env.batch_size[0] * BLOCK / seconds_per_call(block, seconds, learner.device)
    return rate, first, CUDA_GRAPH if block.captured else EAGER if mode == "eager" else COMPILED


def _variants(vary: str | None) -> list[list[str]]:
    """The overrides of each variant of ``--vary KEY=V1,V2``."""
    if vary is None:
        return [[]]
    key, _, values = vary.partition("=")
    if not values:
        raise ValueError(f"--vary is {vary!r}: write it like world.level=L3,L5.")
    return [[f"{key}={value}"] for value in values.split(",")]


def _in_own_process(parsed: argparse.Namespace, overrides: list[str], size: int, mode: str) -> dict[str, Any]:
    """Measure a row in a fresh process, so that memory is its own and no compiled code is shared."""
    command = [sys.executable, "-m", "torchrl_agent.cli", "bench", parsed.what, *overrides]
    command += ["--world-only"] if parsed.world_only else []
    command += ["--row", "--num-envs", str(size), "--modes", mode, "--seconds", str(parsed.seconds)]
    # the same code there, whatever the present folder holds
    path = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        reason = done.stderr.strip().split("\n")[-1]
        raise ValueError(f"measuring {size} worlds {mode} failed: {reason}")
    return json.loads(done.stdout.strip().split("\n")[-1])


def device_name(device: torch.device) -> str:
    """The device in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return (
        f"{platform.processor() or platform.machine()} CPU, {os.cpu_count()} cores, {torch.get_num_threads()} threads"
    )


def _peak_memory_mb(device: torch.device) -> int | None:
    """Of the device, or of this process; None on systems that do not tell (Windows)."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 2**20)
    try:
        import resource  # not on Windows
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 2**10  # macOS counts bytes
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20)


def _header() -> str:
    names = " ".join(f"{name:>14}" for name in ("world/s", "+policy/s", "training/s"))
    return f"{'level':>6} {'worlds':>8} {'agents':>7} {'mode':>10} {names} {'compile s':>10} {'memory MB':>10}"


def _line(row: dict[str, Any]) -> str:
    rates = (row[name] for name in ("world", "world_policy", "training"))
    numbers = " ".join(f"{'' if rate is None else format(rate, ','):>14}" for rate in rates)
    memory = row["peak_memory_mb"]
    costs = f"{row['compile_seconds']:>10} {'' if memory is None else format(memory, ','):>10}"
    where = f"{row.get('level', ''):>6} {row['num_envs']:>8} {row['num_agents']:>7}"
    wanted = {"eager": EAGER, "compiled": COMPILED, "cudagraphs": CUDA_GRAPH}[row["mode"]]
    fallen = [f"{part} {mode}" for part, mode in row["ran"].items() if mode != wanted]
    return f"{where} {row['mode']:>10} {numbers} {costs}" + (f"  but {', '.join(fallen)}" if fallen else "")
