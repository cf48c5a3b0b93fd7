"""Study of families: shift of a trait beyond drift, heritability of fitness, and concentration of inherited wealth."""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from benchmarks.arguments import add_config
from torchrl_agent.cli.arguments import add_seeds
from torchrl_agent.core.tables import interval
from torchrl_agent.experiment import Experiment
from torchrl_agent.loop import iterate
from torchrl_agent.population.config import NEUTRAL
from torchrl_agent.population.evolution import EvolutionStep
from torchrl_agent.population.inheritance import MONEY
from torchrl_agent.population.learner import PopulationLearner

NORMAL_95 = 1.96


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a population with families, seeds, a trait and the inherited fraction of wealth."""
    add_config(parser, "families", "a population with families")
    add_seeds(parser)
    parser.add_argument(
        "--trait",
        default="world.traits.neuroticism",
        help="a gene, compared with the neutral one (world.traits.neuroticism)",
    )
    parser.add_argument(
        "--wealth",
        type=float,
        default=0.5,
        help="fraction left to children where any is (0.5); 0 for populations that leave none only",
    )


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Measure, and print the figures."""
    result = measure_families(parsed.config, parsed.overrides, parsed.seeds, parsed.trait, parsed.wealth)
    print(table(result))
    return result


def measure_families(
    config: str, overrides: Sequence[str], seeds: Sequence[int], trait: str, wealth: float
) -> dict[str, Any]:
    """Measure populations with families, two per seed: one without inheritance of money, and one with it (omitted for a
    wealth of 0).

    Args:
        config: a population with ``population.evolve=genetic``, the gene ``neutral`` and episodes that report money.
        overrides: changes of it.
        seeds: seeds of the populations.
        trait: the gene whose shift is compared with that of the neutral one, in the populations without inheritance.
        wealth: fraction of money that the other populations leave to children.

    Returns:
        ``shift``: shift of the mean gene, per seed, and their difference (paired 95 % t-interval, two-sided sign
        test); ``heritability``: correlation of children's fitness at their first evolution step with their parents'
        mean at birth, both as standardized deviations within their step, with its 95 % interval (Fisher's z);
        ``gini``: Gini coefficient of members' final money, mean over the later half of the training, per seed, and
        their difference (None for a wealth of 0).

    Raises:
        ValueError: the configuration has no families, or lacks one of these genes or money.
    """
    shifts: dict[str, list[float]] = {trait: [], NEUTRAL: []}
    ginis: dict[str, list[float]] = {"without": [], "with": []}
    pairs: list[Tensor] = []
    for seed in seeds:
        for name, share in (("without", 0.0), ("with", wealth))[: 1 + (wealth > 0)]:
            settings = [f"population.family.wealth={share}", f"seed={seed}"]
            learner, inequality = _live(Experiment.load(config, *overrides, *settings), trait)
            ginis[name].append(inequality)
            if name == "without":
                steps = learner.evolution.steps
                for gene, values in shifts.items():
                    values.append((steps[-1].after[gene].mean() - steps[0].before[gene].mean()).item())
                pairs += [generations(*both) for both in itertools.pairwise(steps)]
    return {
        "seeds": list(seeds),
        "trait": trait,
        "shift": {**shifts, "difference": _compared(shifts[trait], shifts[NEUTRAL])},
        "heritability": correlation(torch.cat(pairs)),
        "gini": {
            **ginis,
            "wealth": wealth,
            "difference": _compared(ginis["with"], ginis["without"]) if wealth else None,
        },
    }


def table(result: dict[str, Any]) -> str:
    """Return the result of :func:`measure_families` as lines of text."""
    shift, gini, kin = result["shift"]["difference"], result["gini"]["difference"], result["heritability"]
    lines = [
        f"{result['trait']} moved by {shift['mean']:+.3f} +- {shift['half_width']:.3f} more than the neutral gene "
        f"(sign test p = {shift['sign_test']:.3f})",
        f"children's fitness goes with their parents': r = {kin['r']:.2f} ({kin['low']:.2f} to {kin['high']:.2f}), "
        f"{kin['pairs']} children",
    ]
    if gini is not None:
        lines.append(
            f"Gini coefficient of money {gini['mean']:+.3f} +- {gini['half_width']:.3f} where "
            f"{result['gini']['wealth']:g} of it is left to children"
        )
    return "\n".join(lines)


