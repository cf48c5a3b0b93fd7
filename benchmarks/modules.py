"""Speed of the four-module agent: each module and the whole, compiled beside eager, and the cost of memory."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase, TensorDictSequential
from torch import Tensor, nn
from torchrl.modules import set_recurrent_mode

from benchmarks.lowering.uncompiled import count_flops
from torchrl_agent import keys
from torchrl_agent.cli.arguments import add_overrides
from torchrl_agent.core.devices import resolve_device
from torchrl_agent.core.ranks import masked_mean
from torchrl_agent.core.tables import aligned
from torchrl_agent.experiment import Experiment
from torchrl_agent.models.agent import Agent
from torchrl_agent.modules.networks import GatedConcat
from torchrl_agent.optimization.compilation import AccelerationConfig, CompiledFunction
from torchrl_agent.profiling.speed import Timed, device_name, measure_in_own_process
from torchrl_agent.profiling.timing import seconds_per_call
from torchrl_agent.training.collector import agent_rows
from torchrl_agent.training.learner import Learner

FEED_FORWARD = ("model.memory=none", "model.perception.enabled=true")
RECURRENT_ONLY = (
    *(f"model.{name}.enabled=false" for name in ("world_model", "social_model", "manager")),
    "model.perception.prediction_coeff=0",
)
"""Overrides that leave perception and controller, with a memory or without."""
RESETS = 0.02
"""Fraction of frames that begin an episode in the measurement of memory."""
LARGE = 1024
"""Rows and columns of the matrices whose product measures the machine's peak; a few of them fit into caches."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add changes of the agent's configuration, the number of worlds and seconds."""
    add_overrides(parser)
    parser.add_argument("--num-envs", type=int, help="number of worlds")
    parser.add_argument("--seconds", type=float, default=2.0, help="shortest time per measurement (2)")


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Measure, and print the figures."""
    experiment = Experiment.load("town_agent", *parsed.overrides)
    size = parsed.num_envs or experiment.world["num_envs"]
    timed = Timed("town_agent", (*parsed.overrides, f"world.num_envs={size}"), size, "eager", parsed.seconds)
    result = measure_agent(
        [*timed.overrides], lambda mode: measure_in_own_process(replace(timed, mode=mode)), parsed.seconds
    )
    print(table(result))
    return {"config": "town_agent", "device": device_name(resolve_device(experiment.device)), **result}


def measure_modules(experiment: Experiment, seconds: float) -> list[dict[str, Any]]:
    """Measure the milliseconds of each module, eager and compiled: ``act`` (one step of all agents, no gradients) and
    ``learn`` (loss and gradients of one minibatch of sequences, or of frames without memory), with ``act_ratio`` and
    ``learn_ratio``, the speed-up of compiled code, and ``act_gflop`` and ``learn_gflop``, 1e9 operations of matrix
    products and convolutions.

    Args:
        experiment: an agent with modules.
        seconds: shortest time of each measurement.
    """
    learner = experiment.make_learner()
    agent, steps = learner.agent, experiment.algorithm.rollout_steps
    minibatch = _minibatch(learner)
    root = learner.collector.root
    frame = (root if agent.group is None else root.get(agent.group)).clone()
    rows = []
    for name, module, loss in _modules(agent, learner.algorithm.loss.objective):
        row: dict[str, Any] = {"module": name, "agents": frame.numel(), "frames": minibatch.numel(), "steps": steps}
        for what, function, given in (("act", _acting(module), frame), ("learn", _learning(loss), minibatch)):
            for mode in ("eager", "compiled"):
                part = CompiledFunction(f"{name}'s {what}", function, mode == "compiled")
                with set_recurrent_mode(what == "learn" and minibatch.ndim == 2):
                    if mode == "eager":
                        flops = count_flops(partial(_with_gradients, function, given))
                        row[f"{what}_gflop"] = round(flops / 1e9, 4)
                    row[f"{what}_{mode}_ms"] = _milliseconds(partial(part, given), seconds, learner.device)
                if mode == "compiled" and not part.compiled:
                    row[f"{what}_compiled_ms"] = None
            if row[f"{what}_compiled_ms"] is not None:
                row[f"{what}_ratio"] = round(row[f"{what}_eager_ms"] / row[f"{what}_compiled_ms"], 2)
        rows.append(row)
        with torch.no_grad(), set_recurrent_mode(False):
            frame = module(frame)
        with torch.no_grad(), set_recurrent_mode(minibatch.ndim == 2):
            minibatch = module(minibatch)
    return rows


