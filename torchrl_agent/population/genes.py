"""Hyper-parameters in which members of a population may differ: their places and bounds, parents and crossover."""

from __future__ import annotations

import operator
from collections.abc import Iterable

import torch
from torch import Tensor

from torchrl_agent.algorithms.actor_critic import ActorCriticConfig
from torchrl_agent.core.text import did_you_mean
from torchrl_agent.population.config import LASTING, NEUTRAL, TRAIT, FamilyConfig, PopulationConfig, num_parents

PLACES = {
    "algorithm.entropy_coeff": "loss.objective.entropy_coeff",
    "algorithm.critic_coeff": "loss.objective.critic_coeff",
    "algorithm.clip_epsilon": "loss.objective.clip_epsilon",
    "algorithm.gamma": "scaler.gamma",
}
"""Hyper-parameters that are stored in a member's own tensors, with the names of these."""
NUMBERS = (*PLACES, "algorithm.learning_rate.initial", "algorithm.lmbda", "algorithm.max_grad_norm")
"""Hyper-parameters in which members may differ, as far as their algorithm has them."""
SHARES = ("algorithm.gamma", "algorithm.lmbda")
"""Hyper-parameters that are fractions, within [0, 1]."""
POSITIVE = ("algorithm.learning_rate.initial", "algorithm.clip_epsilon", "algorithm.max_grad_norm")
"""Hyper-parameters that cannot be 0."""


def numbers_of(config: ActorCriticConfig) -> dict[str, float]:
    """Configured values of :data:`NUMBERS`."""
    names = {name: name.removeprefix("algorithm.") for name in NUMBERS}
    return {
        name: float(operator.attrgetter(path)(config))
        for name, path in names.items()
        if hasattr(config, path.split(".")[0])
    }


def check_genes(config: PopulationConfig, numbers: Iterable[str], traits: Iterable[str], has_modules: bool) -> None:
    """Check that a configuration's genes are numbers that members of one program may differ in.

    Args:
        numbers: those of :data:`NUMBERS` that the algorithm has.
        traits: of the people in the members' worlds; besides, there is the neutral gene.
        has_modules: the agent has modules with losses of their own.

    Raises:
        ValueError: a gene is none of these, or leaves its bounds.
    """
    values = [*numbers, *traits, NEUTRAL]
    shares = [*SHARES, *traits]
    for name in config.genes:
        if name not in values and name.startswith(TRAIT):
            raise ValueError(
                f"population.genes has {name}, but the world was given no such trait: set {name}=0.5 in a world that "
                "takes people, as the Town does."
            )
        if name not in values:
            raise ValueError(
                f"population.genes has {name}, in which members of one program cannot differ"
                f"{did_you_mean(name, values)}: use {', '.join(values)}; "
                "what changes shapes is for a sweep (docs/howto/sweeps.md)."
            )
        gene = config.genes[name]
        if gene.low < 0 or (name in shares and gene.high > 1) or (name in POSITIVE and gene.low == 0):
            bounds = "[0, 1]" if name in shares else "what is above 0" if name in POSITIVE else "0 and above"
            raise ValueError(f"population.genes.{name} goes from {gene.low:g} to {gene.high:g}: stay within {bounds}.")
        if name in SHARES and has_modules:
            raise ValueError(
                f"population.genes has {name}, which the agent's modules take from the configuration for all members: "
                "leave it out, or the modules."
            )


def genetic(
    fitness: Tensor, genes: Tensor, config: FamilyConfig, random: torch.Generator, partners: Tensor | None = None
) -> Tensor:
    """Parents for a generation: the fittest stay and have children, which replace the others.

    Args:
        fitness: [P]; a member with NaN neither has children nor is replaced.
        genes: places of the genes between their bounds, [G, P].
        partners: partner of each member, int64 [P], itself where it has none; lasting couples are written there.

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
    if config.mating == LASTING:
        assert partners is not None
        mates = _couples(able, partners)
    else:
        mates = _mates(genes[:, able], config.mating)
    first = torch.randint(len(able), replaced.shape, generator=random)
    pairs = torch.stack((first, mates[first]), 1).sort(1).values  # by rank, so that the fitter comes first
    parents[replaced] = able[pairs]
    return parents


def _couples(able: Tensor, partners: Tensor) -> Tensor:
    """Mates as :func:`_mates` gives them, of lasting couples: those of whom both may have children stay together, the
    others pair by fitness, and the last of an odd number has children alone. The couples replace ``partners``.
    """
    members = able.tolist()
    mates = {each: partner for each in members if (partner := int(partners[each])) != each and partner in members}
    single = [each for each in members if each not in mates]
    for one, other in zip(single[::2], single[1::2], strict=False):
        mates[one], mates[other] = other, one
    partners.copy_(torch.arange(len(partners)))
    partners[able] = torch.tensor([mates.get(each, each) for each in members])
    return torch.tensor([members.index(mates.get(each, each)) for each in members])


def _mates(genes: Tensor, mating: str) -> Tensor:
    """Mate of each member that may have children, the fittest first, by its place among them, int64 [able]."""
    count = genes.shape[1]
    if mating == "rank":
        places = torch.arange(count)
        neighbors = places + 1 - 2 * (places % 2)
        return torch.where(neighbors < count, neighbors, places - 1)
    distance = (genes.unsqueeze(1) - genes.unsqueeze(2)).norm(dim=0)
    if mating == "distant":
        return distance.fill_diagonal_(-1.0).argmax(1)
    return distance.fill_diagonal_(torch.inf).argmin(1)


def cross(values: Tensor, parents: Tensor, chance: float, random: torch.Generator) -> Tensor:
    """Crossover of a gene [P] by parents [P, 2]: the first one's value or, with the given chance, the second one's."""
    second = torch.rand(len(values), generator=random) < chance
    return torch.where(second, values[parents[:, 1]], values[parents[:, 0]])
