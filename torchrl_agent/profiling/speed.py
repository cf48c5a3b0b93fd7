"""Measurement of speed, the same for every configuration; compile time is separate."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from torchrl_agent.experiment import Experiment
from torchrl_agent.modules.specs import group_spec
from torchrl_agent.optimization.compilation import COMPILED, CUDA_GRAPH, EAGER, CudaGraphFunction
from torchrl_agent.profiling.timing import seconds_per_call
from torchrl_agent.runs.folder import SOURCE
from torchrl_agent.training.learner import Learner
from torchrl_agent.trust.targets import CALL

BLOCK = 16
"""Number of steps of the world per measured call."""


@dataclass(frozen=True)
class Timed:
    """Settings of the measurement of one row of speeds."""

    config: str
    overrides: tuple[str, ...]
    num_envs: int
    mode: str
    seconds: float
    """Shortest time of each measurement."""
    world_only: bool = False
    """True to leave policy and training out."""

    def command(self) -> list[str]:
        """Return the command line that measures the row and prints it as JSON."""
        command = [sys.executable, "-m", "torchrl_agent", "bench", "speed", self.config, *self.overrides, "--row"]
        command += ["--num-envs", str(self.num_envs), "--modes", self.mode, "--seconds", str(self.seconds)]
        return command + ["--world-only"] * self.world_only + ["--trust"] * CALL.get().trust


def measure_in_own_process(timed: Timed) -> dict[str, Any]:
    """Run :func:`measure` in a fresh process, so that memory is its own and no compiled code is shared.

    Raises:
        ValueError: the measurement failed; the sentence names the reason.
    """
    # the same code there, whatever the present folder holds
    path = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": path}
    done = subprocess.run(timed.command(), capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        reason = done.stderr.strip().split("\n")[-1]
        raise ValueError(f"measuring {timed.num_envs} worlds {timed.mode} failed: {reason}")
    return json.loads(done.stdout.strip().split("\n")[-1])


def measure(
    experiment: Experiment, num_envs: int, mode: str, seconds: float, world_only: bool = False
) -> dict[str, Any]:
    """Measure one row: steps per second (summed over the agents of a world) of the world alone, of world and policy,
    and of training, with ``num_envs`` worlds; the latter two are None with ``world_only``.
    """
    acceleration = experiment.acceleration
    acceleration.step = acceleration.advantages = acceleration.update = mode != "eager"
    acceleration.cudagraphs = mode == "cudagraphs"
    experiment.world["num_envs"] = num_envs
    hyperparameters = experiment.algorithm
    frames = num_envs * hyperparameters.rollout_steps
    if hasattr(hyperparameters, "minibatch_size"):
        hyperparameters.minibatch_size = math.gcd(frames, hyperparameters.minibatch_size)
    learner = experiment.make_learner()
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
        "peak_memory_mb": peak_memory_mb(learner.device),
        "ran": {"world": world_mode, **({} if world_only else learner.modes())},
    }


def _world_only(experiment: Experiment, learner: Learner, mode: str, seconds: float) -> tuple[float, float, str]:
    """Return steps per second with random actions, resets included; the time of the first steps; and their mode."""
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
    block = CudaGraphFunction("the world", play, env.device if mode == "cudagraphs" else None)
    block()
    first = time.perf_counter() - start
    rate = env.batch_size[0] * BLOCK / seconds_per_call(block, seconds, learner.device)
    return rate, first, CUDA_GRAPH if block.captured else EAGER if mode == "eager" else COMPILED


def device_name(device: torch.device) -> str:
    """Return the device's name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return (
        f"{platform.processor() or platform.machine()} CPU, {os.cpu_count()} cores, {torch.get_num_threads()} threads"
    )


def peak_memory_mb(device: torch.device) -> int | None:
    """Return the peak memory of the device, or of this process; None on systems that do not report it (Windows)."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 2**20)
    try:
        import resource  # not on Windows
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 2**10  # macOS counts bytes
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20)


def header() -> str:
    """Return the names of the columns of :func:`line`."""
    names = " ".join(f"{name:>14}" for name in ("world/s", "+policy/s", "training/s"))
    return f"{'level':>6} {'worlds':>8} {'agents':>7} {'mode':>10} {names} {'compile s':>10} {'memory MB':>10}"


def line(row: dict[str, Any]) -> str:
    """Return a row as a line of text."""
    rates = (row[name] for name in ("world", "world_policy", "training"))
    numbers = " ".join(f"{'' if rate is None else format(rate, ','):>14}" for rate in rates)
    memory = row["peak_memory_mb"]
    costs = f"{row['compile_seconds']:>10} {'' if memory is None else format(memory, ','):>10}"
    where = f"{row.get('level', ''):>6} {row['num_envs']:>8} {row['num_agents']:>7}"
    wanted = {"eager": EAGER, "compiled": COMPILED, "cudagraphs": CUDA_GRAPH}[row["mode"]]
    fallen = [f"{part} {mode}" for part, mode in row["ran"].items() if mode != wanted]
    return f"{where} {row['mode']:>10} {numbers} {costs}" + (f"  but {', '.join(fallen)}" if fallen else "")
