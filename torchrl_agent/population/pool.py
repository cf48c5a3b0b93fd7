"""Pool of past selves of a league's members, and the weights with which opponents are drawn from it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchrl_agent.population.stack import Stack

FREE = -1
"""Owner of an empty place."""
FLOOR = 1e-3
"""Added to the weight of every opponent, so that none is excluded permanently."""


class Pool:
    """Snapshots of members, at most ``size``.

    Attributes:
        snapshots: the weights, a row for each place.
        owner: the member that each was, int64 [size]; :data:`FREE` where there is none.
        frames: frames that the member had seen then, int64 [size].
    """

    def __init__(self, stack: Stack, size: int) -> None:
        self.stack, self.size = stack, size
        self.snapshots = stack.take(torch.zeros(size, dtype=torch.int64))
        self.owner = torch.full((size,), FREE)
        self.frames = torch.zeros(size, dtype=torch.int64)

    @property
    def used(self) -> Tensor:
        """Places that hold a snapshot, int64."""
        return (self.owner != FREE).nonzero().flatten()

    def add(self, member: int, frames: int, shares: Tensor) -> int:
        """Add a snapshot of a member; return its place.

        Args:
            frames: frames that it has seen.
            shares: fractions of the points that each player of the league takes from each snapshot, [players, size]. If
                no place is free, one of the two snapshots with the most similar results is removed, unless it is the
                first or newest of its owner.
        """
        free = (self.owner == FREE).nonzero().flatten()
        place = int(free[0]) if len(free) else self._superfluous(shares)
        self.snapshots.put(torch.tensor([place]), self.stack, torch.tensor([member]))
        self.owner[place], self.frames[place] = member, frames
        return place

    def _superfluous(self, shares: Tensor) -> int:
        distance = torch.cdist(shares.T, shares.T).fill_diagonal_(torch.inf)
        nearest = distance.min(0).values
        nearest[self._kept()] = torch.inf
        return int(nearest.argmin())

    def _kept(self) -> Tensor:
        """Places of the first and the newest snapshot of every owner, as far as that leaves one to remove."""
        kept = []
        for owner in self.owner.unique().tolist():
            mine = (self.owner == owner).nonzero().flatten()
            order = mine[self.frames[mine].argsort(stable=True)]
            kept += [int(order[-1]), int(order[0])]
        return torch.tensor(sorted(set(kept)) if len(set(kept)) < self.size else [], dtype=torch.int64)

    def state_dict(self) -> dict[str, Any]:
        """Snapshots, their owners and their frames."""
        tensors = {name: value.clone() for name, value in self.snapshots.state_dict().items()}
        return {"snapshots": tensors, "owner": self.owner.clone(), "frames": self.frames.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        self.snapshots.load_state_dict(state["snapshots"])
        self.owner.copy_(state["owner"])
        self.frames.copy_(state["frames"])


def draw_weights(shares: Tensor, choose: str) -> Tensor:
    """Weights of opponents by the fraction p of the points that one takes from them: prioritized fictitious self-play
    (Vinyals et al. 2019, "Grandmaster level in StarCraft II using multi-agent reinforcement learning", Methods).

    Args:
        shares: fractions p, [...].
        choose: ``hard``, (1 - p)^2: opponents that are hard to beat; ``even``, p (1 - p): equally strong ones; or
            ``uniform``.
    """
    if choose == "uniform":
        return torch.ones_like(shares)
    return FLOOR + ((1 - shares) ** 2 if choose == "hard" else shares * (1 - shares))
