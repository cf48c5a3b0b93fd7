"""Seats of a league: balanced, and everybody acts in its own."""

import itertools

import pytest
import torch

from envs import ArenaEnv, DuelEnv
from torchrl_agent.population.seats import check_seats, pairings, seat_table

TABLES = [
    {"worlds": 12, "members": 3, "slots": 2, "past": 0.5},
    {"worlds": 12, "members": 1, "slots": 3, "past": 1.0},
    {"worlds": 16, "members": 2, "slots": 2, "past": 0.25, "scripted": (0.25, 0.125)},
    {"worlds": 8, "members": 3, "slots": 1, "past": 0.5, "exploiters": 1},
    {"worlds": 10, "members": 4},
]


@pytest.mark.parametrize("words", TABLES)
def test_everybody_has_as_many_seats_on_either_side(words):
    seats = seat_table(**words)
    members, slots, copies, scripted = seats.counts
    assert seats.members.shape[0] == members
    assert seats.slots.shape[0] == slots
    rows = torch.cat([seats.members.flatten(), seats.slots.flatten(), seats.present.flatten()])
    of_scripted = [seats.scripted(index).flatten().nonzero().flatten() for index in range(scripted)]
    everybody = torch.cat([rows, *of_scripted])
    assert everybody.sort().values.tolist() == list(range(2 * len(seats.player))), "each seat has one holder"
    on_first = torch.bincount(seats.player[:, 0], minlength=sum(seats.counts))
    on_second = torch.bincount(seats.player[:, 1], minlength=sum(seats.counts))
    assert on_first.tolist() == on_second.tolist()
    for kind in (on_first[:members], on_first[members : members + slots], on_first[members + slots :][:copies]):
        assert len(kind.unique()) <= 1, "all of a kind equally often"
    holds = (seats.player == seats.home.unsqueeze(1)).any(1)
    assert holds.all(), "a member plays in its own worlds"


def test_a_table_by_hand():
    # two members with two worlds against the one slot of each, and two in which they meet
    seats = seat_table(4, 2, slots=1, past=0.5)
    assert seats.player.tolist() == [[0, 2], [2, 0], [0, 0], [0, 1], [1, 3], [3, 1], [1, 1], [1, 0]]
    assert seats.home.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert seats.members.tolist() == [[0, 3, 4, 5, 6, 15], [7, 8, 11, 12, 13, 14]]
    assert seats.slots.tolist() == [[1, 2], [9, 10]]


def test_members_meet_everybody_themselves_included():
    seats = seat_table(8, 4)
    met = {tuple(pair) for pair in seats.player.tolist()}
    assert met == set(itertools.product(range(4), repeat=2))


def test_exploiters_meet_only_copies_and_learn_as_often_as_the_others():
    seats = seat_table(8, 3, slots=1, past=0.5, exploiters=1)
    theirs = seats.player[seats.home == 2]
    assert sorted(theirs.unique().tolist()) == [2, 5, 6]  # 0 to 2 are members, 3 and 4 slots, 5 and 6 copies
    assert ((theirs == 2).sum(1) == 1).all()
    assert not (seats.player[seats.home != 2] == 2).any(), "nobody else meets it"
    assert seats.members.shape == (3, 12)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"worlds": 8, "members": 2, "slots": 2, "past": 0.25}, "too few for 4 balanced worlds"),
        ({"worlds": 8, "members": 2, "slots": 1, "past": 0.75, "scripted": (0.5,)}, "together above 1"),
        ({"worlds": 8, "members": 3, "slots": 1, "past": 0.25, "exploiters": 1}, "a multiple of 4"),
    ],
)
def test_what_cannot_be_balanced_is_refused(words, sentence):
    with pytest.raises(ValueError, match=sentence):
        seat_table(**words)


def test_a_tournament_pairs_each_two_from_both_seats():
    seats = pairings(4, 6)
    assert len(seats) == 6 * 6
    counts = torch.zeros(4, 4)
    counts.index_put_(tuple(seats.T), torch.ones(len(seats)), accumulate=True)
    assert torch.equal(counts, 3 * (1 - torch.eye(4)))


def test_worlds_without_two_seats_have_no_matches():
    check_seats(DuelEnv(2), "duel")
    for env in (DuelEnv(2, opponent="turret"), ArenaEnv(2)):
        with pytest.raises(ValueError, match="the world of it has no two seats with a winner"):
            check_seats(env, "it")
