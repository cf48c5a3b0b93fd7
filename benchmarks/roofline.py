"""Upper bounds of the speed on a GPU, computed from the code that it would run.

A roofline (Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", 2009) bounds the time
of a kernel from below by the bytes that it moves, over the memory's bandwidth, and by its matrix products, over the
matrix units' rate. The kernels are those that Inductor makes for an H100 (``benchmarks/lowering``); nothing is timed,
and no GPU is needed. Real runs are slower than the bound, and no tuning exceeds it.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import time
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any
from unittest import mock

import torch
from torchrl.envs import EnvBase
from typing_extensions import override

from benchmarks.arguments import add_config
from benchmarks.lowering import Lowered, lower
from benchmarks.lowering.pretended_gpu import GPU, machine_code, pretended_h100, require_triton
from benchmarks.lowering.uncompiled import Uncompiled, Work
from torchrl_agent.algorithms.actor_critic import ActorCritic
from torchrl_agent.algorithms.off_policy import OffPolicy
from torchrl_agent.core.abilities import abilities
from torchrl_agent.core.tables import aligned
from torchrl_agent.experiment import Experiment
from torchrl_agent.modules.specs import group_spec
from torchrl_agent.optimization import traced_updater
from torchrl_agent.optimization.compilation import AccelerationConfig, CompiledFunction
from torchrl_agent.optimization.tracing import TracedFunction, options_on_gpu, trace
from torchrl_agent.optimization.updater import Updater
from torchrl_agent.training.collector import RolloutCollector, fill_caches

NUM_ENVS = 4096
"""Number of worlds that are lowered; all but the policy's weights scales with it, and is stated per world."""
MINIBATCH = 8192
"""Number of frames of a minibatch that is lowered, likewise."""
LAUNCH_GAP = 1.5e-6
"""Time between two kernels of a CUDA graph [s]; an estimate, and not in the bounds."""

UNCOMPILED: dict[tuple[type, str], str | None] = {
    (RolloutCollector, "collect"): "keeping the frames",
    (ActorCritic, "values"): "the critic's values",
    (Updater, "_clip_gradients"): "clipping",
    (Updater, "_apply_gradients"): "the optimizer",
    (torch.Tensor, "backward"): None,  # lowered with the loss
}
"""Stages of an iteration in which operations run eagerly, by method."""
REST = "minibatches and statistics"


@dataclass(frozen=True)
class Gpu:
    """Bounds of a kernel, from the vendor's data sheet (SXM, dense)."""

    name: str
    bandwidth: float
    """Bytes per second."""
    products: dict[str, float]
    """Operations per second of matrix products, by precision; float32 is TF32, which training uses."""
    elementwise: float
    """Elementwise operations per second: 132 multiprocessors of 128 lanes at 1.98 GHz. Some take longer (integers and
    comparisons twice, sines more), so that the bound is no lower than the truth.
    """

    def seconds(self, part: Part) -> float:
        """Return the least time of one call of a part: the largest of :meth:`bounds`."""
        return max(self.bounds(part).values())

    def bounds(self, part: Part) -> dict[str, float]:
        """Return the least time of one call of a part for its ``bytes`` (memory), ``flops`` (matrix units) and
        ``operations`` (elementwise ones, integers included).
        """
        return {
            "bytes": part.bytes / self.bandwidth,
            "flops": part.flops / self.products[part.precision],
            "operations": part.operations / self.elementwise,
        }


_PRODUCTS = {"float32": 494.7e12, "bfloat16": 989.4e12, "float16": 989.4e12}
"""Float8, whose rate is twice that of bfloat16, is not lowered."""
GPUS = (Gpu("H100", 3.35e12, _PRODUCTS, 33.5e12), Gpu("H200", 4.8e12, _PRODUCTS, 33.5e12))


