"""Inheritance of a generation: weights for members, traits and money for the people of their worlds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torchrl.envs import EnvBase

from torchrl_agent.algorithms.algorithm import Algorithm
from torchrl_agent.core import keys, ranks
from torchrl_agent.population.agent import Member
from torchrl_agent.population.algorithm import MembersAlgorithm
from torchrl_agent.population.config import SCHOOLINGS, TRAIT, PopulationConfig
from torchrl_agent.population.evolution import EvolutionStep, Genes
from torchrl_agent.population.stack import tensors_of

MONEY = "money"
"""Statistic of an episode: money that people owned at its end."""


class Inheritance:
    """Inheritance of the people of members' worlds: those of a member get its genes as traits and its inherited money.

    Args:
        env: worlds of members; with ``set_people`` if there are traits or money to set.
        config: genes, and the fraction of money that children inherit.
        own: the members whose worlds these are.

    Attributes:
        inherited: money that the lives in each member's worlds begin with, besides the world's own, [P].

    Raises:
        ValueError: children are to inherit money in a world that reports none.
    """

    def __init__(self, env: EnvBase, config: PopulationConfig, own: slice) -> None:
        self.own = own
        self.wealth = config.family.wealth if config.evolve == "genetic" else 0.0
        self.traits = [name for name in config.genes if name.startswith(TRAIT)]
        self.inherited = torch.zeros(config.members, dtype=torch.float64)
        self._owned = torch.zeros(2, config.members, dtype=torch.float64)
        """Sum of the money at the end of the episodes since the last evolution step, and their number."""
        if self.wealth and (keys.EPISODE, MONEY) not in env.observation_spec.keys(True):
            raise ValueError(
                f"population.family.wealth is {self.wealth:g}, but the world reports no statistic {MONEY}: use "
                "world.drives=true in the Town, or wealth=0."
            )

    def send(self, env: EnvBase, genes: Genes) -> None:
        """Set the people of the worlds of this rank's members, an equal part for each, from their next reset on."""
        if not self.traits and not self.wealth:
            return
        share = env.batch_size[0] // len(self.inherited[self.own])

        def rows(values: Tensor) -> Tensor:
            return values[self.own].float().repeat_interleave(share).unsqueeze(1)

        traits = {name.removeprefix(TRAIT): rows(genes[name]) for name in self.traits}
        env.set_people(traits, rows(self.inherited) if self.wealth else None)

    def count(self, member: int, finished: dict[str, Tensor]) -> None:
        """Add a member's finished episodes to the sums of money."""
        if self.wealth:
            money = finished[MONEY][finished[keys.EPISODE_COMPLETE] > 0].double()
            self._owned[:, member] += torch.stack((money.sum(), torch.tensor(float(len(money)))))

    def bequeath(self, step: EvolutionStep) -> None:
        """Give children their fraction of the money that their parents owned in the end."""
        total, count = self._owned
        left = self.wealth * (total / count.clamp_min(1))[step.parents].mean(1)
        self.inherited = torch.where(step.children, left, self.inherited)
        self._owned.zero_()

    def state_dict(self) -> dict[str, Tensor]:
        """Money that is owned and that was inherited."""
        return {"inherited": self.inherited.clone(), "owned": self._owned.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        self.inherited = state["inherited"].cpu()
        self._owned.copy_(state["owned"])


def inherit(
    algorithm: MembersAlgorithm, step: EvolutionStep, how: str, newborn: Callable[[int], Algorithm], own: slice
) -> None:
    """Apply an evolution step to the rows of members.

    Args:
        step: the evolution step; copies are of the first parent, with its statistics and its optimizer.
        how: one of :data:`~torchrl_agent.population.config.INHERITANCES`, the weights of those with two parents.
        newborn: makes the algorithm of a child with fresh weights.
        own: the members whose rows are on this rank.
    """
    flat, parents = algorithm.stack.flat.detach(), step.parents.unbind(1)
    mean = torch.stack([ranks.fetch_rows(flat, each) for each in parents], 1).mean(1) if how == "mean" else None
    algorithm.copy(parents[0])
    if mean is not None:
        flat.copy_(mean)  # unchanged for members that stay
    elif how == "fresh":
        for place in step.children[own].nonzero().flatten().tolist():
            algorithm.begin_anew(place, tensors_of(Member(newborn(own.start + place))))


def lr_scales(step: EvolutionStep | None, config: PopulationConfig) -> Tensor:
    """Factor on the learning rate of each member after an evolution step, [P]."""
    lr_scale = torch.ones(config.members)
    if step is not None and config.evolve == "genetic":
        lr_scale[step.children] = SCHOOLINGS[config.family.schooling]
    return lr_scale
