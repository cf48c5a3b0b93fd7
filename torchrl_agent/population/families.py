"""A genetic algorithm's outer loop: who has children with whom, and what children are given."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchrl_agent.ranges import choice, share

MATINGS = ("rank", "distant", "within")
"""Who marries whom: neighbours by fitness, those whose genes differ most, or kin, whose genes differ least."""
INHERITANCES = ("best", "mean", "fresh")
"""Weights of a child: those of the fitter parent, the mean of both, or as a first member begins."""
SCHOOLINGS = {"full": 1.0, "finetune": 0.1, "frozen": 0.0}
"""Share of its learning rate with which a child learns until the next generation."""
LEAST_MEMBERS = 4
NEUTRAL = "neutral"
"""A gene that nobody reads: what it does is drift."""
TRAIT = "world.traits."
"""Begin of genes that are traits of the people in a member's worlds."""


@dataclass
class FamilyConfig:
    """What a generation leaves to the next, for ``population.evolve=genetic``."""

    mating: str = choice("rank", MATINGS)
    """rank (neighbours by fitness), distant (the most different genes) or within (kin: the least different)."""
    parents: float = share(0.6)
    """Share of the members, the fittest, that have children; each of the others is replaced by a child."""
    crossover: float = share(0.5)
    """Chance that a gene is the second parent's."""
    sigma: float = share(0.1)
    """Standard deviation of a mutation, as a share of the way between the gene's bounds, wherever the gene lies there:
    absolute, as a relative one would leave a 0 for ever."""
    inherit: str = choice("best", INHERITANCES)
    """Weights of a child: best (the fitter parent's), mean (of both) or fresh."""
    schooling: str = choice("finetune", SCHOOLINGS)
    """How a child learns until the next generation: full, finetune (a tenth of its learning rate) or frozen."""
    wealth: float = share(0.0)
    """Share of the parents' last money (mean of both) that a child's lives begin with, besides the world's own."""


def check_family(config: FamilyConfig, members: int, num_genes: int) -> None:
    """Raise ValueError naming the first setting that cannot work."""
    if members < LEAST_MEMBERS:
        raise ValueError(
            f"population.members is {members}: families of population.evolve=genetic need at least {LEAST_MEMBERS}."
        )
    if not num_genes:
        raise ValueError(
            "population.evolve=genetic has nothing to hand down: give population.genes, such as "
            "algorithm.entropy_coeff or world.traits.greed."
        )
    count = num_parents(config, members)
    if not 2 <= count < members:
        raise ValueError(
            f"population.family.parents={config.parents:g} of {members} members are {count} parents: let at least 2 "
            "have children, and at least one be replaced."
        )


def num_parents(config: FamilyConfig, members: int) -> int:
    """How many of so many members have children."""
    return int(config.parents * members + 0.5)


def genetic(fitness: Tensor, genes: Tensor, config: FamilyConfig, random: torch.Generator) -> Tensor:
    """A generation: the fittest stay and have children, who take the places of the others.

    Args:
        fitness: [P]; who has NaN neither has children nor is replaced.
        genes: places between their bounds, [G, P].
        config: who may have children with whom.
        random: draws whose the children are.

    Returns:
        Two parents of each member, the fitter one first, int64 [P, 2]; itself twice, if it stays.
    """
    parents = torch.arange(len(fitness)).unsqueeze(1).repeat(1, 2)
    known = (~fitness.isnan()).nonzero().flatten()
    order = known[fitness[known].argsort(descending=True, stable=True)]
    able = order[: num_parents(config, len(order))]
    replaced = order[len(able) :]
    if len(able) < 2 or len(replaced) < 1:
        return parents
    mates = _mates(genes[:, able], config.mating)
    first = torch.randint(len(able), replaced.shape, generator=random)
    pairs = torch.stack((first, mates[first]), 1).sort(1).values  # by rank, so that the fitter comes first
    parents[replaced] = able[pairs]
    return parents


def _mates(genes: Tensor, mating: str) -> Tensor:
    """The mate of each of the able, the fittest first: its place among them, int64 [able]."""
    count = genes.shape[1]
    if mating == "rank":
        places = torch.arange(count)
        neighbours = places + 1 - 2 * (places % 2)
        return torch.where(neighbours < count, neighbours, places - 1)
    distance = (genes.unsqueeze(1) - genes.unsqueeze(2)).norm(dim=0)
    if mating == "distant":
        return distance.fill_diagonal_(-1.0).argmax(1)
    return distance.fill_diagonal_(torch.inf).argmin(1)


def cross(values: Tensor, parents: Tensor, chance: float, random: torch.Generator) -> Tensor:
    """A gene [P] of everybody's parents [P, 2]: of the first, or with some chance of the second."""
    second = torch.rand(len(values), generator=random) < chance
    return torch.where(second, values[parents[:, 1]], values[parents[:, 0]])
