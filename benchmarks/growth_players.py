"""Scripted players of the growth world in the same worlds: return, accuracy, gain and modules. They bound what a policy
can learn to gain; runs of trained agents can be added. The best of many fixed schedules is chosen in other worlds. In
variants of the world it is seen what carries over unchanged.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs import EnvBase
from torchrl.envs.utils import ExplorationType, set_exploration_type, step_mdp
from typing_extensions import override

from envs import GrowthEnv
from envs.growth.rules import BLUEPRINTS, Head, Operation
from envs.growth.scripted import GrowthPlayer, Planting, SchedulePlayer, germination, keep_what_holds
from torchrl_agent.core.checkpoint import MODULE_FILE
from torchrl_agent.core.progress import Progress
from torchrl_agent.core.tables import aligned
from torchrl_agent.experiment import Experiment
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.pretrained import load_pretrained
from torchrl_agent.runs.load import load_agent

APART = 8
"""Steps between germinations of a schedule."""
Plans: TypeAlias = "dict[str, tuple[Planting, ...]]"
Policy: TypeAlias = "Callable[[TensorDictBase], TensorDictBase]"
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "noise": {"rules": {"noise": [0.4, 0.5]}},
    "narrow": {"rules": {"width": 12}},
    "wide": {"rules": {"width": 24}},
    "mnist1d": {"task": "mnist1d"},
}
"""Arguments of worlds: more noise than in any default world, hosts of other sizes, and other data."""
SMALLER = "smaller schedule"
COLUMNS = ("return", "accuracy", "gain", "permanent", "rent", "operations")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add worlds and the seed."""
    parser.add_argument("--worlds", type=int, default=32, help="worlds of each player, the same for all (32)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the worlds (0)")
    parser.add_argument("--each", type=int, default=4, help="worlds of another seed for each schedule, or 0 (4)")
    parser.add_argument("--rent", type=float, help="add the most accurate schedule whose mean rent is at most this")
    parser.add_argument("--players", nargs="*", help="names of scripted players (all)")
    parser.add_argument("--variants", nargs="+", default=["default"], choices=list(VARIANTS), help="worlds (default)")
    parser.add_argument("--runs", nargs="+", default=[], help="folders of trained agents or pre-trained policies")


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Measure, and print the figures."""
    scripted = list(GrowthEnv(1).players()) if parsed.players is None else parsed.players
    plans = best_schedules(parsed.each, parsed.seed + 1, parsed.rent) if parsed.each else {}
    names = [*scripted, *plans, *parsed.runs]
    rows, cells, played = [], list(product(parsed.variants, names)), {}
    rivals = {"ahead_of_first": ("return", names[0])}
    if parsed.rent is not None:
        rivals["accuracy_ahead_of_smaller"] = "accuracy", SMALLER
    for variant, name in Progress(len(cells), "player").over(cells):
        torch.manual_seed(parsed.seed)
        env = GrowthEnv(parsed.worlds, seed=parsed.seed, **VARIANTS[variant])
        played[name] = final(*known_player(name, env, plans))
        if name == names[-1]:  # rivals may come last
            rows += [{"variant": variant, **row} for row in compared(played, rivals)]
            print(table(rows[-len(names) :]), flush=True)
    print(table(rows))
    return {
        "config": "growth",
        "overrides": [*parsed.variants, f"seed={parsed.seed}"],
        "worlds": parsed.worlds,
        "seed": parsed.seed,
        "schedules": {name: [planting._asdict() for planting in plan] for name, plan in plans.items()},
        "rows": rows,
    }


def known_player(name: str, env: GrowthEnv, plans: Plans | None = None) -> tuple[EnvBase, Policy]:
    """Return the world with what a player needs, and the player: a chosen schedule, a scripted one, or a run's."""
    if plans and name in plans:
        return env, SchedulePlayer(env, plans[name])
    if name in env.players():
        return env, env.players()[name]
    agent = _agent(name, env)
    return agent.attach(env), agent.eval().policy


def _agent(name: str, env: GrowthEnv) -> Agent:
    """Return the agent of a run, or that of a pre-trained policy."""
    if not (Path(name) / MODULE_FILE).exists():
        return load_agent(name, device="cpu")[1]
    experiment = Experiment.load("growth", f"pretrained.policy={name}", "device=cpu")
    agent = experiment.make_agent(env)
    load_pretrained(agent, experiment.pretrained, frozen=())
    return agent


def schedules() -> list[tuple[Planting, ...]]:
    """Return the fixed schedules: no module, or one to three of a blueprint, from a step on, blended in some way."""
    choices = product((1, 2, 3), ("taps4", "taps8"), (0, 4, 10, 20), ((0, 0), (2, 2)))
    number = {blueprint.name: index for index, blueprint in enumerate(BLUEPRINTS)}
    return [(), *(_schedule(count, number[name], start, blend) for count, name, start, blend in choices)]


def _schedule(count: int, blueprint: int, start: int, blend: tuple[int, int]) -> tuple[Planting, ...]:
    """Return the schedule that germinates in the first slots, ``APART`` steps apart; ``blend`` is style and tempo."""
    return tuple(Planting(slot, start + APART * slot, blueprint, *blend) for slot in range(count))


