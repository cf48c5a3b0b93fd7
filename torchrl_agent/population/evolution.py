"""Selection of members and mutation of genes: rules over members' numbers, independent of worlds, networks and files.

Random choices come from one generator on the CPU, which a checkpoint holds: a resumed run makes the choices that
the other would have made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from torchrl_agent.core import keys
from torchrl_agent.population.config import NEUTRAL, GeneConfig, PopulationConfig
from torchrl_agent.population.genes import cross, genetic
from torchrl_agent.trust.targets import find

Genes = dict[str, Tensor]
"""Hyper-parameters by their names in a configuration, float64 [P] each."""
Rule = Callable[[Tensor, Genes, torch.Generator], Tensor]
"""Function from the members' fitness [P] (NaN where it is unknown), their genes and a generator to the member that each
one becomes a copy of, int64 [P], or to its two parents, [P, 2], where all that is not inherited from both is copied
from the first. A member that stays is its own source."""


@dataclass
class EvolutionStep:
    """Result of one evolution step."""

    frames: int
    """Frames of each member."""
    fitness: Tensor
    """Fitness of each member, [P]; NaN where too little was known."""
    parents: Tensor
    """Parents of each member, int64 [P, 2]: its source twice, if it is a copy; itself twice, if it stayed."""
    before: Genes
    """Genes before the step."""
    after: Genes
    """Genes after the step."""

    @property
    def children(self) -> Tensor:
        """Mask of the members that were replaced, bool [P]."""
        return (self.parents != torch.arange(len(self.parents)).unsqueeze(1)).any(1)


class Evolution:
    """Genes of the members, and the evolution steps that judge members and change genes.

    Args:
        configured: configured values, for genes that do not differ.

    Attributes:
        genes: genes of the members.
        founders: the first member that each one descends from, int64 [P].
        partners: partner of each member in a lasting couple, int64 [P]; itself where it has none.
        steps: all evolution steps, oldest first.
        births: number of replacements of a member, by a copy or a child.

    Raises:
        ValueError: a configured value lies outside its bounds, or a rule of one's own cannot be found.
    """

    def __init__(self, config: PopulationConfig, configured: Mapping[str, float], seed: int) -> None:
        self.partners = torch.arange(config.members)
        self.config, self.rule = config, find_rule(config, self.partners)
        self.random = torch.Generator().manual_seed(seed)
        self.genes: Genes = {}
        for name, gene in config.genes.items():
            value = _bent(_bounds(gene).mean(), gene).item() if name == NEUTRAL else configured[name]
            if not gene.low <= value <= gene.high:
                raise ValueError(
                    f"{name} is {value:g}, outside the bounds of its gene, {gene.low:g} to {gene.high:g}: widen them."
                )
            self.genes[name] = self._first(gene, value)
        self.founders = torch.arange(config.members)
        self.steps: list[EvolutionStep] = []
        self.births = 0
        self._copied_at = torch.full((config.members,), -(2**62))
        self._since_step = torch.zeros(2, config.members, dtype=torch.float64)
        """Sum of the fitness of episodes since the last evolution step, and their number."""

    def _first(self, gene: GeneConfig, value: float) -> Tensor:
        size, spread = (self.config.members,), self.config.spread
        values = torch.full(size, value, dtype=torch.float64)
        if spread == "perturb":
            return mutate(values, gene, self.config.factor, 1.0, self.random)
        if spread == "resample":
            low, high = _bounds(gene)
            return _bent(low + (high - low) * torch.rand(size, generator=self.random, dtype=torch.float64), gene)
        return values

    def is_due(self, frames: int) -> bool:
        """True if the next evolution step is due after this many frames of each member."""
        if self.config.evolve == "none":
            return False
        if not self.steps:
            return frames >= max(self.config.warmup, self.config.every)
        return frames - self.steps[-1].frames >= self.config.every

    def count(self, member: int, finished: Mapping[str, Tensor]) -> None:
        """Add the whole ones of a member's finished episodes to those that it is judged by."""
        values = finished.get(self.config.fitness)
        if values is None:
            return
        whole = finished.get(keys.EPISODE_COMPLETE, torch.ones_like(values)) > 0
        self._since_step[0, member] += values[whole].double().sum()
        self._since_step[1, member] += whole.sum()

    def fitness(self) -> Tensor:
        """Mean fitness of each member's episodes since the last evolution step, [P]; NaN where too few finished."""
        total, count = self._since_step
        return torch.where(count >= self.config.least_episodes, total / count.clamp_min(1), torch.nan)

    def step(self, frames: int, fitness: Tensor) -> EvolutionStep:
        """Make an evolution step: judge members by fitness [P], replace some by copies or children, and mutate."""
        judged = torch.where(frames - self._copied_at >= self.config.grace, fitness.double(), torch.nan)
        parents = checked_parents(self.rule(judged, self.genes, self.random), self.config)
        step = EvolutionStep(frames, fitness, parents, self.genes, {})
        for name, values in step.before.items():
            step.after[name] = torch.where(step.children, self._handed_down(name, values, parents), values)
        self.genes = step.after
        self.founders = self.founders[parents[:, 0]]
        self._copied_at = torch.where(step.children, frames, self._copied_at)
        self._since_step.zero_()
        self.steps.append(step)
        self.births += int(step.children.sum())
        return step

    def _handed_down(self, name: str, values: Tensor, parents: Tensor) -> Tensor:
        """Values of a gene for descendants of these parents, [P]."""
        config, gene = self.config, self.config.genes[name]
        if bool((parents[:, 0] != parents[:, 1]).any()):
            values = cross(values, parents, config.family.crossover, self.random)
        else:
            values = values[parents[:, 0]]
        if config.evolve == "genetic":
            return deviate(values, gene, config.family.sigma, config.mutate, self.random)
        return mutate(values, gene, config.factor, config.mutate, self.random)

    def diversity(self) -> float:
        """Mean distance between two members' genes, in units of their bounds."""
        found = []
        for name, values in self.genes.items():
            place = place_of(values, self.config.genes[name])
            found.append((place.unsqueeze(0) - place.unsqueeze(1)).abs().mean().item())
        return sum(found) / len(found) if found else 0.0

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values."""
        return {
            "genes": dict(self.genes),
            "founders": self.founders,
            "partners": self.partners.clone(),
            "copied_at": self._copied_at,
            "since_step": self._since_step.clone(),
            "steps": [vars(step) for step in self.steps],
            "random": self.random.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`, on whatever device its tensors are.

        Raises:
            ValueError: other genes were saved.
        """
        state = tree_map_only(Tensor, Tensor.cpu, state)
        if state["genes"].keys() != self.genes.keys():
            saved = ", ".join(state["genes"]) or "none"
            raise ValueError(f"the saved members have the genes {saved}, these {', '.join(self.genes) or 'none'}")
        self.genes = state["genes"]
        self.founders, self._copied_at = state["founders"], state["copied_at"]
        self.partners.copy_(state["partners"])
        self._since_step.copy_(state["since_step"])
        self.steps = [EvolutionStep(**step) for step in state["steps"]]
        self.births = sum(int(step.children.sum()) for step in self.steps)
        self.random.set_state(state["random"])


