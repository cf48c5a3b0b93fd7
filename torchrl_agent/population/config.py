"""Configuration of a population and its league."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from torchrl_agent.core.bounds import FRAMES, any_number, choice, count, number, share

MOST_MEMBERS = 1000
"""Largest population: each member has networks and an optimizer of its own."""
SCALES = ("log", "linear", "one_minus")
"""Scales on which a gene moves: by factors, by fractions of its range, or by factors of 1 - value (discounts)."""
RATING = "rating"
"""Fitness by which members of a league may be judged, besides statistics of episodes."""
CHOICES = ("hard", "even", "uniform")
"""Ways in which a league draws opponents: by how often they win, by how even the games are, or uniformly."""
SPREADS = ("same", "perturb", "resample")
"""Initial genes of the members: as configured, one mutation away from it, or random within the bounds."""
LASTING = "lasting"
MATINGS = ("rank", "distant", "within", LASTING)
"""Pairings of parents: neighbors by fitness, those whose genes differ most, kin, whose genes differ least, or neighbors
by fitness that stay together as long as both have children."""
INHERITANCES = ("best", "mean", "fresh")
"""Weights of a child: those of the fitter parent, the mean of both, or those of a freshly initialized member."""
SCHOOLINGS = {"full": 1.0, "finetune": 0.1, "frozen": 0.0}
"""Factor on a child's learning rate until the next generation."""
LEAST_MEMBERS = 4
NEUTRAL = "neutral"
"""A gene without any effect: it only drifts."""
TRAIT = "world.traits."
"""Prefix of genes that are traits of the people in a member's worlds."""


@dataclass
class GeneConfig:
    """A hyper-parameter that differs between members."""

    low: float = any_number(MISSING)
    """Smallest value."""
    high: float = any_number(MISSING)
    """Largest value."""
    scale: str = choice("log", SCALES)
    """Scale of its values."""


@dataclass
class FamilyConfig:
    """Parents and inheritance of a generation, for ``population.evolve=genetic``."""

    mating: str = choice("rank", MATINGS)
    """Choice of mates. rank: neighbors by fitness; distant: the most different genes; within: kin, the least different;
    lasting: neighbors by fitness, and couples stay together as long as both have children."""
    parents: float = share(0.6)
    """Fraction of the members that have children. They are the fittest; each of the others is replaced by a child."""
    crossover: float = share(0.5)
    """Chance that a gene is the second parent's."""
    sigma: float = share(0.1)
    """Standard deviation of a mutation. As a fraction of the way between the gene's bounds, wherever the gene lies
    there: absolute, as a relative one would leave a 0 for ever."""
    inherit: str = choice("best", INHERITANCES)
    """Weights of a child. best: the fitter parent's; mean: of both."""
    schooling: str = choice("finetune", SCHOOLINGS)
    """Learning of a child until the next generation. finetune: at a tenth of its learning rate."""
    wealth: float = share(0.0)
    """Fraction of the parents' last money inherited. Of the mean of both; a child's lives begin with it, besides the
    world's own."""


@dataclass
class PopulationConfig:
    """Agents that learn at once in one program. Settings of worlds, minibatches and frames apply to each of them."""

    members: int = count(1, MOST_MEMBERS)
    """Number of agents; 1 is a single one."""
    evolve: Any = "none"
    """Evolution: none, pbt, genetic, or a rule of your own. pbt (population-based training): poor members become copies
    of good ones; genetic: they become children of two (``family``); your own: ``{_target_: path}`` (see
    ``population/evolution.py``).
    """
    every: int = count(1_000_000, FRAMES)
    """Frames of each member between two evolution steps."""
    warmup: int = number(0, least=0, most=FRAMES)
    """Frames of each member before the first one."""
    grace: int = number(0, least=0, most=FRAMES)
    """Frames during which a copy is left alone."""
    fitness: str = "return"
    """Statistic of episodes that judges members. It is the world's own, never the shaped reward."""
    least_episodes: int = count(16)
    """Finished episodes that a judgment needs. Since the last evolution step; a member with fewer is not judged."""
    replace: float = number(0.25, least=0, most=0.5)
    """Largest fraction of members replaced. Those at the bottom, by as many at the top."""
    margin: float = number(0.1, least=0)
    """Standard deviations by which a source must lead. Of the members' fitness; others are not copied."""
    genes: dict[str, GeneConfig] = field(default_factory=dict)
    """Hyperparameters that differ and move, by dotted name."""
    spread: str = choice("resample", SPREADS)
    """Choice of first genes."""
    factor: float = number(1.25, above=1)
    """Factor of a mutated gene, up or down. On a linear scale 1.25 moves it by a quarter of its range."""
    mutate: float = share(1.0)
    """Probability that a gene of a child mutates. Of a copy likewise."""
    family: FamilyConfig = field(default_factory=FamilyConfig)
    """Of ``genetic``: who has children with whom, and what they are given."""