@dataclass
class Part:
    """Work of one call of a compiled function, or of an uncompiled stage in one iteration."""

    name: str
    launches: int = 0
    bytes: int = 0
    flops: int = 0
    operations: int = 0
    """Elementwise operations of the generated kernels."""
    registers: int = 0
    """Largest number of registers that a kernel needs, of 255."""
    spills: int = 0
    """Number of kernels that need more."""
    waits: int = 0
    loop_steps: int = 0
    """Number of steps of loops over time (scans) and of calls of regions that are compiled once for several, which the
    host makes one after the other; the numbers above include all of them.
    """
    calls: int = 1
    """Number of calls in the iteration that was lowered."""
    tracing: float = 0.0
    """Processor seconds until its graphs are there."""
    generating: float = 0.0
    """Processor seconds from there to the code of its kernels."""
    kernels: int = 0
    """Number of its Triton kernels."""
    assembling: float = 0.0
    """Processor seconds of Triton and the assembler, in as many processes as there are cores."""
    precision: str = "float32"
    graphs: list[str] = field(default_factory=list)

    @property
    def bound_by(self) -> str:
        """The largest bound on an H100: ``bytes``, ``flops`` or ``operations``."""
        bounds = GPUS[0].bounds(self)
        return max(bounds, key=bounds.__getitem__)

    def add(self, graph: Lowered, assemble: bool) -> None:
        """Add the counts of one of its graphs."""
        self.launches += graph.launches
        self.bytes += graph.bytes
        self.flops += graph.flops
        self.operations += graph.operations
        self.waits += graph.waits
        self.loop_steps += sum(graph.repeats.values())
        self.tracing += graph.tracing
        self.generating += graph.generating
        self.kernels += len(graph.kernels)
        used = machine_code(graph.kernels).values() if assemble else ()
        self.assembling += sum(each.seconds for each in used)
        self.registers = max(self.registers, *(each.registers for each in used), 0)
        self.spills += sum(each.spilled > 0 for each in used)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a configuration, its changes, and the extent of the lowering."""
    add_config(parser, "arena", "a configuration")
    parser.add_argument("--world-only", action="store_true", help="leave policy and training out")
    parser.add_argument(
        "--no-assembler", action="store_true", help="leave registers and spills out, which take longest"
    )
    parser.add_argument(
        "--frames",
        type=int,
        default=MINIBATCH,
        help="frames that are lowered (default: %(default)s); less for large agents",
    )


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Compute, and print the bounds."""
    result = bounds(parsed.config, parsed.overrides, parsed.world_only, not parsed.no_assembler, parsed.frames)
    print(table(result))
    return result


def bounds(
    config: str, overrides: list[str], world_only: bool = False, assemble: bool = True, frames: int = MINIBATCH
) -> dict[str, Any]:
    """Compute the work of a configuration on a GPU and the bounds of its speed.

    Args:
        config: name or file of a configuration.
        overrides: changes of the configuration.
        world_only: leave policy and training out.
        assemble: count registers and spills.
        frames: number of frames of the lowered rollout, and largest number of a minibatch.

    Returns:
        ``world`` and ``parts``: launches, bytes, operations, registers and spills of a call; ``per_second``: by GPU,
        the bound of the world's steps and of the steps of training (both summed over worlds, not over agents);
        ``products_share``: largest fraction of the time of that bound of training spent on matrix products.

    Raises:
        ValueError: there is no Triton, the world cannot be traced, or the precision cannot be lowered.
    """
    require_triton()
    experiment = small_experiment(config, overrides, frames)
    world = lower_world(experiment.make_world(num_envs=NUM_ENVS), assemble)
    per_second = {gpu.name: {"world": round(NUM_ENVS / gpu.seconds(world))} for gpu in GPUS}
    result = {"config": config, "overrides": overrides, "num_envs": NUM_ENVS, "world": asdict(world)}
    if not world_only:
        parts, played = lower_training(experiment, assemble)
        shares = {}
        for gpu in GPUS:
            seconds = sum(part.calls * gpu.seconds(part) for part in parts)
            products = sum(part.calls * part.flops / gpu.products[part.precision] for part in parts)
            per_second[gpu.name]["training"] = round(played / seconds)
            shares[gpu.name] = round(products / seconds, 3)
        result |= {"frames": played, "parts": [{**asdict(part), "bound_by": part.bound_by} for part in parts]}
        result["products_share"] = shares
    return {**result, "per_second": per_second}


class AccelerationOfGPU(AccelerationConfig):
    """Acceleration of a training on CUDA, whatever the device that traces it."""

    @override
    def advantages_on(self, device: torch.device) -> bool:
        """True if loops over time are compiled on CUDA."""
        return self.advantages