def best_schedules(each: int, seed: int, rent: float | None = None) -> Plans:
    """Return the ``schedule`` with the highest mean return over ``each`` worlds, all in one batch, and if ``rent`` is
    given the ``smaller schedule``, the most accurate one of those whose mean rent is at most that.
    """
    plans = schedules()
    env = GrowthEnv(each * len(plans), seed=seed)
    episode = final(env, MixedSchedules(env, plans))
    means = {key: episode[key].reshape(each, len(plans)).mean(0) for key in ("return", "accuracy", "rent")}
    best = {"schedule": plans[int(means["return"].argmax())]}
    if rent is not None:
        smaller = torch.where(means["rent"] <= rent, means["accuracy"], 0.0)
        best[SMALLER] = plans[int(smaller.argmax())]
    return best


class MixedSchedules(GrowthPlayer):
    """Policy that follows another schedule in each world: world i has schedule i modulo their number.

    Args:
        env: the world to act in.
        plans: germinations of each schedule.
    """

    def __init__(self, env: GrowthEnv, plans: Sequence[Sequence[Planting]]) -> None:
        super().__init__(env)
        never = Planting(0, env.rules.max_steps + 1)
        longest = max(len(plan) for plan in plans)
        filled = [[*plan, *[never] * (longest - len(plan))] for plan in plans]
        of_worlds = [filled[world % len(plans)] for world in range(env.num_envs)]
        starts = [[plan[number].start for plan in of_worlds] for number in range(longest)]
        self.starts = torch.tensor(starts, device=env.device)
        columns = [[germination(plan[number], env.rules) for plan in of_worlds] for number in range(longest)]
        self.actions = torch.tensor(columns, device=env.device).transpose(1, 2)  # [germinations, 8, N]

    @override
    def choose(self, legal: Tensor) -> Tensor:
        """Return the actions."""
        action = keep_what_holds(self.waiting(legal.shape[-1]), legal)
        for start, due_action in zip(self.starts, self.actions, strict=True):
            empty = legal[Operation.GERMINATE].gather(0, due_action[Head.SLOT].unsqueeze(0))[0]
            due = (self.env.state.step >= start) & empty & (action[Head.OPERATION] == Operation.WAIT)
            action = torch.where(due, due_action, action)
        return action


@torch.no_grad()
def final(env: EnvBase, player: Policy, watch: Callable[[], None] | None = None) -> dict[str, Tensor]:
    """Return the statistics [worlds] of an episode in each world, by the most likely actions of a learned player;
    ``watch`` is called after each step.
    """
    seen = env.reset()
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        for _ in range(env.rules.max_steps):
            seen = step_mdp(env.step(player(seen)))
            if watch is not None:
                watch()
    return {key: value.flatten() for key, value in seen["episode"].items()}


def summary(episode: dict[str, Tensor]) -> dict[str, Any]:
    """Return means of statistics [N], half widths of their 95 % intervals, the mean return by the number of modules
    that pay, and the correlation of that number with the number of permanent modules.
    """
    useful = episode["useful"]
    return {
        "worlds": len(useful),
        **{key: episode[key].mean().item() for key in COLUMNS},
        "half_width": {key: interval_of(episode[key]) for key in COLUMNS},
        "return_by_useful": {int(n): episode["return"][useful == n].mean().item() for n in useful.unique()},
        "correlation": correlation(useful, episode["permanent"]),
    }


def compared(played: dict[str, dict[str, Tensor]], rivals: dict[str, tuple[str, str]]) -> list[dict[str, Any]]:
    """Return the summary of each player's episodes, with how far it is ahead of rivals: a statistic and a name each."""
    rows = []
    for player, episode in played.items():
        ahead = {label: beyond(episode[key], played[rival][key]) for label, (key, rival) in rivals.items()}
        rows.append({"player": Path(player).name, **summary(episode), **ahead})
    return rows


def beyond(values: Tensor, others: Tensor) -> dict[str, float]:
    """Return the mean by which values [N] exceed others of the same worlds, and half its 95 % interval."""
    return {"mean": (values - others).mean().item(), "half_width": interval_of(values - others)}


def interval_of(values: Tensor) -> float:
    """Return half the width of the 95 % interval of the mean of values [N]."""
    return 1.96 * values.std().item() / len(values) ** 0.5


def correlation(one: Tensor, other: Tensor) -> float | None:
    """Return Pearson's correlation; None if one of them is constant."""
    pair = torch.stack((one, other))
    return None if float(pair.std(1).min()) == 0 else float(torch.corrcoef(pair)[0, 1])


def table(rows: list[dict[str, Any]]) -> str:
    """Return the figures as lines of text."""
    lines = [["world", "player", *COLUMNS, "correlation", "return ahead", "accuracy ahead of smaller"]]
    for row in rows:
        cells = [f"{row[key]:.2f} ± {row['half_width'][key]:.2f}" for key in COLUMNS]
        related = "-" if row["correlation"] is None else f"{row['correlation']:.2f}"
        found = (row.get(label) for label in ("ahead_of_first", "accuracy_ahead_of_smaller"))
        ahead = ["{mean:.3f} ± {half_width:.3f}".format(**each) if each else "-" for each in found]
        lines.append([row["variant"], row["player"], *cells, related, *ahead])
    return "\n".join(aligned(lines))