@dataclass
class LeagueConfig:
    """Opponents of a population's members in a world of two seats, besides themselves."""

    enabled: bool = False
    """Meet others, past selves and scripted policies. Otherwise each member plays with itself."""
    past: float = share(0.5)
    """Fraction of a member's worlds against past selves."""
    slots: int = count(2)
    """Past selves that a member meets at once."""
    choose: str = choice("hard", CHOICES)
    """Draw of opponents. hard: those that win often; even: those as strong."""
    refresh: int = count(8)
    """Iterations between two draws."""
    snapshot_every: int = count(1_000_000, FRAMES)
    """Frames of each member between two snapshots. All members are taken."""
    pool: int = count(64)
    """Snapshots that are kept."""
    scripted: dict[str, float] = field(default_factory=dict, metadata={"least": 0, "most": 1})
    """Scripted policies, each with its fraction of worlds."""
    exploiters: int = number(0, least=0)
    """Members that meet only the others as they are. One that wins, or does not improve, begins anew."""
    against: list[str] = field(default_factory=list)
    """Runs whose agents are met instead of past selves. One in each of the slots, which are as many."""


def check_league(config: LeagueConfig, population: PopulationConfig) -> None:
    """Raise ValueError naming the first setting that cannot work."""
    if population.fitness == RATING and population.evolve != "none" and not config.enabled:
        raise ValueError("population.fitness is rating, which only a league gives: set league.enabled=true.")
    if not config.enabled:
        return
    if config.pool < population.members:
        raise ValueError(f"league.pool is {config.pool}: it must hold each of the {population.members} members once.")
    if config.pool < len(config.against):
        raise ValueError(
            f"league.pool is {config.pool}: it must hold the {len(config.against)} runs of league.against."
        )
    if config.against and len(config.against) != config.slots:
        raise ValueError(
            f"league.against names {len(config.against)} runs for {config.slots} slots: give one for each."
        )
    if config.exploiters:
        _check_exploiters(config, population)


def _check_exploiters(config: LeagueConfig, population: PopulationConfig) -> None:
    if config.exploiters >= population.members:
        raise ValueError(
            f"league.exploiters is {config.exploiters} of {population.members} members: leave one to be exploited."
        )
    if config.against:
        raise ValueError("league.against says whom all meet, so exploiters have no opponent: set league.exploiters=0.")
    if population.evolve != "none":
        raise ValueError("league.exploiters would be copied by population.evolve: use one of both.")


def check_population(config: PopulationConfig, total_frames: int) -> None:
    """Raise ValueError naming the first setting that cannot work."""
    known = config.evolve in ("none", "pbt", "genetic") or (
        isinstance(config.evolve, dict) and "_target_" in config.evolve
    )
    if not known:
        raise ValueError(
            f"population.evolve is {config.evolve!r}: use none, pbt, genetic, or a rule of your own as "
            "population.evolve._target_=PATH."
        )
    if config.members == 1:
        if config.evolve != "none" or config.genes:
            raise ValueError("population.evolve and population.genes need several: set population.members above 1.")
        return
    _check_genes(config)
    if config.evolve == "pbt" and int(config.replace * config.members) < 1:
        raise ValueError(
            f"population.replace={config.replace:g} of {config.members} members replaces none: give a larger share, or "
            "more members."
        )
    if config.evolve == "genetic":
        check_family(config.family, config.members, len(config.genes))
    name = "every" if config.every >= config.warmup else "warmup"
    if config.evolve != "none" and getattr(config, name) > total_frames:
        raise ValueError(
            f"population.{name}={getattr(config, name)} is beyond the {total_frames} frames of the training, so no "
            "evolution step would ever come: make it smaller."
        )


def _check_genes(config: PopulationConfig) -> None:
    for name, gene in config.genes.items():
        if not gene.low < gene.high:
            raise ValueError(f"population.genes.{name} goes from {gene.low} to {gene.high}: give low below high.")
        if gene.scale == "log" and gene.low <= 0:
            raise ValueError(f"population.genes.{name}.low is {gene.low}: on a log scale it must be above 0.")
        if gene.scale == "one_minus" and gene.high >= 1:
            raise ValueError(f"population.genes.{name}.high is {gene.high}: on this scale it must be below 1.")


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
    """Number of members that have children."""
    return int(config.parents * members + 0.5)
