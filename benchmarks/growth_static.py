"""Growing beside what one would do instead, as accuracy against parameters: static networks with the same modules from
the start, trained with as many operations as the grown ones; and random search over static networks, with as many hosts
as a policy has seen. A static network is the same in all worlds.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.growth_players import Policy, final, interval_of, known_player
from envs import GrowthEnv
from envs.growth.actions import any_of
from envs.growth.dynamics import evaluate, germinate, host_size, learn
from envs.growth.rules import Rules, Stage
from envs.growth.state import State
from envs.growth.tasks import LENGTH
from envs.toolkit.chance import Chance, seed_chance
from envs.toolkit.records import choose
from torchrl_agent.core.progress import Progress
from torchrl_agent.core.tables import aligned

PICTURE = Path(__file__).parents[1] / "docs" / "growth_static.png"
NONE = -1
"""Blueprint of an empty slot."""


class Networks(NamedTuple):
    """Networks at the end of their training, one for each world."""

    accuracy: Tensor
    """[N]"""
    blueprints: Tensor
    """Blueprint of each slot, or ``NONE``, int64 [S, N]."""
    parameters: Tensor
    """Number of parameters, [N]."""
    operations: Tensor
    """Multiplications of all forward passes in training, [N]."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add players, worlds, and the extent of the search."""
    parser.add_argument("--players", nargs="+", default=["wait", "trial", "two"], help="players (wait trial two)")
    parser.add_argument("--runs", nargs="+", default=[], help="folders of trained agents")
    parser.add_argument("--worlds", type=int, default=24, help="worlds of each player (24)")
    parser.add_argument("--seed", type=int, default=1000, help="seed of the worlds; the search has the next one (1000)")
    parser.add_argument("--candidates", type=int, default=40, help="static networks of the search (40)")
    parser.add_argument("--each", type=int, default=8, help="worlds in which each of them is trained (8)")
    parser.add_argument("--draw", action="store_true", help=f"draw docs/{PICTURE.name}")


@torch.no_grad()
def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Measure, and print the figures."""
    rows = []
    names = [*parsed.players, *parsed.runs]
    for name in Progress(len(names), "player").over(names):
        env = GrowthEnv(parsed.worlds, seed=parsed.seed)
        world, player = known_player(name, env)
        grown = grow(world, player, env)
        rows.append(described(Path(name).name, grown))
        if bool((grown.blueprints != NONE).any()):
            env = GrowthEnv(parsed.worlds, seed=parsed.seed)
            static = train_static(env, grown.blueprints, parsed.seed, grown.operations)
            rows.append(described(f"{rows[-1]['network']}'s modules from the start", static))
        print(table(rows[-2:]), flush=True)
    candidates = search(parsed.candidates, parsed.each, parsed.seed + 1)
    best = max(candidates, key=lambda each: each["accuracy"])
    env = GrowthEnv(parsed.worlds, seed=parsed.seed)
    blueprints = torch.tensor(best["blueprints"]).unsqueeze(1).expand(-1, parsed.worlds)
    rows.append(described("best of random search", train_static(env, blueprints, parsed.seed)))
    print(table(rows))
    if parsed.draw:
        draw(rows, candidates)
    found = {"rows": rows, "candidates": candidates, "worlds": parsed.worlds, "each": parsed.each, "seed": parsed.seed}
    return {"config": "growth", "overrides": [], **found}


def described(name: str, networks: Networks) -> dict[str, Any]:
    """Return means of networks with half the width of the accuracy's 95 % interval."""
    means = {key: getattr(networks, key).mean().item() for key in ("accuracy", "parameters", "operations")}
    return {"network": name, **means, "half_width": interval_of(networks.accuracy)}


def grow(world: Any, player: Policy, env: GrowthEnv) -> Networks:
    """Let a player grow a network in each world, counting the operations of its training."""
    operations, blueprints = torch.zeros(env.num_envs), torch.full_like(env.state.slots.blueprint, NONE)

    def count() -> None:
        slots, runs = env.state.slots, env.state.step > 0  # an episode that has ended is a fresh one already
        trains = any_of(slots.stage, Stage.TRAINING, Stage.BLENDING, Stage.HOLDING, Stage.PERMANENT)
        operations.add_(_multiplications(env, slots.blueprint, trains))
        there = any_of(slots.stage, Stage.BLENDING, Stage.HOLDING, Stage.PERMANENT)
        blueprints.copy_(torch.where(runs, torch.where(there, slots.blueprint, NONE), blueprints))

    accuracy = final(world, player, count)["accuracy"]
    return Networks(accuracy, blueprints, parameters(env, blueprints), operations)