def find_rule(config: PopulationConfig, partners: Tensor) -> Rule:
    """The rule that a configuration names; one of lasting couples writes them to ``partners``, int64 [P].

    Raises:
        ValueError: there is none of that name.
    """
    if config.evolve == "none":
        return lambda fitness, genes, random: torch.arange(len(fitness))
    if config.evolve == "pbt":
        return lambda fitness, genes, random: pbt(fitness, random, config.replace, config.margin)
    if config.evolve == "genetic":
        return lambda fitness, genes, random: genetic(fitness, _places(genes, config), config.family, random, partners)
    path = config.evolve["_target_"]
    try:
        rule = find(path)
    except Exception:  # an import raises whatever the module raises
        rule = None
    if not callable(rule):
        raise ValueError(
            f"population.evolve._target_ is {path!r}, which is no function that can be imported: give the path of one, "
            "such as my_module.my_rule."
        )
    return rule


def _places(genes: Genes, config: PopulationConfig) -> Tensor:
    """Places of all genes between their bounds, 0 to 1, [G, P]."""
    return torch.stack([place_of(values, config.genes[name]) for name, values in genes.items()])


def checked_parents(parents: Any, config: PopulationConfig) -> Tensor:
    """Check the answer of a rule and return two parents of each member, [P, 2].

    Raises:
        ValueError: the answer is not one or two members for each member.
    """
    members = config.members
    fits = isinstance(parents, Tensor) and parents.dtype == torch.int64
    if fits and parents.shape in ((members,), (members, 2)) and bool(((parents >= 0) & (parents < members)).all()):
        return parents if parents.ndim == 2 else parents.unsqueeze(1).repeat(1, 2)  # a single parent is taken twice
    raise ValueError(
        f"population.evolve answered {parents}: let it give an int64 tensor [{members}], or [{members}, 2], of "
        f"members, 0 to {members - 1}."
    )