def _live(experiment: Experiment, trait: str) -> tuple[PopulationLearner, float]:
    """Train a population; return it, and the mean Gini coefficient of its members' money over the later half."""
    learner = experiment.make_learner()
    if not isinstance(learner, PopulationLearner) or experiment.population.evolve != "genetic":
        raise ValueError(f"configuration {experiment.name} has no families: set population.evolve=genetic.")
    lacks = [gene for gene in (trait, NEUTRAL) if gene not in learner.evolution.genes]
    if lacks or MONEY not in learner.collector.statistics:
        what = f"the gene {lacks[0]}" if lacks else f"the statistic {MONEY}"
        raise ValueError(f"configuration {experiment.name} lacks {what}, which this measures: add it, as families has.")
    found: list[float] = []
    for iteration in iterate(learner):
        if 2 * iteration.frames > learner.total_frames:
            owned = [metrics[f"rollout/{MONEY}"] for metrics in learner.member_metrics]
            found.append(gini(torch.tensor(owned, dtype=torch.float64)))
    if len(learner.evolution.steps) < 2:
        raise ValueError(
            f"configuration {experiment.name} ends before a second evolution step: give a larger total_frames=."
        )
    return learner, sum(found) / len(found)


def generations(step: EvolutionStep, following: EvolutionStep) -> Tensor:
    """Return the mean fitness of the parents of children born at an evolution step, and the children's own at the
    following one, each in standard deviations from that step's mean, [children, 2]; pairs with NaN are left out.
    """
    before, after = (_standardized(each.fitness) for each in (step, following))
    pairs = torch.stack((before[step.parents].mean(1), after), 1)[step.children]
    return pairs[~pairs.isnan().any(1)]


def _standardized(fitness: Tensor) -> Tensor:
    known = fitness[~fitness.isnan()].double()
    return (fitness.double() - known.mean()) / known.std(correction=0).clamp_min(1e-12)


def correlation(pairs: Tensor) -> dict[str, float]:
    """Return Pearson's correlation of pairs [n, 2] with the 95 % interval of Fisher's z; NaN for fewer than four."""
    if len(pairs) < 4:
        return {"pairs": len(pairs), "r": math.nan, "low": math.nan, "high": math.nan}
    r = torch.corrcoef(pairs.T)[0, 1].clamp(-1 + 1e-9, 1 - 1e-9).item()
    half = NORMAL_95 / math.sqrt(len(pairs) - 3)
    return {
        "pairs": len(pairs),
        "r": r,
        "low": math.tanh(math.atanh(r) - half),
        "high": math.tanh(math.atanh(r) + half),
    }


def gini(values: Tensor) -> float:
    """Return the Gini coefficient of amounts [n]: 0 if all are equal, (n - 1) / n if only one is not 0."""
    total = values.sum() * len(values)
    if total == 0:
        return 0.0
    return ((values.unsqueeze(0) - values.unsqueeze(1)).abs().sum() / (2 * total)).item()


def _compared(ones: Sequence[float], others: Sequence[float]) -> dict[str, Any]:
    """Return of paired differences the mean, half the width of the 95 % t-interval, and the sign test's p-value."""
    differences = [a - b for a, b in zip(ones, others, strict=True)]
    mean, half = interval(differences)
    return {"mean": mean, "half_width": half, "sign_test": sign_test(differences), "beyond_0": abs(mean) > half}


def sign_test(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of the sign test: the probability of signs at least as unequal by chance."""
    signs = [difference > 0 for difference in differences if difference != 0]
    most = max(sum(signs), len(signs) - sum(signs))
    tail = sum(math.comb(len(signs), count) for count in range(most, len(signs) + 1))
    return min(1.0, 2 * tail / 2 ** len(signs))