def _multiplications(env: GrowthEnv, blueprints: Tensor, present: Tensor) -> Tensor:
    """Count the multiplications of a step's forward passes in training, with the modules that are present, [N]."""
    width, features = env.rules.width, env.data.inputs.shape[-1]
    host = LENGTH * (features * width + env.rules.slots * width**2) + width * env.classes
    each = torch.tensor([(4 if blueprint.taps else 2) * width * blueprint.rank for blueprint in env.rules.offered])
    rows = env.rules.updates * env.rules.batch_size
    return rows * (host + LENGTH * (each[blueprints.clamp_min(0)] * present).sum(0))


def parameters(env: GrowthEnv, blueprints: Tensor) -> Tensor:
    """Count the parameters of hosts with modules [S, N], [N]."""
    size = env.tables.parameters.gather(1, blueprints.clamp_min(0)) * (blueprints != NONE)
    return host_size(env.state.weights.host) + size.sum(0)


def train_static(env: GrowthEnv, blueprints: Tensor, seed: int, operations: Tensor | None = None) -> Networks:
    """Train hosts whose modules [S, N] are there from the start, in the first worlds of a fresh ``env`` of that seed,
    on other minibatches than those of its steps.

    Each is trained for an episode's steps, or until it has used so many ``operations`` [N].
    """
    env.reset()
    chance = seed_chance(seed, env.num_envs, env.device)
    state = planted(env, env.state, blueprints, chance)
    per_step = _multiplications(env, blueprints, blueprints != NONE)
    steps = torch.full_like(state.step, env.rules.max_steps) if operations is None else (operations / per_step).round()
    for step in range(int(steps.max())):
        chance = chance.tick()
        state = choose(steps > step, learn(state, chance, env.data, env.rules, env.tables), state)
    state, _ = evaluate(state, env.data, env.rules, env.tables)
    return Networks(state.measures.accuracy, blueprints, parameters(env, blueprints), steps * per_step)


def planted(env: GrowthEnv, state: State, blueprints: Tensor, chance: Chance) -> State:
    """Put permanent modules [S, N] into fresh hosts."""
    present = blueprints != NONE
    for slot in range(env.rules.slots):
        here = present & (torch.arange(env.rules.slots).unsqueeze(1) == slot)
        chance = chance.tick()
        state = germinate(state, here, chance, env.rules)
    slots = state.slots._replace(
        stage=torch.where(present, Stage.PERMANENT, Stage.DORMANT),
        blueprint=blueprints.clamp_min(0),
        alpha=present.float(),
    )
    return state._replace(slots=slots)


def search(candidates: int, each: int, seed: int) -> list[dict[str, Any]]:
    """Train random static networks in ``each`` worlds, the same for all; return their mean accuracy and parameters."""
    rules, generator = Rules(), torch.Generator().manual_seed(seed)
    drawn = torch.randint(NONE, len(rules.offered), (candidates, rules.slots), generator=generator)
    found = []
    for blueprints in Progress(candidates, "candidate").over(list(drawn)):
        trained = train_static(GrowthEnv(each, seed=seed), blueprints.unsqueeze(1).expand(-1, each), seed)
        found.append({**described("", trained), "blueprints": blueprints.tolist()})
    return found


def draw(rows: list[dict[str, Any]], candidates: list[dict[str, Any]]) -> None:
    """Draw accuracy against parameters."""
    from matplotlib.figure import Figure  # slow to import, and only needed here

    figure = Figure((6.4, 4), layout="constrained")
    axes = figure.add_subplot(xlabel="parameters", ylabel="accuracy")
    axes.plot(*_points(candidates), "o", color="0.75", label="random static networks")
    for row in rows:
        static = "from the start" in row["network"] or "search" in row["network"]
        axes.errorbar(
            *_points([row]), yerr=row["half_width"], marker="s" if static else "o", capsize=3, label=row["network"]
        )
    axes.legend(fontsize=8)
    figure.savefig(PICTURE, dpi=100)


def _points(rows: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    return [row["parameters"] for row in rows], [row["accuracy"] for row in rows]


def table(rows: list[dict[str, Any]]) -> str:
    """Return the figures as lines of text."""
    lines = [["network", "accuracy", "parameters", "multiplications"]]
    for row in rows:
        accuracy = f"{row['accuracy']:.2f} ± {row['half_width']:.2f}"
        lines.append([row["network"], accuracy, f"{row['parameters']:,.0f}", f"{row['operations'] / 1e6:.0f} million"])
    return "\n".join(aligned(lines))
