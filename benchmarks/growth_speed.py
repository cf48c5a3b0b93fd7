"""Hosts trained per second by the growth world, beside the same hosts one after another in plain PyTorch: an
``nn.Module`` with ``torch.optim.Adam``, the same minibatches, modules in all slots, and the same evaluations.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.lowering.uncompiled import Uncompiled, Work
from benchmarks.roofline import GPUS, LAUNCH_GAP
from envs import GrowthEnv
from envs.growth.optimizer import BETAS, EPSILON
from envs.growth.rules import MAX_RANK, Rules, Stage
from envs.growth.scripted import WaitingPlayer
from envs.growth.tasks import POOL, REACHES, Task
from torchrl_agent.core.tables import aligned

GROWN = {"batched, all slots live": True, "batched, no module": False}
"""Modules in the slots, by what the row is called."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add sizes."""
    parser.add_argument("--worlds", nargs="+", type=int, default=[64, 256], help="numbers of hosts (64 256)")
    parser.add_argument("--slots", nargs="+", type=int, default=[3], help="numbers of slots (3)")
    parser.add_argument("--steps", type=int, default=8, help="steps that are timed (8)")
    parser.add_argument("--threads", type=int, default=2, help="threads (2)")
    parser.add_argument("--eager", action="store_true", help="do not compile the step")
    parser.add_argument("--computed", action="store_true", help="bounds on a GPU instead, uncompiled; nothing is timed")


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Measure, and print the figures."""
    torch.set_num_threads(parsed.threads)
    if parsed.computed:
        return {"config": "growth", "overrides": ["computed"], "rows": bounds(parsed.worlds)}
    rows: list[dict[str, Any]] = []
    for slots in parsed.slots:
        rows.append({"what": "one after another", "slots": slots, "worlds": 1, **plain_speed(slots, parsed.steps)})
        for worlds, (what, grown) in product(parsed.worlds, GROWN.items()):
            speed = batched_speed(worlds, slots, parsed.steps, grown, not parsed.eager)
            rows.append({"what": what, "slots": slots, "worlds": worlds, **speed})
    print(table(rows))
    return {
        "config": "growth",
        "overrides": ["eager"] if parsed.eager else [],
        "steps": parsed.steps,
        "threads": parsed.threads,
        "compiled": not parsed.eager,
        "rows": rows,
    }


@torch.no_grad()
def batched_speed(worlds: int, slots: int, steps: int, grown: bool, compile: bool) -> dict[str, float]:
    """Return steps of hosts per second of wall time and of processor time."""
    env = GrowthEnv(worlds, level=3, rules={"max_steps": steps + 12, "slots": slots})
    player, seen = WaitingPlayer(env), env.reset()
    if grown:
        fill_slots(env)
    if compile:
        env.compile()
    seen = env.step(player(seen))["next"]
    began, used = time.perf_counter(), time.process_time()
    for _ in range(steps):
        seen = env.step(player(seen))["next"]
    return _per_second(worlds * steps, began, used)


def fill_slots(env: GrowthEnv) -> None:
    """Put a permanent module of the last blueprint into every slot; its weights are zero, which takes as long."""
    state = env.state_dict()
    for name, value in (("stage", Stage.PERMANENT), ("alpha", 1), ("blueprint", len(env.rules.blueprints) - 1)):
        state[f"state.slots.{name}"].fill_(value)
    env.load_state_dict(state)


@torch.no_grad()
def bounds(counts: list[int]) -> list[dict[str, Any]]:
    """Compute the launches and bytes of a step on a GPU, one kernel for each operation, and the most steps of hosts per
    second that an H100 makes of them; print them.
    """
    with torch.enable_grad():
        work = [("one after another", 1, counted(plain_stepper()))]
    for worlds in counts:
        env = GrowthEnv(worlds, level=3)
        player, seen = WaitingPlayer(env), env.reset()
        fill_slots(env)
        work.append(("batched, all slots live", worlds, counted(partial(env.step, player(seen)))))
    rows = []
    for what, worlds, each in work:
        seconds = max(each.launches * LAUNCH_GAP, each.bytes / GPUS[0].bandwidth)
        found = {"launches": each.launches, "bytes": each.bytes, "flops": each.flops, "per_second": worlds / seconds}
        rows.append({"what": what, "worlds": worlds, **found})
        print(what, worlds, ", ".join(f"{value:,.0f} {key}" for key, value in found.items()))
    return rows


def counted(call: Callable[[], Any]) -> Work:
    """Count the launches, bytes and operations of a call."""
    watched = Uncompiled("step")
    with watched:
        call()
    return watched.work["step"]


def plain_stepper(slots: int = Rules.slots) -> Callable[[], None]:
    """Return a function that makes a step of one host in plain PyTorch."""
    rules = Rules(slots=slots)
    task = GrowthEnv(1).data
    grown, twin = PlainHost(rules, True), PlainHost(rules, False)
    optimizers = [torch.optim.Adam(net.parameters(), rules.learning_rate, BETAS, EPSILON) for net in (grown, twin)]
    step = partial(plain_step, grown, twin, optimizers, task, rules)
    step()  # makes the moments
    return step


def plain_speed(slots: int, steps: int) -> dict[str, float]:
    """Return steps per second of one host in plain PyTorch."""
    step = plain_stepper(slots)
    began, used = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    return _per_second(steps, began, used)


def plain_step(
    grown: PlainHost, twin: PlainHost, optimizers: list[torch.optim.Optimizer], task: Task, rules: Rules
) -> None:
    """Train a host and its twin on the minibatches of a step, and evaluate all configurations."""
    for _ in range(rules.updates):
        index = torch.randint(0, POOL, (rules.batch_size,))
        inputs, labels = task.inputs[index] + 0.2 * task.noise[index], task.labels[index, 3]
        for net, optimizer in zip((grown, twin), optimizers, strict=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(inputs, [1.0] * rules.slots), labels).backward()
            nn.utils.clip_grad_norm_(net.parameters(), rules.clip)
            optimizer.step()
    inputs, labels = task.inputs[POOL:] + 0.2 * task.noise[POOL:], task.labels[POOL:, 3]
    with torch.no_grad():
        off = [[float(slot != other) for slot in range(rules.slots)] for other in range(rules.slots)]
        for alpha in ([1.0] * rules.slots, *off, [0.0] * rules.slots, [0.0] * rules.slots):
            (grown(inputs, alpha).argmax(-1) == labels).float().mean()
        (twin(inputs, []).argmax(-1) == labels).float().mean()


class PlainHost(nn.Module):
    """Host of the order task with a ``taps8`` module in each slot, or without modules.

    Args:
        rules: sizes.
        grown: True for modules.
    """

    def __init__(self, rules: Rules, grown: bool) -> None:
        super().__init__()
        width = rules.width
        self.embedding = nn.Linear(8, width, bias=False)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(rules.slots))
        self.classifier = nn.Linear(width, 8)
        slots = rules.slots if grown else 0
        self.down = nn.ModuleList(nn.Linear(3 * width, MAX_RANK) for _ in range(slots))
        self.up = nn.ModuleList(nn.Linear(MAX_RANK, width, bias=False) for _ in range(slots))

    def forward(self, inputs: Tensor, alpha: list[float]) -> Tensor:
        """Compute the logits [B, K] of rows [B, L, 8]."""
        features = torch.relu(self.embedding(inputs))
        for slot, block in enumerate(self.blocks):
            features = features + torch.relu(block(features))
            if slot < len(self.down):
                reach = REACHES[slot % len(REACHES)]
                around = torch.cat((features.roll(reach, 1), features, features.roll(-reach, 1)), -1)
                features = features + alpha[slot] * self.up[slot](torch.relu(self.down[slot](around)))
        return self.classifier(features.amax(1))


def _per_second(count: int, began: float, used: float) -> dict[str, float]:
    return {
        "per_second": count / (time.perf_counter() - began),
        "per_processor_second": count / (time.process_time() - used),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the speeds as lines of text; times are those of the same number of slots one after another."""
    lines, first = [["hosts", "slots", "at once", "steps/s", "steps per processor second", "times"]], 1.0
    for row in rows:
        speed = row["per_processor_second"]
        first = first if row["what"] in GROWN else speed
        cells = [*(str(row[key]) for key in ("slots", "worlds")), f"{row['per_second']:.0f}"]
        cells += [f"{speed:.0f}", f"{speed / first:.1f}"]
        lines.append([row["what"], *cells])
    return "\n".join(aligned(lines))
