"""Points, and ratings that sum them up."""

import math

import pytest
import torch

from torchrl_agent.population.ratings import ANCHOR, ELO, Standings, bradley_terry


def test_points_by_hand():
    standings = Standings(3)
    standings.enter(torch.tensor([0, 0, 1, 2]), torch.tensor([1, 1, 0, 2]), torch.tensor([1.0, 0.5, 0.0, 1.0]))
    assert standings.points.tolist() == [[0, 2.5, 0], [0.5, 0, 0], [0, 0, 0]]  # with itself nobody plays
    assert standings.games.tolist() == [[0, 3, 0], [3, 0, 0], [0, 0, 0]]
    assert standings.shares(1.0)[0, 1] == pytest.approx(3 / 4)
    standings.fade(0.5)
    assert standings.points[0, 1] == 1.25
    standings.forget(1)
    assert standings.games.sum() == 0


def test_a_copy_is_judged_by_the_games_of_its_source():
    standings = Standings(4)  # three members and a snapshot
    standings.enter(torch.tensor([0, 1, 0, 1]), torch.tensor([3, 3, 1, 2]), torch.tensor([1.0, 0.0, 1.0, 1.0]))
    standings.copy(torch.tensor([0, 0, 2]))  # the second becomes the first
    assert standings.points[:3, 3].tolist() == [1, 1, 0]
    assert standings.points[3].tolist() == [0, 0, 0, 0]
    assert standings.games[1, :3].tolist() == [0, 0, 0], "it met nobody of them yet"
    assert standings.games[:3, 1].tolist() == [0, 0, 0]


def test_ten_to_one_are_400_points():
    points, games = torch.zeros(2, 2), torch.zeros(2, 2)
    points[0, 1], points[1, 0], games[0, 1], games[1, 0] = 1e6, 1e5, 1.1e6, 1.1e6
    found = bradley_terry(points, games, anchor=1)
    assert found.rating.tolist() == pytest.approx([1400, 1000], abs=0.1)
    # 1 / sqrt(n p q), the error of log odds
    assert found.error.tolist() == pytest.approx([ELO / math.sqrt(1.1e6 / 1.1**2 / 10), 0], rel=1e-3, abs=1e-6)
    assert found.misfit < 1e-3
    assert bradley_terry(points, games).rating.mean() == pytest.approx(ANCHOR)


def test_known_strengths_are_found_within_their_errors():
    players, each = 24, 4000 // (24 * 23 // 2) + 1
    random = torch.Generator().manual_seed(0)
    truth = 300 * torch.randn(players, generator=random, dtype=torch.float64)
    truth += ANCHOR - truth[0]
    first, second = torch.triu_indices(players, players, 1)
    chance = torch.sigmoid((truth[first] - truth[second]) / ELO)
    won = torch.binomial(torch.full_like(chance, each), chance, generator=random)
    points, games = torch.zeros(players, players, dtype=torch.float64), torch.full((players, players), float(each))
    points[first, second], points[second, first] = won, each - won
    games.fill_diagonal_(0)
    found = bradley_terry(points, games, anchor=0)
    ranks = [values.argsort().argsort().double() for values in (truth, found.rating)]
    assert torch.corrcoef(torch.stack(ranks))[0, 1] > 0.99
    assert ((found.rating - truth).abs() <= 2 * found.error + 1e-9).float().mean() >= 0.9


def test_who_wins_always_is_as_strong_as_the_prior_allows():
    points, games = torch.tensor([[0.0, 10.0], [0.0, 0.0]]), torch.tensor([[0.0, 10.0], [10.0, 0.0]])
    rating = bradley_terry(points, games).rating
    odds = ((rating[0] - rating[1]) / ELO).item()  # of which each has a half: that is where the prior pulls as strongly
    assert 10 * (1 - 1 / (1 + math.exp(-odds))) == pytest.approx(odds / 2 / 36, rel=1e-4)


def test_who_wins_always_has_a_finite_rating_and_a_circle_does_not_fit():
    games = 10 * (1 - torch.eye(3))
    points = torch.zeros(3, 3)
    points[0, 1] = points[0, 2] = points[1, 2] = 10
    assert bradley_terry(points, games).rating.isfinite().all()
    circle = torch.zeros(3, 3)
    circle[0, 1] = circle[1, 2] = circle[2, 0] = 10
    found = bradley_terry(circle, games)
    assert found.rating.tolist() == pytest.approx([ANCHOR] * 3)
    assert found.misfit == pytest.approx(0.5)