def pbt(fitness: Tensor, random: torch.Generator, replace: float = 0.25, margin: float = 0.1) -> Tensor:
    """Population-based training's truncation (Jaderberg et al. 2017, "Population Based Training of Neural Networks",
    section 4.1): each of the worst becomes a copy of one of as many best, drawn at random.

    Args:
        fitness: [P]; a member with NaN is neither replaced nor a source.
        replace: fraction of the members at the bottom that may be replaced.
        margin: standard deviations of fitness by which a source must lead.

    Returns:
        The member that each one becomes a copy of, int64 [P].
    """
    parents = torch.arange(len(fitness))
    known = (~fitness.isnan()).nonzero().flatten()
    count = int(replace * len(fitness))
    if len(known) < 2 * count or count < 1:
        return parents
    order = known[fitness[known].argsort(stable=True)]
    worst, best = order[:count], order[len(order) - count :]
    sources = best[torch.randint(count, (count,), generator=random)]
    spread = fitness[fitness.isfinite()].std(correction=0).nan_to_num()
    leads = fitness[sources] - fitness[worst] > margin * spread
    parents[worst] = torch.where(leads, sources, worst)
    return parents


def mutate(values: Tensor, gene: GeneConfig, factor: float, chance: float, random: torch.Generator) -> Tensor:
    """Genes [P], each multiplied or divided by a factor on its scale with the given chance, within its bounds."""
    up = torch.randint(2, values.shape, generator=random) * 2 - 1
    moves = torch.rand(values.shape, generator=random) < chance
    if gene.scale == "linear":
        moved = values + up * (factor - 1) * (gene.high - gene.low)
    elif gene.scale == "one_minus":
        moved = 1 - (1 - values) * factor ** up.double()
    else:
        moved = values * factor ** up.double()
    return torch.where(moves, moved, values).clamp(gene.low, gene.high)


def deviate(values: Tensor, gene: GeneConfig, sigma: float, chance: float, random: torch.Generator) -> Tensor:
    """Genes [P], each moved with the given chance by a normal deviate, within its bounds.

    Args:
        sigma: standard deviation as a fraction of the way between the bounds.
        chance: probability of each value to move.
    """
    low, high = _bounds(gene)
    steps = torch.randn(values.shape, generator=random, dtype=torch.float64) * sigma * (high - low)
    moves = torch.rand(values.shape, generator=random) < chance
    return torch.where(moves, _bent(_straight(values, gene) + steps, gene), values).clamp(gene.low, gene.high)


def place_of(values: Tensor, gene: GeneConfig) -> Tensor:
    """Places of values between a gene's bounds on its scale, 0 to 1."""
    low, high = _bounds(gene)
    return (_straight(values, gene) - low) / (high - low)


def _bounds(gene: GeneConfig) -> Tensor:
    """Smallest and largest value on a scale on which a gene's steps are equally long, [2]."""
    return _straight(torch.tensor([gene.low, gene.high], dtype=torch.float64), gene)


def _straight(values: Tensor, gene: GeneConfig) -> Tensor:
    """Transform values to the scale on which a gene's steps are equally long."""
    if gene.scale == "linear":
        return values
    return values.log() if gene.scale == "log" else -(1 - values).log()


def _bent(values: Tensor, gene: GeneConfig) -> Tensor:
    """Inverse of :func:`_straight`."""
    if gene.scale == "linear":
        return values
    return values.exp() if gene.scale == "log" else 1 - (-values).exp()