def measure_memory(experiment: Experiment, resets: float, seconds: float) -> float:
    """Measure the milliseconds of loss and gradients of one compiled minibatch, of whole sequences if the agent is
    recurrent.

    Args:
        experiment: an agent with memory, or the same without.
        resets: fraction of frames that begin an episode.
        seconds: shortest time of the measurement.
    """
    learner = experiment.make_learner()
    minibatch = _minibatch(learner)
    if keys.IS_INIT in minibatch.keys():
        begins = minibatch.get(keys.IS_INIT)
        begins.copy_(torch.rand(begins.shape, device=begins.device) < resets)
    return _milliseconds(partial(learner.algorithm.updater.update, minibatch), seconds, learner.device)


def _minibatch(learner: Learner) -> TensorDictBase:
    """Return the first minibatch of PPO's frames, or sequences, of a rollout."""
    algorithm: Any = learner.algorithm  # PPO, which has advantages
    data, _ = algorithm.advantages(agent_rows(learner.collector.collect(), learner.agent.group))
    return data[: learner.experiment.algorithm.minibatch_size // math.prod(data.shape[1:])].clone()


def _modules(agent: Agent, objective: nn.Module) -> list[tuple[str, TensorDictModuleBase, nn.Module]]:
    """Return name, module, and module with its loss, of each part of the agent in the order in which they run; parts
    that only copy are included in others.
    """
    modules = {name: module for name, module in agent.agent_modules.items() if module.acts}
    losses = {name: module.losses[0] if module.losses else _BeliefLoss() for name, module in modules.items()}
    modules["perception"] = TensorDictSequential(agent.normalizer, modules["perception"])
    losses["perception"] = _BeliefLoss()
    result = [(name, module, nn.Sequential(module, losses[name])) for name, module in modules.items()]
    join = [part for part in agent.encoder if isinstance(part, GatedConcat)]
    controller = TensorDictSequential(*join, *agent.actor_head)
    return [*result, ("controller", controller, nn.Sequential(*join, objective))]


class _BeliefLoss(nn.Module):
    """Loss that replaces those of later modules for perception: it gives a gradient to every number of the belief."""

    def forward(self, tensordict: TensorDictBase) -> dict[str, Tensor]:
        belief = tensordict.get((keys.BELIEF, "mean"))
        return {"loss_belief": masked_mean(belief.square().mean(-1), torch.ones_like(belief[..., 0], dtype=torch.bool))}


def _acting(module: TensorDictModuleBase) -> Callable[[TensorDictBase], TensorDictBase]:
    @torch.no_grad()
    def act(tensordict: TensorDictBase) -> TensorDictBase:
        return module(tensordict.copy())

    return act


def _learning(loss: nn.Module) -> Callable[[TensorDictBase], Tensor]:
    """Return a function of the sum of losses; the backward graph is compiled with that of the forward pass."""

    def learn(tensordict: TensorDictBase) -> Tensor:
        losses = loss(tensordict.copy())
        return sum(value for name, value in losses.items() if name.startswith("loss_"))

    return learn


def _milliseconds(function: Callable[[], Any], seconds: float, device: torch.device) -> float:
    """Return the milliseconds of one call, including gradients if the function returns a loss."""
    return round(1e3 * seconds_per_call(partial(_with_gradients, function), seconds, device), 3)


def _with_gradients(function: Callable[..., Any], *args: Any) -> None:
    """Call a function and, if it returns a loss, run its backward pass."""
    result = function(*args)
    if isinstance(result, Tensor) and result.requires_grad:
        result.backward()


def training_flops(experiment: Experiment) -> float:
    """Return the operations of matrix products and convolutions per agent-step of training: acting, advantages and
    updates; counted in one eager iteration.
    """
    experiment.acceleration = AccelerationConfig(step=False, advantages=False, update=False, cudagraphs=False)
    learner = experiment.make_learner()
    frames = 0

    def iterate() -> None:
        nonlocal frames
        rollout = learner.collector.collect()
        frames = agent_rows(rollout, learner.agent.group).numel()
        learner.improve(rollout, experiment.algorithm.learning_rate.initial)

    return count_flops(iterate) / frames


def add_roofline(result: dict[str, Any], flops: float, peak: float) -> None:
    """Add the bounds by the machine's peak to the result: ``roofline`` with ``flops_per_agent_step`` of training,
    ``peak_gflops`` (1e9 operations a second) and ``training_bound`` [agent-steps/s], and beside each time of compiled
    code the fraction of the peak that it reaches, ``..._of_peak``.

    Args:
        result: rows of ``modules`` and ``whole``.
        flops: operations of an agent-step of training.
        peak: operations per second.
    """
    for row in result["modules"]:
        for what in ("act", "learn"):
            if row[f"{what}_compiled_ms"] is not None:
                row[f"{what}_of_peak"] = round(1e12 * row[f"{what}_gflop"] / row[f"{what}_compiled_ms"] / peak, 3)
    for row in result["whole"]:
        row["of_peak"] = round(row["training"] * flops / peak, 3)
    result["roofline"] = {
        "flops_per_agent_step": round(flops),
        "peak_gflops": round(peak / 1e9, 1),
        "training_bound": round(peak / flops),
    }


def measure_agent(overrides: list[str], whole: Callable[[str], dict[str, Any]], seconds: float) -> dict[str, Any]:
    """Measure all figures that ``python -m benchmarks modules`` prints.

    Args:
        overrides: overrides of ``configs/town_agent.yaml``.
        whole: function that measures the whole agent in a mode (eager, compiled, cudagraphs), in its own process.
        seconds: shortest time of each measurement.

    Returns:
        ``whole``: rows of agent-steps per second and peak memory, with ``act_ratio`` and ``learn_ratio`` of compiled to
        eager; ``modules`` (see :func:`measure_modules`); ``recurrence``: milliseconds of an update of perception and
        controller alone with memory and without, and their ``ratio``; ``roofline``: see :func:`add_roofline`.
    """
    experiment = Experiment.load("town_agent", *overrides)
    eager, compiled = whole("eager"), whole("compiled")
    learning = [1 / row["training"] - 1 / row["world_policy"] for row in (eager, compiled)]
    update = []
    for memory in (FEED_FORWARD, ("model.memory=gru",)):
        plain = Experiment.load("town_agent", *overrides, *RECURRENT_ONLY, *memory)
        update.append(measure_memory(plain, RESETS, seconds))
    result = {
        "config": "town_agent",
        "overrides": overrides,
        "whole": [eager, compiled],
        "act_ratio": round(compiled["world_policy"] / eager["world_policy"], 2),
        "learn_ratio": round(learning[0] / learning[1], 2),
        "modules": measure_modules(experiment, seconds),
        "recurrence": {
            "resets": RESETS,
            "steps": experiment.algorithm.rollout_steps,
            "feed_forward_ms": update[0],
            "recurrent_ms": update[1],
            "ratio": round(update[1] / update[0], 2),
        },
    }
    device = resolve_device(experiment.device)
    add_roofline(result, training_flops(Experiment.load("town_agent", *overrides)), peak_flops(seconds, device))
    return result


def table(result: dict[str, Any]) -> str:
    """Return the figures as lines of text."""
    columns = ("eager_ms", "compiled_ms", "ratio", "gflop", "of_peak")
    names = ("module", *(f"{what}_{column}" for what in ("act", "learn") for column in columns))
    lines = aligned([names, *([str(row.get(name, "")) for name in names] for row in result["modules"])])
    for row in result["whole"]:
        lines.append(
            f"whole, {row['mode']}: {row['world_policy']:,} agent-steps/s acting, {row['training']:,} training, "
            f"{row['peak_memory_mb'] or math.nan:,} MB, {row['compile_seconds']} s compiling, "
            f"{row['of_peak']:.1%} of the peak"
        )
    roofline = result["roofline"]
    lines.append(
        f"networks: {roofline['flops_per_agent_step'] / 1e6:.2f} million operations for an agent-step of training; at "
        f"the {roofline['peak_gflops']} GFLOP/s of large products at most {roofline['training_bound']:,} agent-steps/s"
    )
    memory = result["recurrence"]
    lines.append(f"compiled to eager: acting {result['act_ratio']}, update {result['learn_ratio']} times as fast")
    lines.append(
        f"update over {memory['steps']} steps, {memory['resets']:.0%} resets: {memory['recurrent_ms']} ms with memory, "
        f"{memory['feed_forward_ms']} ms without: {memory['ratio']} times"
    )
    return "\n".join(lines)


def peak_flops(seconds: float, device: torch.device) -> float:
    """Return the machine's peak: operations per second of a product of two large float32 matrices, with the process's
    threads and precision of products.
    """
    matrix = torch.rand(LARGE, LARGE, device=device)
    return 2 * LARGE**3 / seconds_per_call(lambda: matrix @ matrix, seconds, device)