def small_experiment(config: str, overrides: list[str], frames: int = MINIBATCH) -> Experiment:
    """Return the experiment with its settings on CUDA, in sizes that a CPU can trace.

    The rollout shrinks to one minibatch, so that an iteration makes as many passes over its frames as at full size.
    """
    with pretended_h100():
        experiment = Experiment.load(config, *overrides, "device=cuda")
    experiment.device, experiment.acceleration = "cpu", AccelerationOfGPU()
    hyperparameters = experiment.algorithm
    if hyperparameters.precision not in _PRODUCTS:
        raise ValueError(
            f"algorithm.precision={hyperparameters.precision} cannot be lowered without a GPU: use one of "
            f"{', '.join(_PRODUCTS)}."
        )
    for name in ("minibatch_size", "batch_size"):
        if hasattr(hyperparameters, name):
            setattr(hyperparameters, name, min(frames, getattr(hyperparameters, name)))
    world = experiment.make_world(num_envs=1)
    if not abilities(world).branchless:  # before thousands are made
        raise ValueError(
            f"the world of {config} asks the host at every step, so no GPU runs it: name one that is ours."
        )
    agents = math.prod(group_spec(world).shape)
    experiment.world["num_envs"] = max(1, frames // (hyperparameters.rollout_steps * agents))
    if hasattr(hyperparameters, "replay_size"):
        hyperparameters.replay_size = frames
    return experiment


def lower_world(env: EnvBase, assemble: bool = True) -> Part:
    """Lower a step of the world with its resets, without the policy."""
    fill_caches(env)
    root = env.reset()
    root.set(env.action_key, env.full_action_spec[env.action_key].rand())
    options = abilities(env).compile_options_on(GPU)
    with torch.no_grad():
        (graph,) = lower(env.step_and_maybe_reset, root, options=options).values()
    part = Part("the world's step", graphs=["inference"])
    part.add(graph, assemble)
    return part


def lower_training(
    experiment: Experiment, assemble: bool = True, names: Collection[str] | None = None
) -> tuple[list[Part], int]:
    """Lower an iteration of training: return its compiled functions, with the numbers of calls, and its uncompiled
    stages, or only the functions of these names; and the number of world steps in it.
    """
    with mock.patch.object(traced_updater, "LEAST_FUSED", math.inf):  # the operator is a CPU's
        learner = experiment.make_learner()
    precision = experiment.algorithm.precision
    algorithm = learner.algorithm
    _make_moments(algorithm.updater)
    for function in learner.collector.accelerated:
        function.options = abilities(learner.env).compile_options_on(GPU)
    if isinstance(algorithm, OffPolicy):  # the rest of its update is compiled on a CPU alone
        for function in algorithm.accelerated:
            function.compiled = function is algorithm.updater.program
    with recorded(precision, assemble, names) as (parts, work):
        rollout = learner.collector.collect()
        learner.improve(rollout, experiment.algorithm.learning_rate.initial)
    stages = [Part(stage, each.launches, each.bytes, each.flops, precision=precision) for stage, each in work.items()]
    return [*parts.values(), *(stages if names is None else ())], rollout.shape[0] * rollout.shape[1]


def _make_moments(updater: Updater) -> None:
    """Make the optimizer create its moments, which it does only in its first step."""
    for parameter in updater.parameters:
        parameter.grad = torch.zeros_like(parameter)
    updater.optimizer.step()


@contextlib.contextmanager
def recorded(
    precision: str, assemble: bool, names: Collection[str] | None
) -> Iterator[tuple[dict[str, Part], dict[str, Work]]]:
    """Context in which functions that would be compiled run eagerly; their first call lowers them, in the modes active
    there. Other operations are counted by stages.
    """
    parts: dict[str, Part] = {}
    watched = Uncompiled(REST)
    running: list[CompiledFunction] = []

    def call(function: CompiledFunction, *args: Any) -> Any:
        if not function.compiled or running:  # those inside another one are part of it
            return function.eager(*args)
        running.append(function)
        with watched.stage(None):
            if function.name in parts:
                parts[function.name].calls += 1
            elif names is None or function.name in names:
                part = parts[function.name] = Part(function.name, precision=precision)
                for kind, graph in lower_function(function, *args).items():
                    part.graphs.append(kind)
                    part.add(graph, assemble)
            result = function.eager(*args)
        running.clear()
        return result

    patches = [mock.patch.object(kind, "__call__", call) for kind in (CompiledFunction, TracedFunction)]
    with patches[0], patches[1], watched.stages(UNCOMPILED), watched:
        yield parts, watched.work


def lower_function(function: CompiledFunction, *args: Any) -> dict[str, Lowered]:
    """Lower a function that a GPU would run compiled, see :func:`~benchmarks.lowering.lower`."""
    if not isinstance(function, TracedFunction):
        return lower(function.eager, *args, options=function.options)
    (tensordict,) = args
    start = time.process_time()
    graph, inputs, _ = trace(function.eager, dict(tensordict.items(True, True)), tensordict)
    tracing = time.process_time() - start
    with torch.no_grad():
        result = lower(graph, *inputs, options=options_on_gpu())
    result["inference"].tracing += tracing
    return result


def table(row: dict[str, Any]) -> str:
    """Return a result as lines of text."""
    n = row["num_envs"]
    rows = []
    for part in [row["world"], *row.get("parts", [])]:
        size = f"{part['bytes'] / n:,.0f} B per world" if part is row["world"] else f"{part['bytes'] / 1e6:,.1f} MB"
        counts = [f"{part[name]} {name}" for name in ("launches", "registers", "spills", "calls")]
        gaps = f"gaps of {part['launches'] * LAUNCH_GAP * 1e6:,.0f} us"
        compiling = [f"{part[name]:.1f} s {name}" for name in ("tracing", "generating", "assembling")]
        work = [f"{part['flops'] / 1e9:,.1f} GFLOP", f"{part['operations'] / 1e6:,.1f} M operations"]
        rows.append([part["name"], size, *work, *counts, gaps, f"{part['kernels']} kernels", *compiling])
    lines = [" ".join([row["config"], *row["overrides"]]), *(f"  {line}" for line in aligned(rows))]
    for name, rates in row["per_second"].items():
        bound = ", ".join(f"{what} {rate / 1e6:,.1f} M/s" for what, rate in rates.items())
        lines.append(f"  at most on {name}: {bound}")
    for name, share in row.get("products_share", {}).items():
        lines.append(f"  in matrix products on {name}: at most {share:.0%} of training")
    return "\n".join(lines)
