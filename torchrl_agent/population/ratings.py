"""Points between players: a table of points, and ratings that summarize it."""

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
"""Fewest games of a pair that counts in the misfit of the ratings."""


class Ratings(NamedTuple):
    """Strengths of players."""

    rating: Tensor
    """Rating of each player, [M]; 400 points are odds of 10 to 1."""
    error: Tensor
    """Standard errors of the difference to the anchor, [M]."""
    misfit: float
    """Largest difference between a fraction of points and its prediction by ratings, which one number per player
    hides."""


class Standings:
    """Points that players took from each other, older ones counting less.

    Attributes:
        points: points that the row took from the column, a draw counting 1/2, float64 [M, M].
        games: games of both, float64 [M, M].
    """

    def __init__(self, players: int) -> None:
        self.points = torch.zeros(players, players, dtype=torch.float64)
        self.games = torch.zeros_like(self.points)

    def enter(self, first: Tensor, second: Tensor, points: Tensor) -> None:
        """Add games [games] of two players each, with the points of the first; games of a player against itself are
        left out.
        """
        kept = first != second
        first, second, points = first[kept], second[kept], points[kept].double()
        for one, other, won in ((first, second, points), (second, first, 1 - points)):
            self.points.index_put_((one, other), won, accumulate=True)
            self.games.index_put_((one, other), torch.ones_like(won), accumulate=True)

    def fade(self, factor: float) -> None:
        """Scale all earlier results by a factor."""
        self.points *= factor
        self.games *= factor

    def forget(self, player: int) -> None:
        """Clear the results of a player, to free its place."""
        for table in (self.points, self.games):
            table[player] = 0
            table[:, player] = 0

    def copy(self, source: Tensor) -> None:
        """Give the first players the results of those that they are copies of, int64 [players], except from games
        against each other.
        """
        count = len(source)
        for table in (self.points, self.games):
            table[:count, count:] = table[source, count:]
            table[count:, :count] = table[count:, source]
            copied = source != torch.arange(count)
            table[:count, :count][copied] = 0
            table[:count, :count][:, copied] = 0

    def shares(self, prior: float = 1.0) -> Tensor:
        """Fraction of the points that the row takes from the column, [M, M], with ``prior`` draws before any game."""
        return (self.points + prior / 2) / (self.games + prior)

    def state_dict(self) -> dict[str, Any]:
        """Both tables."""
        return {"points": self.points.clone(), "games": self.games.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        self.points.copy_(state["points"])
        self.games.copy_(state["games"])


def bradley_terry(points: Tensor, games: Tensor, anchor: int | None = None) -> Ratings:
    """Ratings under which a player's fraction of the points against another is ``1 / (1 + 10^((theirs - own) / 400))``:
    the most probable ones (Bradley and Terry 1952), by Newton's method.

    Args:
        points: points that the row took from the column, [M, M].
        games: games of both, [M, M].
        anchor: the player whose rating is 1000; without one the mean is.
    """
    points, games = points.double(), games.double()
    size = len(points)
    strength, identity = torch.zeros(size, dtype=torch.float64), torch.eye(size, dtype=torch.float64)
    for _ in range(ROUNDS):
        # Newton's step on the log-posterior: predicted fractions, gradient, variances of the points, negative Hessian
        expected = torch.sigmoid(strength.unsqueeze(1) - strength)
        slope = (points - games * expected).sum(1) - PRIOR * strength
        weight = games * expected * (1 - expected)
        curvature = torch.diag(weight.sum(1)) - weight + PRIOR * identity
        # far from the optimum Newton's step is too long
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
