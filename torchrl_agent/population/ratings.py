"""Who beats whom: a table of points, and numbers that sum it up."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

ANCHOR = 1000.0
"""Rating of the player that others are measured by."""
ELO = 400 / math.log(10)
"""Rating points of a difference of 1 in the logarithm of the odds: 400 make odds of 10 to 1 (Elo 1978)."""
PRIOR = 1 / 36
"""Precision of ratings before any game, in units of the logarithm of the odds: it keeps those who won all games finite.
"""
ROUNDS = 100
"""Newton steps at most."""
LEAST_GAMES = 8
"""Pairs that met less often say nothing about how well ratings fit."""


class Ratings(NamedTuple):
    """Strengths of players."""

    rating: Tensor
    """[M]; 400 points are odds of 10 to 1."""
    error: Tensor
    """Standard errors of the difference to the anchor, [M]."""
    misfit: float
    """Largest difference between a share of points and what ratings say of it: how much one number per player hides."""


class Standings:
    """Points that players took from each other, older ones counting less.

    Args:
        players: how many there are places for.

    Attributes:
        points: which the row took from the column, a draw being half of one, float64 [M, M].
        games: of both, float64 [M, M].
    """

    def __init__(self, players: int) -> None:
        self.points = torch.zeros(players, players, dtype=torch.float64)
        self.games = torch.zeros_like(self.points)

    def enter(self, first: Tensor, second: Tensor, points: Tensor) -> None:
        """Count games [games] of two players each, of which the first took so many points; those of a player against
        itself tell nothing.
        """
        kept = first != second
        first, second, points = first[kept], second[kept], points[kept].double()
        for one, other, won in ((first, second, points), (second, first, 1 - points)):
            self.points.index_put_((one, other), won, accumulate=True)
            self.games.index_put_((one, other), torch.ones_like(won), accumulate=True)

    def fade(self, factor: float) -> None:
        """Let all that was count for less."""
        self.points *= factor
        self.games *= factor

    def forget(self, player: int) -> None:
        """Free a player's place."""
        for table in (self.points, self.games):
            table[player] = 0
            table[:, player] = 0

    def copy(self, source: Tensor) -> None:
        """Let the first players be judged by the games of those whose copies they are, int64 [players]: but for what
        they played against each other.
        """
        count = len(source)
        for table in (self.points, self.games):
            table[:count, count:] = table[source, count:]
            table[count:, :count] = table[count:, source]
            copied = source != torch.arange(count)
            table[:count, :count][copied] = 0
            table[:count, :count][:, copied] = 0

    def shares(self, prior: float = 1.0) -> Tensor:
        """Share of the points that the row takes from the column, [M, M]: with so many draws before any game."""
        return (self.points + prior / 2) / (self.games + prior)

    def state_dict(self) -> dict[str, Any]:
        """Both tables."""
        return {"points": self.points.clone(), "games": self.games.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue them."""
        self.points.copy_(state["points"])
        self.games.copy_(state["games"])


def bradley_terry(points: Tensor, games: Tensor, anchor: int | None = None) -> Ratings:
    """Ratings under which a player's share of the points against another is ``1 / (1 + 10^((theirs - own) / 400))``:
    the most probable ones (Bradley and Terry 1952), by Newton's method.

    Args:
        points: which the row took from the column, [M, M].
        games: of both, [M, M].
        anchor: the player whose rating is 1000; without one the mean is.
    """
    points, games = points.double(), games.double()
    size = len(points)
    strength, identity = torch.zeros(size, dtype=torch.float64), torch.eye(size, dtype=torch.float64)
    for _ in range(ROUNDS):
        expected = torch.sigmoid(strength.unsqueeze(1) - strength)
        slope = (points - games * expected).sum(1) - PRIOR * strength
        weight = games * expected * (1 - expected)
        curvature = torch.diag(weight.sum(1)) - weight + PRIOR * identity
        # far from the end Newton's step is too long
        step = torch.linalg.solve(curvature, slope).clamp(-1, 1)
        strength = strength + step
        if step.abs().max() < 1e-9:
            break
    reference = torch.full((size,), 1 / size, dtype=torch.float64) if anchor is None else identity[anchor]
    difference = identity - reference
    covariance = difference @ torch.linalg.inv(curvature) @ difference.T
    expected = torch.sigmoid(strength.unsqueeze(1) - strength)
    misses = torch.where(games >= LEAST_GAMES, (points / games.clamp_min(LEAST_GAMES) - expected).abs(), 0.0)
    rating = ANCHOR + ELO * (difference @ strength)
    return Ratings(rating, ELO * covariance.diagonal().clamp_min(0).sqrt(), misses.max().item())
