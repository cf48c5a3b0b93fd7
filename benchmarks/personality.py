"""Study of personality: shares of actions by a trait, and wealth and its Gini coefficient by generation, drawn."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from benchmarks.arguments import add_config
from benchmarks.families import gini
from torchrl_agent.cli.arguments import add_seeds
from torchrl_agent.core.abilities import abilities
from torchrl_agent.core.tables import interval
from torchrl_agent.experiment import Experiment
from torchrl_agent.loop import iterate
from torchrl_agent.population.inheritance import MONEY
from torchrl_agent.population.learner import PopulationLearner
from torchrl_agent.runs.report import COLORS, write_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {"without": "nothing is left to children", "with": "a part is left to children"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a population with families, seeds, a trait, the inherited fraction of wealth and a folder of pictures."""
    add_config(parser, "families", "a population with families")
    add_seeds(parser)
    parser.add_argument("--trait", default="world.traits.greed", help="a gene (world.traits.greed)")
    parser.add_argument("--wealth", type=float, default=0.5, help="fraction left to children where any is (0.5)")
    parser.add_argument("--pictures", type=Path, help="folder for families_actions.png and families_wealth.png")


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Measure, print the figures and draw the pictures."""
    result = measure_personality(parsed.config, parsed.overrides, parsed.seeds, parsed.trait, parsed.wealth)
    print(table(result))
    if parsed.pictures is not None:
        write_figure(draw_actions(result), parsed.pictures / "families_actions.png", option="--pictures")
        write_figure(draw_wealth(result), parsed.pictures / "families_wealth.png", option="--pictures")
    return result


def measure_personality(
    config: str, overrides: Sequence[str], seeds: Sequence[int], trait: str, wealth: float
) -> dict[str, Any]:
    """Measure three populations per seed: one without evolution, whose members differ in their genes alone, and two
    with families, without and with inheritance of money.

    Args:
        config: a population with families whose worlds name their actions and report money.
        overrides: changes of it.
        seeds: seeds of the populations.
        trait: the gene by which actions are compared.
        wealth: fraction of money that the last population leaves to children.

    Returns:
        ``actions``: of each action the ``slope`` of its share in a least-squares line over the trait, so the change
        from 0 to 1, per seed and in the mean with its 95 % t-interval; ``members``: trait and shares of actions of each
        member over the later half of the training; ``wealth``: money of the members and its Gini coefficient, [seeds,
        generations] each.
    """
    members: list[list[list[float]]] = []
    owned: dict[str, Any] = {name: {"money": [], "gini": []} for name in NAMES}
    names: Sequence[str] = ()
    for seed in seeds:
        still = _learner(Experiment.load(config, *overrides, "population.evolve=none", f"seed={seed}"))
        names = abilities(still.env).names()["actions"]
        members.append(torch.cat((still.evolution.genes[trait].unsqueeze(1), shares(still, len(names))), 1).tolist())
        for name, part in zip(NAMES, (0.0, wealth), strict=True):
            settings = [f"population.family.wealth={part}", f"seed={seed}"]
            for kind, values in fortunes(_learner(Experiment.load(config, *overrides, *settings))).items():
                owned[name][kind].append(values)
    slopes = [slope(torch.tensor(each, dtype=torch.float64)) for each in members]
    actions = {}
    for index, action in enumerate(names):
        of_seeds = [each[index].item() for each in slopes]
        mean, half = interval(of_seeds)
        actions[action] = {"slope": of_seeds, "mean": mean, "half_width": half, "beyond_0": abs(mean) > half}
    return {"seeds": list(seeds), "trait": trait, "actions": actions, "members": members, "wealth": owned}


def _learner(experiment: Experiment) -> PopulationLearner:
    learner = experiment.make_learner()
    if not isinstance(learner, PopulationLearner) or MONEY not in learner.collector.statistics:
        raise ValueError(f"configuration {experiment.name} is no population whose worlds report money: use families.")
    return learner


def shares(learner: PopulationLearner, num_actions: int) -> Tensor:
    """Train; return the shares of actions of each member over the later half of the training, [P, actions]."""
    counts = torch.zeros(learner.members, num_actions, dtype=torch.float64)
    for iteration in iterate(learner):
        if 2 * iteration.frames > learner.total_frames:
            action = iteration.rollout[learner.env.action_key].movedim(1, 0).reshape(learner.members, -1)
            counts += torch.nn.functional.one_hot(action, num_actions).sum(1).cpu()
    return counts / counts.sum(1, keepdim=True)


def fortunes(learner: PopulationLearner) -> dict[str, list[float]]:
    """Train; return the mean money of the members, and its Gini coefficient, at the end of each generation."""
    found: dict[int, Tensor] = {}
    generation = 0
    for _ in iterate(learner):
        owned = [metrics[f"rollout/{MONEY}"] for metrics in learner.member_metrics]
        found[generation] = torch.tensor(owned, dtype=torch.float64)
        generation = len(learner.evolution.steps)
    return {"money": [each.mean().item() for each in found.values()], "gini": [gini(each) for each in found.values()]}


def slope(rows: Tensor) -> Tensor:
    """Slopes of the least-squares lines of columns over the first one, of rows [n, 1 + columns]."""
    x, y = rows[:, :1] - rows[:, :1].mean(0), rows[:, 1:] - rows[:, 1:].mean(0)
    return (x * y).sum(0) / x.square().sum()


def table(result: dict[str, Any]) -> str:
    """Return the result of :func:`measure_personality` as lines of text."""
    lines = [
        f"share of {action}: {found['mean']:+.3f} +- {found['half_width']:.3f} from {result['trait']} 0 to 1"
        + (" *" if found["beyond_0"] else "")
        for action, found in result["actions"].items()
    ]
    for name, label in NAMES.items():
        first, last = [interval([seed[end] for seed in result["wealth"][name]["gini"]]) for end in (0, -1)]
        lines.append(f"{label}: Gini {first[0]:.3f} at first, {last[0]:.3f} +- {last[1]:.3f} in the last generation")
    return "\n".join(lines)


def draw_actions(result: dict[str, Any]) -> Figure:
    """Shares of the four actions that change most, by the trait: a point per member and a line per seed."""
    from matplotlib.figure import Figure  # slow to import, and only needed here

    actions = list(result["actions"])
    most = sorted(actions, key=lambda each: -abs(result["actions"][each]["mean"]))[:4]
    figure = Figure(figsize=(9, 2.8), layout="constrained")
    for panel, action in zip(figure.subplots(1, len(most), sharex=True), most, strict=True):
        column = 1 + actions.index(action)
        for color, members in zip(COLORS, result["members"], strict=False):
            rows = torch.tensor(members)
            ends = torch.stack(rows[:, 0].aminmax())
            middle = rows.mean(0)
            line = middle[column] + slope(rows)[column - 1] * (ends - middle[0])
            panel.plot(rows[:, 0], rows[:, column], "o", color=color, markersize=3)
            panel.plot(ends, line, color=color, linewidth=1)
        found = result["actions"][action]
        panel.set_title(f"{action}: {found['mean']:+.2f} ± {found['half_width']:.2f}", fontsize=9)
        panel.spines[["top", "right"]].set_visible(False)
    figure.supxlabel(f"{result['trait'].rpartition('.')[2]} (a point is a member, a color a seed)", fontsize=9)
    figure.supylabel("share of steps", fontsize=9)
    return figure


def draw_wealth(result: dict[str, Any]) -> Figure:
    """Money of the members and its Gini coefficient by generation: a thin line per seed, their mean a thick one."""
    from matplotlib.figure import Figure  # slow to import, and only needed here

    figure = Figure(figsize=(9, 2.8), layout="constrained")
    for panel, kind in zip(figure.subplots(1, 2), ("money", "gini"), strict=True):
        for color, (name, label) in zip(COLORS, NAMES.items(), strict=False):
            seeds = torch.tensor(result["wealth"][name][kind])
            panel.plot(seeds.T, color=color, linewidth=0.6, alpha=0.5)
            panel.plot(seeds.mean(0), color=color, linewidth=2, label=label)
        panel.set_xticks(range(seeds.shape[1]))
        panel.set_xlabel("generation", fontsize=9)
        panel.set_ylabel({"money": "mean money of members", "gini": "its Gini coefficient"}[kind], fontsize=9)
        panel.spines[["top", "right"]].set_visible(False)
    figure.legend(*panel.get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False)
    return figure
