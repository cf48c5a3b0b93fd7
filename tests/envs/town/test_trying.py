"""What the player makes of places that look the same, on towns written by hand."""

from __future__ import annotations

import pytest

from envs import TownEnv
from envs.town.trying import TryingPlayer

KINDS = {"Bed": {"count": 3, "working": 1, "duration": 1, "price": 0.0, "tick": {"energy": 0.1}, "completion": {}}}
CELLS = [(0, 0), (2, 0), (4, 0)]


def beds(scene, works):
    """A row of three beds of which one works, and a tired visitor in the first."""
    town = scene("L3", affordances=KINDS, reward="energy")
    for which in range(3):
        town.place("Bed", *CELLS[(works + which) % 3], which)
    town.set(all=0.9, energy=0.3)
    return town


def tour(town, player, visits):
    """Cells in which the player asks, until it was served so many times, as numbers of beds."""
    asked, done = [], town.state.tally.visits.item()
    for _ in range(60):
        action = player(town.env.fake_tensordict())["agents", "action"].item()
        if town.rules.action_names[action] == "interact":
            asked.append(CELLS.index(town.where()))
        town.step(action)
        if town.state.tally.visits.item() >= done + visits:
            town.set(energy=0.3)
            return asked
        town.set(energy=0.3)
    raise AssertionError(asked)


def start(town, habit):
    town.step("wait")  # the episode has begun
    return TryingPlayer(town.env, habit)


@pytest.mark.parametrize("habit", ["adapts", "stubborn", "forgets"])
def test_it_tries_the_nearest_until_one_serves_it(scene, habit):
    town = beds(scene, 2)
    assert tour(town, start(town, habit), 1) == [0, 1, 2]


@pytest.mark.parametrize(("habit", "asked"), [("adapts", [2]), ("stubborn", [2]), ("forgets", [0, 1, 2])])
def test_who_remembers_returns_to_what_worked(scene, habit, asked):
    town = beds(scene, 2)
    player = start(town, habit)
    tour(town, player, 1)
    player(town.env.fake_tensordict())  # it knows of its visit
    town.put(x=0, y=0)
    assert tour(town, player, 1) == asked


@pytest.mark.parametrize(("habit", "asked"), [("adapts", [0]), ("stubborn", [2, 1, 0])])
def test_after_a_change_only_who_adapts_stays_with_what_works_now(scene, habit, asked):
    town = beds(scene, 2)
    player = start(town, habit)
    tour(town, player, 1)
    player(town.env.fake_tensordict())
    for which in range(3):
        town.place("Bed", *CELLS[which], which)  # now it is the first
    assert tour(town, player, 1) == [2, 1, 0]  # where it stands, then what is nearest
    player(town.env.fake_tensordict())
    assert tour(town, player, 1) == asked


def test_other_episodes_are_forgotten(scene):
    town = beds(scene, 2)
    player = start(town, "adapts")
    tour(town, player, 1)
    player(town.env.fake_tensordict())
    town.state.tally.lifetime.fill_(0)
    town.put(x=0, y=0)
    assert tour(town, player, 1)[0] == 0


def test_the_greedy_player_knows_which_one_works(scene):
    town = beds(scene, 2)
    assert tour(town, town.env.players()["greedy"], 1) == [2]


def test_experts_of_lookalikes_differ_by_what_they_make_of_experience():
    names = {level: list(TownEnv(level=level).experts()) for level in ("memory_lookalikes", "change_of_keys")}
    assert names["memory_lookalikes"] == ["foresight", "hierarchy", "memory"]
    assert names["change_of_keys"] == ["foresight", "hierarchy", "memory", "change"]


def test_to_be_taught_is_compared_with_finding_out_alone():
    """Where somebody teaches what cannot be seen; to read others is a knowledge of its own."""

    def experts(**changes):
        return TownEnv(level="others_teacher", rules=changes).experts()

    found = experts()
    greedy, *alone = found["taught"]
    assert (greedy, *alone) == (found["map"][0], *found["memory"])
    assert len(found["social"]) == 6
    for changes in (
        {"num_residents": 0},
        {"view": None},
        {"characters": ["onlooker", "trickster"]},  # who teaches is held back
        # of places that look the same all know the map
        {"affordances": {"Bed": {}, "HomeMeal": {"count": 2, "working": 1}}},
    ):
        assert "taught" not in experts(**changes), changes
    assert "taught" in experts(characters=["onlooker", "trickster"], cast="held_out")
