"""What a configuration says about a population."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from torchrl_agent.population.families import FamilyConfig, check_family
from torchrl_agent.ranges import FRAMES

SCALES = ("log", "linear", "one_minus")
"""How a gene moves: by factors, by shares of its range, or by factors of what is missing to 1 (discounts)."""
RATING = "rating"
"""What members of a league may be judged by, besides statistics of episodes."""
CHOICES = ("hard", "even", "uniform")
"""How a league draws opponents: by how often they win, by how even the games are, or all alike."""
SPREADS = ("same", "perturb", "resample")
"""What the members' first genes are: as configured, one mutation away from it, or anything within the bounds."""


@dataclass
class GeneConfig:
    """A hyper-parameter that differs between members."""

    low: float = MISSING
    """Smallest value."""
    high: float = MISSING
    """Largest value."""
    scale: str = "log"
    """log, linear or one_minus."""


@dataclass
class PopulationConfig:
    """Agents that learn at once in one program. What a configuration says of worlds, minibatches and frames is said of
    each of them.
    """

    members: int = 1
    """Number of agents; 1 is a single one."""
    evolve: Any = "none"
    """none; pbt, population-based training: poor members become copies of good ones; genetic: they become children of
    two (``family``); or a rule of your own, ``{_target_: path}`` (see ``population/evolution.py``)."""
    every: int = field(default=1_000_000, metadata=FRAMES)
    """Frames of each member between two looks at who is good."""
    warmup: int = field(default=0, metadata=FRAMES)
    """Frames of each member before the first look."""
    grace: int = field(default=0, metadata=FRAMES)
    """Frames during which a copy is left alone."""
    fitness: str = "return"
    """Statistic of the world's episodes by which members are judged: never the shaped reward."""
    least_episodes: int = 16
    """Finished episodes since the last look without which a member is not judged."""
    replace: float = 0.25
    """Share of the members at the bottom that may be replaced by as many at the top."""
    margin: float = 0.1
    """Only a source that leads by so many standard deviations of the members' fitness is copied."""
    genes: dict[str, GeneConfig] = field(default_factory=dict)
    """Hyper-parameters that differ and move, by the names that they have in the configuration."""
    spread: str = "resample"
    """First genes: same, perturb or resample."""
    factor: float = 1.25
    """A mutated gene is multiplied or divided by it (linear: moves by a quarter of its range at 1.25)."""
    mutate: float = 1.0
    """Chance of each gene of a copy or child to mutate."""
    family: FamilyConfig = field(default_factory=FamilyConfig)
    """Of ``genetic``: who has children with whom, and what they are given."""


@dataclass
class LeagueConfig:
    """Whom members of a population meet in a world of two seats, besides themselves."""

    enabled: bool = False
    """Members meet each other, their past selves and scripted players; otherwise each one plays with itself."""
    past: float = 0.5
    """Share of a member's worlds against past selves."""
    slots: int = 2
    """Past selves that a member meets at a time."""
    choose: str = "hard"
    """How they are drawn: hard (who wins often), even (who is as strong) or uniform."""
    refresh: int = 8
    """Iterations between two draws."""
    snapshot_every: int = field(default=1_000_000, metadata=FRAMES)
    """Frames of each member between two snapshots of all."""
    pool: int = 64
    """Snapshots kept."""
    scripted: dict[str, float] = field(default_factory=dict)
    """Players of the world that a member meets, each with the share of its worlds."""
    exploiters: int = 0
    """How many of the members meet nobody but the others as they are; one that wins, or gets nowhere, begins anew."""
    against: list[str] = field(default_factory=list)
    """Runs whose agents are met instead of past selves, one in each of the slots, which are as many."""


def check_league(config: LeagueConfig, population: PopulationConfig) -> None:
    """Raise ValueError naming the first setting that cannot work."""
    if population.fitness == RATING and population.evolve != "none" and not config.enabled:
        raise ValueError("population.fitness is rating, which only a league gives: set league.enabled=true.")
    if not config.enabled:
        return
    if config.choose not in CHOICES:
        raise ValueError(f"league.choose is {config.choose!r}: use one of {', '.join(CHOICES)}.")
    shares = {"past": config.past, **{f"scripted.{name}": share for name, share in config.scripted.items()}}
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise ValueError(f"league.{name} is {share}: give a share in [0, 1].")
    for name, least in (("slots", 1), ("refresh", 1), ("snapshot_every", 1), ("exploiters", 0)):
        if getattr(config, name) < least:
            raise ValueError(f"league.{name} is {getattr(config, name)}: it must be at least {least}.")
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
            f"league.exploiters is {config.exploiters} of {population.members} members: leave somebody to exploit."
        )
    if config.against:
        raise ValueError("league.against says whom all meet, so there is nobody to exploit: set league.exploiters=0.")
    if population.evolve != "none":
        raise ValueError("league.exploiters would be copied by population.evolve: use one of both.")


def check_population(config: PopulationConfig, total_frames: int) -> None:
    """Raise ValueError naming the first setting that cannot work."""
    if config.members < 1:
        raise ValueError(f"population.members is {config.members}: give at least 1.")
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
    _check_numbers(config)
    if config.evolve == "pbt" and int(config.replace * config.members) < 1:
        raise ValueError(
            f"population.replace={config.replace:g} of {config.members} members is nobody: give a larger share, or "
            "more members."
        )
    if config.evolve == "genetic":
        check_family(config.family, config.members, len(config.genes))
    name = "every" if config.every >= config.warmup else "warmup"
    if config.evolve != "none" and getattr(config, name) > total_frames:
        raise ValueError(
            f"population.{name}={getattr(config, name)} is beyond the {total_frames} frames of the training, so nobody "
            "would ever look: make it smaller."
        )


def _check_numbers(config: PopulationConfig) -> None:
    if config.spread not in SPREADS:
        raise ValueError(f"population.spread is {config.spread!r}: use one of {', '.join(SPREADS)}.")
    for name, low, high in (("replace", 0, 0.5), ("mutate", 0, 1)):
        if not low <= getattr(config, name) <= high:
            raise ValueError(f"population.{name} is {getattr(config, name)}: give a share in [{low}, {high}].")
    if config.factor <= 1:
        raise ValueError(f"population.factor is {config.factor}: it must be above 1.")
    for name, least in (("every", 1), ("least_episodes", 1), ("warmup", 0), ("grace", 0), ("margin", 0)):
        if getattr(config, name) < least:
            raise ValueError(f"population.{name} is {getattr(config, name)}: it must be at least {least}.")


def _check_genes(config: PopulationConfig) -> None:
    for name, gene in config.genes.items():
        if gene.scale not in SCALES:
            raise ValueError(f"population.genes.{name}.scale is {gene.scale!r}: use one of {', '.join(SCALES)}.")
        if not gene.low < gene.high:
            raise ValueError(f"population.genes.{name} goes from {gene.low} to {gene.high}: give low below high.")
        if gene.scale == "log" and gene.low <= 0:
            raise ValueError(f"population.genes.{name}.low is {gene.low}: on a log scale it must be above 0.")
        if gene.scale == "one_minus" and gene.high >= 1:
            raise ValueError(f"population.genes.{name}.high is {gene.high}: on this scale it must be below 1.")
