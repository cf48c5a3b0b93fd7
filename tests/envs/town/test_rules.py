"""The rules one by one, on states written by hand; numbers are those of the reference, written out again."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
import torch

from envs import TownEnv
from envs.toolkit.records import named_tensors
from envs.town import load_level
from envs.town.checks import LARGEST_SIDE
from envs.town.dynamics import win_seats
from envs.town.rules import Cue
from envs.town.state import ABSENT, holds_place, kind_of

ALL = {"up", "down", "left", "right", "interact", "wait", "rest", "meditate"}
PLACES = {  # steps, price at once, price per step, change per step, change by the last step
    "Bed": (5, 0.05, 0.01, {"energy": 0.075}, {"energy": 0.125, "health": 0.02}),
    "LuxuryBed": (6, 0.11, 0.01833, {"energy": 0.09375}, {"energy": 0.1875, "health": 0.05}),
    "Shower": (3, 0.03, 0.01, {"hygiene": 0.1}, {"hygiene": 0.1}),
    "HomeMeal": (2, 0.03, 0.01, {"satiation": 0.1125}, {"satiation": 0.1125, "health": 0.03}),
    "FastFood": (
        2,
        0.1,
        0.05,
        {"satiation": 0.16875, "energy": 0.05625},
        {"satiation": 0.1125, "energy": 0.0375, "social": 0.01, "fitness": -0.03, "health": -0.02},
    ),
    "Doctor": (3, 0.08, 0.04, {"health": 0.09375}, {"health": 0.0625}),
    "Hospital": (6, 0.15, 0.05, {"health": 0.1}, {"health": 0.1}),
    "Therapist": (4, 0.15, 0.05, {"mood": 0.1}, {"mood": 0.1}),
    "Recreation": (3, 0.06, 0.03, {"mood": 0.09375, "energy": 0.045}, {"mood": 0.0625, "energy": 0.03}),
    "Bar": (
        2,
        0.15,
        0.075,
        {"social": 0.1875, "mood": 0.09375, "satiation": 0.1125},
        {"social": 0.125, "mood": 0.0625, "satiation": 0.075, "energy": -0.2, "hygiene": -0.15, "health": -0.05},
    ),
    "Job": (8, 0.0, 0.0, {"money": 0.05625}, {"money": 0.05625, "energy": -0.15, "social": 0.02, "health": -0.03}),
    "Labor": (
        6,
        0.0,
        0.0,
        {"money": 0.075},
        {"money": 0.075, "energy": -0.2, "fitness": -0.05, "health": -0.05, "social": 0.01},
    ),
    "Gym": (4, 0.08, 0.02667, {"fitness": 0.075}, {"fitness": 0.075, "energy": -0.08}),
    "Park": (
        3,
        0.0,
        0.0,
        {"fitness": 0.05, "social": 0.0375, "mood": 0.0375},
        {"fitness": 0.05, "social": 0.0375, "mood": 0.0375, "energy": -0.15},
    ),
}
HOURS = {"Bar": (18, 28), "Doctor": (8, 18), "Therapist": (8, 18), "Job": (8, 18), "Labor": (8, 18)}
HOURS |= {"Recreation": (8, 22), "Gym": (6, 22), "Park": (6, 22)}
CASCADES = [
    ("satiation", "health", 0.004),
    ("satiation", "energy", 0.005),
    ("mood", "energy", 0.005),
    ("hygiene", "satiation", 0.002),
    ("hygiene", "fitness", 0.002),
    ("hygiene", "mood", 0.003),
    ("social", "mood", 0.004),
    ("hygiene", "health", 0.0005),
    ("hygiene", "energy", 0.0005),
    ("social", "energy", 0.0008),
]
DEPLETION = {"energy": 0.005, "hygiene": 0.003, "satiation": 0.004, "money": 0.0, "mood": 0.001, "social": 0.006}
DEPLETION |= {"health": 0.0, "fitness": 0.002}


def close(value, expected, tolerance=2e-6):
    assert value == pytest.approx(expected, abs=tolerance)


def still(level="L3", **changes):
    """Rules under which nothing happens by itself."""
    rules = load_level(level, depletion=0.0, **changes)
    return dataclasses.replace(rules, modulations=[], cascades=[])


# --- moves and masks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("move", "to"), [("up", (3, 2)), ("down", (3, 4)), ("left", (2, 3)), ("right", (4, 3))])
def test_a_move_goes_one_cell(scene, move, to):
    town = scene()
    town.put(x=3, y=3)
    town.step(move)
    assert town.where() == to
    assert town.state.tally.illegal.item() == 0


@pytest.mark.parametrize(
    ("action", "x", "y"), [("up", 4, 0), ("down", 4, 5), ("left", 0, 3), ("right", 7, 3), ("interact", 4, 3)]
)
def test_an_illegal_action_becomes_waiting_and_costs_nothing_extra(scene, action, x, y):
    """Such as to leave the map, or to interact where nothing is."""
    town, other = scene(width=8, height=6), scene(width=8, height=6)
    town.put(x=x, y=y)
    assert town.mask() == ALL - {action, "interact"}
    town.step(action)
    other.step("wait")
    assert town.meters() == other.meters()
    assert town.where() == (x, y)
    assert town.state.tally.illegal.item() == 1
    assert other.state.tally.illegal.item() == 0
    assert town.state.agents.action.item() == 5
    assert not town.state.agents.refused.item()


def test_interacting_needs_a_place_underfoot(scene):
    town = scene()
    town.put(x=2, y=2)
    town.place("Bed", 2, 3)
    assert "interact" not in town.mask()
    town.place("Shower", 2, 2)
    assert "interact" in town.mask()


def test_only_deployed_kinds_are_in_a_town(scene):
    town = scene("L2", num_envs=20)
    town.env.reset()
    there = (town.state.layout.x >= 0).all(1)
    names = [kind for kind, present in zip(town.rules.kinds, there.tolist(), strict=True) if present]
    assert names == ["Bed", "HomeMeal", "Job"]
    assert not ((town.state.layout.x >= 0).any(1) & ~there).any()


@pytest.mark.parametrize(
    ("level", "changes", "disabled"),
    [
        ("L1", {}, {"rest", "meditate"}),
        ("L2", {"actions": ["rest"]}, {"meditate"}),
        ("L3", {"actions": []}, {"rest", "meditate"}),
    ],
)
def test_actions_that_the_level_does_not_enable_are_masked_and_do_nothing(scene, level, changes, disabled):
    town = scene(level, depletion=0.0, **changes)
    town.set(all=0.5)
    town.put(x=1, y=1)
    assert town.mask() == ALL - {"interact"} - disabled
    for count, action in enumerate(sorted(disabled), 1):
        town.step(action)
        assert town.meters()["energy"] == 0.5
        assert town.meters()["mood"] == 0.5
        assert town.state.tally.illegal.item() == count


def test_the_dead_may_only_wait(scene):
    town = scene(num_agents=2)
    town.place("Bed", 3, 3)
    town.put(x=3, y=3)
    town.put(0, alive=False)
    assert town.mask(0) == {"wait"}
    assert town.mask(1) == ALL


def test_the_dead_may_not_speak(scene):
    town = scene("L8", num_agents=4)
    town.put(1, alive=False)
    heads = [town.observe(agent)["action_mask"][8:] for agent in (0, 1)]
    assert heads == [[True] * 16, [True] + [False] * 15]


def test_illegal_actions_are_counted_over_the_episode(scene):
    town = scene(num_agents=2)
    for _ in range(3):
        town.step("up", "right")
    assert town.state.tally.illegal.flatten().tolist() == [3, 0]
    seen = town.step("interact", "wait")
    assert seen["episode", "illegal_actions"].item() == 2


@pytest.mark.parametrize(("x", "y", "hour"), [(0, 0, 9), (0, 0, 3), (7, 7, 20), (3, 0, 2), (4, 4, 12)])
@pytest.mark.parametrize("action", sorted(ALL))
def test_the_mask_says_exactly_what_counts_as_illegal(scene, action, x, y, hour):
    town = scene("L5")
    town.place("Job", 0, 0)
    town.put(x=x, y=y)
    town.at_hour(hour)
    legal = action in town.mask()
    town.step(action)
    assert town.state.tally.illegal.item() == (not legal)


# --- what actions cost and give ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "energy", "mood"),
    [
        ("down", -0.005, 0.0),
        ("right", -0.005, 0.0),
        ("up", -0.005, 0.0),
        ("left", -0.005, 0.0),
        ("wait", 0.0, 0.0),
        ("rest", 0.002, 0.01),
        ("meditate", -0.001, 0.02),
    ],
)
def test_actions_cost_and_give_wherever_they_are_taken(scene, action, energy, mood):
    town = scene(rules=still())
    town.set(all=0.5)
    town.put(x=3, y=3)
    town.step(action)
    expected = dict.fromkeys(town.meters(), 0.5) | {"energy": 0.5 + energy, "mood": 0.5 + mood}
    close(town.meters(), expected)


def test_who_cannot_pay_loses_the_effort_and_nothing_else(scene):
    town = scene(rules=still())
    town.place("Shower", 0, 0)
    town.set(all=0.5, money=0.0299)
    seen = town.step("interact")
    close(town.meters(), dict.fromkeys(town.meters(), 0.5) | {"energy": 0.495, "money": 0.0299})
    assert town.state.agents.refused.item()
    assert town.state.tally.unpaid.item() == 1
    assert town.state.tally.illegal.item() == 0
    assert town.state.tally.visits.item() == 0
    assert seen["episode", "unpaid"].item() == 1
    town.step("wait")
    assert not town.state.agents.refused.item()


def test_the_exact_price_is_enough(scene):
    town = scene(rules=still())
    town.place("Shower", 0, 0)
    town.set(all=0.5, money=0.03)
    town.step("interact")
    close(town.meters()["hygiene"], 0.9)
    assert town.meters()["money"] == 0


def test_what_a_visit_earns_does_not_pay_for_it(scene):
    town = scene(rules=still(affordances={"Job": {"price": 0.1}}, reward="energy"))
    town.place("Job", 0, 0)
    town.set(all=0.5, money=0.05)
    town.step("interact")
    close(town.meters()["money"], 0.05)


@pytest.mark.parametrize("kind", PLACES)
def test_a_visit_at_once(scene, kind):
    steps, price, _, tick, last = PLACES[kind]
    town = scene(rules=still())
    town.place(kind, 0, 0)
    town.set(all=0.4)
    town.step("interact")
    change = {"energy": -0.005, "money": -price}
    for name in town.meters():
        value = 0.4 + change.get(name, 0) + steps * tick.get(name, 0) + last.get(name, 0)
        close(town.meters()[name], min(1.0, value))
    assert town.state.tally.visits.item() == 1


@pytest.mark.parametrize("kind", PLACES)
def test_a_visit_step_by_step(scene, kind):
    steps, _, price, tick, last = PLACES[kind]
    town = scene(rules=still(multi_tick=True))
    town.place(kind, 0, 0)
    town.set(all=0.4)
    expected = town.meters()
    for step in range(1, steps + 1):
        assert town.state.tally.visits.item() == 0
        town.step("interact")
        expected["energy"] -= 0.005
        expected["money"] -= price
        for name in expected:
            expected[name] = min(1.0, expected[name] + tick.get(name, 0) + (step == steps) * last.get(name, 0))
        close(town.meters(), expected, 1e-5)
        assert town.state.agents.progress.item() == step % steps
    assert town.state.tally.visits.item() == 1


def test_meters_stay_between_0_and_1(scene):
    town = scene(rules=still())
    town.place("Labor", 0, 0)
    town.set(all=0.99, fitness=0.01)
    town.step("interact")
    assert town.meters()["money"] == 1
    assert town.meters()["fitness"] == 0


# --- visits that take time --------------------------------------------------------------------------------------------


@pytest.fixture
def sleeper(scene):
    """An agent two steps into a sleep of five."""
    town = scene(rules=still(multi_tick=True))
    town.place("Bed", 3, 3)
    town.put(x=3, y=3)
    town.set(all=0.5)
    town.step("interact")
    town.step("interact")
    assert town.state.agents.progress.item() == 2
    return town


@pytest.mark.parametrize("pause", ["wait", "rest", "meditate"])
def test_waiting_pauses_a_visit(sleeper, pause):
    sleeper.step(pause)
    assert sleeper.state.agents.progress.item() == 2
    for _ in range(3):
        sleeper.step("interact")
    assert sleeper.state.agents.progress.item() == 0
    assert sleeper.state.tally.visits.item() == 1


def test_leaving_the_cell_ends_a_visit(sleeper):
    sleeper.step("up")
    assert sleeper.state.agents.progress.item() == 0
    sleeper.step("down")
    sleeper.step("interact")
    assert sleeper.state.agents.progress.item() == 1


def test_a_move_against_the_edge_does_not_end_a_visit(scene):
    town = scene(rules=still(multi_tick=True))
    town.place("Bed", 0, 0)
    town.step("interact")
    town.step("left")
    assert town.state.agents.progress.item() == 1


def test_a_visit_that_is_broken_off_keeps_what_it_gave(sleeper):
    before = sleeper.meters()
    close((before["energy"], before["money"]), (0.5 + 2 * 0.07, 0.48))
    sleeper.step("up")
    close(sleeper.meters()["energy"], before["energy"] - 0.005)
    close(sleeper.meters()["health"], 0.5)


def test_who_runs_out_of_money_pauses_a_visit(sleeper):
    sleeper.set(money=0.005)
    sleeper.step("interact")
    assert sleeper.state.agents.progress.item() == 2
    assert sleeper.state.agents.refused.item()
    sleeper.set(money=0.5)
    sleeper.step("interact")
    assert sleeper.state.agents.progress.item() == 3


def test_another_place_of_the_same_kind_is_another_visit(scene):
    town = scene(rules=still(multi_tick=True, affordances={"Bed": {"count": 2}}))
    town.place("Bed", 0, 0)
    town.place("Bed", 1, 0, which=1)
    town.step("interact")
    town.step("interact")
    town.step("right")
    town.step("interact")
    assert town.state.agents.progress.item() == 1


# --- hours ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PLACES)
def test_places_keep_their_hours_day_after_day(scene, kind):
    town = scene("L5", num_envs=48)
    town.place(kind, 0, 0)
    town.state.step[:] = torch.arange(48)
    opens, closes = HOURS.get(kind, (0, 24))
    hours = {hour % 24 for hour in range(opens, closes)}
    assert [step % 24 in hours for step in range(48)] == ["interact" in town.mask(world=step) for step in range(48)]


def test_without_a_clock_all_is_open_at_all_hours(scene):
    town = scene(num_envs=24)
    town.state.step[:] = torch.arange(24)
    for kind in PLACES:
        town.clear()
        town.place(kind, 0, 0)
        assert all("interact" in town.mask(world=hour) for hour in range(24))


def test_a_closed_place_is_no_use_and_a_visit_waits_for_the_morning(scene):
    town = scene("L5", rules=still("L5"))
    town.place("Job", 0, 0)
    town.at_hour(16)
    town.set(all=0.5)
    for _ in range(3):
        town.step("interact")
    assert town.state.agents.progress.item() == 2
    assert town.state.tally.illegal.item() == 1
    close(town.meters()["money"], 0.5 + 2 * 0.05625)
    town.at_hour(32)
    town.step("interact")
    assert town.state.agents.progress.item() == 3


# --- meters by themselves ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("multiplier", [0.0, 0.2, 1.0, 3.0])
def test_the_multiplier_scales_depletion(scene, multiplier):
    town = scene(rules=dataclasses.replace(load_level("L3", depletion=multiplier), modulations=[], cascades=[]))
    town.set(all=0.5)
    town.step("wait")
    close(town.meters(), {name: 0.5 - multiplier * rate for name, rate in DEPLETION.items()})


@pytest.mark.parametrize("source", ["hygiene", "satiation", "mood", "social", "money", "energy", "health", "fitness"])
@pytest.mark.parametrize("level", [0.01, 0.2, 0.301])
def test_a_low_meter_pulls_others_down_and_unfitness_wears_health_out(scene, source, level):
    """A multiplier of 0 stops depletion alone."""
    town = scene(depletion=0.0)
    town.set(all=0.6, fitness=1.0)
    town.set(**{source: level})
    expected = town.meters()
    expected["health"] -= 0.001 * (0.5 + 2.5 * (1 - expected["fitness"]))
    for low, target, strength in CASCADES:
        if low == source:
            expected[target] -= strength * max(0.0, 0.3 - level) / 0.3
    town.step("wait")
    close(town.meters(), expected)


def test_a_bad_mood_by_loneliness_tires_one_step_later(scene):
    town = scene(depletion=0.0)
    town.set(all=0.8, mood=0.3, social=0.0)
    town.step("wait")
    close((town.meters()["mood"], town.meters()["energy"]), (0.296, 0.8 - 0.0008))
    town.step("wait")
    close(town.meters()["energy"], 0.8 - 2 * 0.0008 - 0.005 * 0.004 / 0.3)


def test_depletion_comes_before_cascades(scene):
    town = scene()
    town.set(all=0.8, satiation=0.3)
    town.step("wait")
    close(town.meters()["energy"], 0.795 - 0.005 * 0.004 / 0.3)


# --- death ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("meter", ["energy", "health"])
def test_who_runs_out_of_a_fatal_meter_dies(scene, meter):
    town = scene(num_agents=2)
    town.set(0, **{meter: 0.0004})
    seen = town.step("wait", "wait")
    assert seen["agents", "alive"].flatten().tolist() == [False, True]
    assert town.state.events.died.flatten().tolist() == [True, False]
    assert not seen["done"].item()
    town.step("wait", "wait")
    assert not town.state.events.died.any()


@pytest.mark.parametrize("meter", ["hygiene", "satiation", "money", "mood", "social", "fitness"])
def test_no_other_meter_is_fatal(scene, meter):
    town = scene()
    town.set(**{meter: 0.0})
    seen = town.step("wait")
    assert seen["agents", "alive"].all()
    assert not seen["done"].any()


def test_a_level_may_make_another_meter_fatal(scene):
    town = scene("L1", meters={"mood": {"fatal": True}})
    town.set(mood=0.0)
    assert town.step("wait")["terminated"].item()


def test_a_visit_in_the_same_step_saves_a_life(scene):
    town = scene()
    town.place("Bed", 0, 0)
    town.set(energy=0.004)
    assert town.step("interact")["agents", "alive"].item()


def test_the_world_ends_when_all_are_dead(scene):
    town = scene(num_agents=2)
    town.set(energy=0.001)
    town.set(1, energy=0.008)
    first = town.step("wait", "wait")
    assert not first["done"].item()
    second = town.step("wait", "wait")
    assert second["terminated"].item()
    assert second["done"].item()
    assert not second["truncated"].item()
    assert second["episode", "lifetime"].item() == 1.5
    assert second["episode", "length"].item() == 2
    assert second["episode", "win"].item() == 0


def test_an_ended_world_starts_afresh(scene):
    town = scene("L1")
    town.set(energy=0.001)
    assert town.step("wait")["terminated"].item()
    assert town.state.step.item() == 0
    assert town.state.agents.alive.all()
    close(list(town.meters().values()), [0.5, 1.0, 0.5, 0.3, 1.0, 1.0, 0.8, 1.0])


@pytest.fixture
def graveyard(scene):
    """Four agents of two families on one bed of one seat, the first of them dead."""

    def make(seed=0):
        town = scene("L8", num_agents=4, seed=seed)
        town.place("Bed", 3, 3)
        town.put(x=3, y=3)
        town.set(all=0.6)
        town.set(0, energy=0.001)
        town.put(0, symbol=7)
        town.step(("wait", 7), ("wait", 1), ("wait", 1), ("wait", 1))
        assert not town.state.agents.alive[0].item()
        return town

    return make


@pytest.mark.parametrize("action", sorted(ALL))
def test_a_dead_agent_changes_nothing(graveyard, action):
    town, other = graveyard(), graveyard()
    before = {
        name: value[:, 0].clone() for name, value in [("meters", town.state.meters), ("traits", town.state.traits)]
    }
    own = {name: value[0].clone() for name, value in town.state.agents._asdict().items()}
    rest = [("interact", 3), ("interact", 4), ("interact", 5)]
    number = town.rules.action_names.index(action)
    for _ in range(5):
        town.step([number, 9], *[[4, symbol] for _, symbol in rest])
        other.step([5, 0], *[[4, symbol] for _, symbol in rest])
    for (name, mine), (_, theirs) in zip(named_tensors(town.state), named_tensors(other.state), strict=True):
        assert torch.equal(mine, theirs), name
    assert torch.equal(town.state.meters[:, 0], before["meters"])
    assert torch.equal(town.state.traits[:, 0], before["traits"])
    for name, value in own.items():
        assert torch.equal(getattr(town.state.agents, name)[0], value), name
    assert town.state.agents.cues[0].item() == 0


def test_a_dead_agent_cannot_rise(graveyard):
    town = graveyard()
    town.set(0, all=1.0)
    town.step([4, 0], [5, 0], [5, 0], [5, 0])
    assert not town.state.agents.alive[0].item()


def test_the_dead_do_not_age_and_get_no_reward(scene):
    town = scene(num_agents=2, reward="constant")
    town.set(0, energy=0.001)
    assert town.reward("wait", "wait") == [1.0, 1.0]
    for _ in range(3):
        assert town.reward("wait", "wait") == [0.0, 1.0]
    assert town.state.tally.lifetime.flatten().tolist() == [1, 4]
    assert town.env.episode.total_reward.flatten().tolist() == [1, 4]


# --- retirement -------------------------------------------------------------------------------------------------------


def test_survivors_retire_with_a_reward_of_one_when_time_is_up(scene):
    town = scene(num_agents=2, reward={"retirement": 1.0})
    town.put(0, alive=False)
    town.at_hour(498)
    seen = town.step("wait", "wait")
    assert not seen["done"].item()
    assert seen["agents", "reward"].flatten().tolist() == [0.0, 0.0]
    seen = town.step("wait", "wait")
    assert seen["truncated"].item()
    assert not seen["terminated"].item()
    assert seen["done"].item()
    assert seen["agents", "reward"].flatten().tolist() == [0.0, 1.0]
    assert seen["episode", "win"].item() == 0.5


def test_who_dies_in_the_last_step_does_not_retire(scene):
    town = scene(reward={"retirement": 1.0})
    town.at_hour(499)
    town.set(energy=0.001)
    seen = town.step("wait")
    assert seen["terminated"].item()
    assert not seen["truncated"].item()
    assert seen["agents", "reward"].item() == 0
    assert seen["episode", "win"].item() == 0


@pytest.mark.parametrize(("level", "length"), [("L0", 1000), ("L1", 1000), ("L3", 500), ("L5", 500)])
def test_time_is_up_after_the_levels_steps(scene, level, length):
    town = scene(level)
    town.at_hour(length - 2)
    assert not town.step("wait")["truncated"].item()
    assert town.step("wait")["truncated"].item()


# --- rewards ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reward", "step", "death", "retirement"),
    [
        ("energy_health", 0.28, 0.0, 1.25),
        ("energy", 0.4, 0.0, 1.5),
        ("balanced", 1.0 + 0.5 * (0.4 - 0.5) + 0.5 * (0.7 - 0.5), 1.0 - 0.25 + 0.1, 2.0),
        ("additive", 1.1, 0.7, 2.0),
        ("minimum", 0.4, 0.0, 1.5),
        ("survival", 1.0, -99.0, 1.0),
        ("constant", 1.0, 1.0, 2.0),
        ("low_meter_penalty", 0.0, -25.0 - 2.5, 0.0),
        ("milestones", 0.0, -100.0, 5.5),
        ("wellbeing", (0.4 * 0.6 * 0.8 * 0.5 * 0.9 * 0.7 * 0.65) ** (1 / 7), 0.0, 1.5),
        ("lifetime", 0.28, None, None),  # weighed by tests of its own, as is the way to places
        ("proximity", None, None, 1.0),
    ],
)
def test_what_a_step_a_death_and_retiring_are_worth(scene, reward, step, death, retirement):
    if step is not None:
        town = scene(rules=still(reward=reward))
        town.set(energy=0.4, hygiene=0.6, satiation=0.8, money=0.1, mood=0.5, social=0.9, health=0.7, fitness=0.65)
        close(town.reward("wait"), [step])
    if death is not None:
        town = scene(rules=dataclasses.replace(load_level("L3", reward=reward), modulations=[], cascades=[]))
        town.set(all=0.7, energy=0.001)
        close(town.reward("wait"), [death], 1e-5)
    if retirement is not None:
        town = scene(rules=still(reward=reward))
        town.set(all=0.5)
        town.at_hour(499)
        town.state.tally.lifetime.fill_(499)
        close(town.reward("wait"), [retirement], 1e-5)


def test_wellbeing_counts_only_needs_that_the_town_can_serve(scene):
    town = scene("L2", depletion=0.0)
    assert town.rules.needs == ("energy", "satiation")
    town.set(all=0.31, energy=0.4, satiation=0.9, money=0.0)
    close(town.reward("wait"), [math.sqrt(0.36)])


def test_a_poor_life_is_not_an_unhappy_one(scene):
    town = scene(rules=still())
    assert town.rules.needs == ("energy", "hygiene", "satiation", "mood", "social", "health", "fitness")
    town.set(money=0.0)
    close(town.reward("wait"), [1.0])


def test_every_low_need_is_punished_and_poverty_is_not(scene):
    town = scene(rules=still(reward="low_meter_penalty"), num_agents=4)
    town.set(all=0.5)
    town.set(0, money=0.1)
    town.set(1, mood=0.1, money=0.1)
    town.set(2, mood=0.1, social=0.19, energy=0.1)
    town.set(3, mood=0.21)
    assert town.reward("wait", "wait", "wait", "wait") == [0.0, -2.5, -7.5, 0.0]


@pytest.mark.parametrize(("lived", "expected"), [(0, 0.0), (8, 0.0), (9, 0.5), (10, 0.0), (19, 0.5), (99, 5.5)])
def test_milestones_come_every_ten_and_every_hundred_steps_of_life(scene, lived, expected):
    town = scene(rules=still(reward="milestones"))
    town.state.tally.lifetime.fill_(lived)
    close(town.reward("wait"), [expected])


@pytest.mark.parametrize(("x", "y", "expected"), [(0, 0, 1.0), (7, 7, 0.0), (7, 0, 0.5), (1, 0, 13 / 14)])
def test_proximity_falls_with_the_way_to_the_nearest_place(scene, x, y, expected):
    town = scene(rules=still(reward="proximity"))
    town.place("Gym", 0, 0)
    town.put(x=x, y=y)
    close(town.reward("wait"), [expected])
    town.place("Bar", x, y)
    close(town.reward("wait"), [1.0])


def test_a_lifetime_is_weighed_at_its_end(scene):
    town = scene(rules=still(reward="lifetime"), num_agents=2)
    town.set(all=0.5, money=0.25, energy=0.9, health=0.8)
    town.put(1, alive=False)
    town.at_hour(499)
    town.state.tally.lifetime.fill_(299)
    life = 0.5 * 300 / 500 + 0.3 * (0.9 + 0.8 + 5 * 0.5) / 7 + 0.2 * 0.5
    close(town.reward("wait", "wait"), [0.72 + life, 0.0])


def test_a_lifetime_cut_short_counts_a_tenth(scene):
    rules = load_level("L3", reward="lifetime")
    town = scene(rules=dataclasses.replace(rules, modulations=[], cascades=[]))
    town.set(all=0.5, money=0.25, energy=0.001)
    town.state.tally.lifetime.fill_(99)
    needs = (0 + 0.497 + 0.496 + 0.499 + 0.494 + 0.5 + 0.498) / 7
    close(town.reward("wait"), [0.1 * (0.5 * 100 / 500 + 0.3 * needs + 0.2 * 0.5)])


# --- places with few seats --------------------------------------------------------------------------------------------


@pytest.fixture
def queue(scene):
    """Four agents at one bed of one seat, in many worlds."""

    def make(num_envs=1, seed=0, **changes):
        town = scene(rules=still("L6", **changes), num_agents=4, num_envs=num_envs, seed=seed)
        town.place("Bed", 2, 2)
        town.put(x=2, y=2)
        town.set(all=0.5)
        return town

    return make


ASK = ("interact",) * 4


def test_one_seat_has_exactly_one_winner_who_pays_and_sleeps_while_the_losers_only_tire(queue):
    town = queue(num_envs=500)
    town.step(*ASK)
    won = town.state.agents.progress == 1
    assert (won.sum(0) == 1).all()
    assert torch.equal(town.state.agents.refused, ~won)
    assert torch.equal(town.state.tally.contested > 0, ~won)
    assert not town.state.tally.unpaid.any()
    energy, money = town.state.meters[0], town.state.meters[3]
    torch.testing.assert_close(energy, torch.where(won, 0.57, 0.495))
    torch.testing.assert_close(money, torch.where(won, 0.49, 0.5))


def test_seats_are_drawn_fairly(queue):
    worlds = 4000
    town = queue(num_envs=worlds)
    winners = []
    for _ in range(3):
        town.put(progress=0)
        town.step(*ASK)
        winners.append(town.state.agents.progress.argmax(0))
    bound = 4.5 * math.sqrt(worlds * 3 / 16)
    for winner in winners:
        assert (torch.bincount(winner, minlength=4) - worlds / 4).abs().max() < bound
    for one, other in [(0, 1), (1, 2), (0, 2)]:
        pairs = torch.bincount(4 * winners[one] + winners[other], minlength=16)
        assert (pairs - worlds / 16).abs().max() < 4.5 * math.sqrt(worlds * 15 / 256)


def test_the_same_seed_has_the_same_winners(queue):
    def winners(seed):
        town = queue(num_envs=64, seed=seed)
        history = []
        for _ in range(3):
            town.step(*ASK)
            history.append(town.state.agents.refused.clone())
        return torch.stack(history)

    assert torch.equal(winners(3), winners(3))
    assert not torch.equal(winners(3), winners(4))


def test_a_loser_keeps_the_progress_of_the_visit(queue):
    town = queue()
    town.put(slot=0, progress=3)
    town.step(*ASK)
    assert sorted(town.state.agents.progress.flatten().tolist()) == [3, 3, 3, 4]


def test_a_broke_agent_takes_no_seat(queue):
    town = queue(num_envs=200)
    town.set(slice(0, 3), money=0.0)
    town.step(*ASK)
    assert town.state.agents.progress.tolist() == [[0] * 200] * 3 + [[1] * 200]
    assert town.state.agents.refused[:3].all()
    assert not town.state.agents.refused[3].any()
    assert (town.state.tally.unpaid[:3] == 1).all()
    assert not town.state.tally.contested.any()


def test_who_does_not_ask_takes_no_seat(queue):
    town = queue(num_envs=50)
    town.step("wait", "rest", "interact", "up")
    assert not town.state.agents.refused.any()
    assert (town.state.agents.progress[2] == 1).all()


def test_seats_belong_to_places_not_to_kinds(queue):
    town = queue(num_envs=100, affordances={"Bed": {"count": 2}, "Job": {}})
    town.place("Bed", 5, 5, which=1)
    town.put(slice(2, None), x=5, y=5)
    town.step(*ASK)
    won = town.state.agents.progress == 1
    assert (won[:2].sum(0) == 1).all()
    assert (won[2:].sum(0) == 1).all()


@pytest.mark.parametrize(("capacity", "seated"), [(0, 0), (1, 1), (3, 3), (4, 4), (9, 4)])
def test_as_many_are_seated_as_there_are_seats(queue, capacity, seated):
    town = queue(capacity=capacity)
    town.step(*ASK)
    assert (town.state.agents.progress == 1).sum().item() == seated


def test_the_park_has_room_for_all(queue):
    town = queue(num_envs=10)
    town.clear()
    town.place("Park", 0, 0)
    town.at_hour(12)
    town.step(*ASK)
    assert not town.state.agents.refused.any()
    assert (town.state.agents.progress == 1).all()


def test_levels_without_capacity_seat_everyone(scene):
    town = scene(num_agents=5)
    town.place("Bed", 0, 0)
    town.step(*["interact"] * 5)
    assert (town.state.tally.visits == 1).all()


def seats(asks, slot, keys, number):
    as_rows = [torch.tensor(value).unsqueeze(1) for value in (asks, slot, keys)]
    return win_seats(*as_rows, torch.tensor(number).reshape(-1, 1)).flatten().tolist()


def test_the_lowest_keys_win():
    assert seats([True] * 4, [7] * 4, [0.5, 0.1, 0.9, 0.3], [2] * 4) == [False, True, False, True]
    assert seats([True] * 4, [7, 7, 8, 8], [0.5, 0.1, 0.9, 0.3], [1] * 4) == [False, True, False, True]
    assert seats([True, False, True, False], [7] * 4, [0.5, 0.1, 0.9, 0.3], [1] * 4) == [True, False, False, False]


def test_equal_keys_do_not_give_a_seat_twice():
    for number in range(4):
        assert sum(seats([True] * 4, [7] * 4, [0.5] * 4, [number] * 4)) == number


def test_permuting_agents_with_their_keys_permutes_the_winners():
    generator = torch.Generator().manual_seed(0)
    agents, worlds = 6, 300
    asks = torch.rand(agents, worlds, generator=generator) < 0.8
    slot = torch.randint(0, 2, (agents, worlds), generator=generator)
    keys = torch.rand(agents, worlds, generator=generator)
    number = 1 + slot  # as many seats as the place's number
    won = win_seats(asks, slot, keys, number)
    for place in (0, 1):
        there = asks & (slot == place)
        assert torch.equal((won & there).sum(0), there.sum(0).clamp_max(place + 1))
    for _ in range(5):
        order = torch.randperm(agents, generator=generator)
        assert torch.equal(win_seats(asks[order], slot[order], keys[order], number[order]), won[order])


# --- cues -------------------------------------------------------------------------------------------------------------


def showing(scene, *cues, num_agents=2, num_envs=1, **changes):
    """A town of quiet agents with these cues."""
    town = scene(rules=still("L6", cues=list(cues), **changes), num_agents=num_agents, num_envs=num_envs)
    town.set(all=0.5)
    return town


@pytest.mark.parametrize(
    ("cue", "holds", "fails"),
    [
        ("looks_sick", [{"health": 0.29}], [{"health": 0.31}]),
        ("looks_happy", [{"mood": 0.71}], [{"mood": 0.69}]),
        ("looks_tired", [{"energy": 0.29}], [{"energy": 0.31}]),
        ("looks_energetic", [{"energy": 0.81}], [{"energy": 0.79}]),
        ("looks_healthy", [{"health": 0.81}], [{"health": 0.79}]),
        ("looks_poor", [{"money": 0.19}], [{"money": 0.21}]),
        ("looks_wealthy", [{"money": 0.81}], [{"money": 0.79}]),
        ("needs_help", [{"health": 0.19}, {"energy": 0.14}], [{"health": 0.21, "energy": 0.16}]),
        ("stressed", [{"mood": 0.19}, {"energy": 0.29}, {"health": 0.39}], [{"mood": 0.21, "health": 0.41}]),
        ("hangry", [{"satiation": 0.19, "mood": 0.29}], [{"satiation": 0.19}, {"mood": 0.29}]),
        ("fit_and_social", [{"fitness": 0.71, "social": 0.71}], [{"fitness": 0.71}, {"social": 0.9}]),
        ("workaholic", [{"money": 0.91, "social": 0.1, "mood": 0.2}], [{"money": 0.91, "social": 0.1}]),
        ("wealthy_but_unhealthy", [{"money": 0.81, "health": 0.2}], [{"money": 0.81}, {"health": 0.2}]),
        (
            "death_spiral",
            [{"health": 0.2, "energy": 0.2, "satiation": 0.1}],
            [{"health": 0.2, "energy": 0.2}, {"energy": 0.2, "satiation": 0.1}],
        ),
    ],
)
def test_a_cue_shows_when_it_holds(scene, cue, holds, fails):
    for cases, expected in ((holds, {cue}), (fails, set())):
        for levels in cases:
            town = showing(scene, cue)
            town.set(0, **levels)
            town.step("wait", "wait")
            assert town.cues(0) == expected, levels
            assert town.cues(1) == set()


@pytest.mark.parametrize(("cue", "kind"), [("at_job", "Job"), ("at_hospital", "Hospital"), ("at_bar", "Bar")])
def test_where_an_agent_stands_is_a_cue(scene, cue, kind):
    town = showing(scene, "at_job", "at_hospital", "at_bar", "at_home")
    town.place(kind, 3, 3)
    town.place("Bed", 4, 3)
    town.put(0, x=2, y=3)
    town.step("wait", "wait")
    assert town.cues(0) == set()
    town.step("right", "wait")
    assert town.cues(0) == {cue}
    town.step("right", "wait")
    assert town.cues(0) == {"at_home"}


def test_the_most_urgent_cues_are_shown_then_the_alphabet(scene):
    names = ["looks_poor", "stressed", "looks_tired", "looks_sick", "looks_happy"]
    expected = ["looks_sick", "looks_happy", "looks_tired", "stressed", "looks_poor"]
    for room in range(1, 6):
        town = showing(scene, *names, max_cues=room)
        town.set(0, energy=0.1, health=0.2, money=0.1, mood=0.9)
        town.step("wait", "wait")
        assert town.cues(0) == set(expected[:room])


def test_a_cue_that_does_not_hold_takes_no_room(scene):
    town = showing(scene, "looks_sick", "looks_tired", "looks_poor", max_cues=1)
    town.set(0, money=0.1)
    town.step("wait", "wait")
    assert town.cues(0) == {"looks_poor"}


@pytest.mark.parametrize(
    ("cue", "levels", "chance"),
    [
        ("looks_sad", {"mood": 0.2}, 0.85),
        ("looks_sad", {"mood": 0.9}, 0.10),
        ("looks_dirty", {"hygiene": 0.1}, 0.95),
        ("looks_dirty", {"hygiene": 0.9}, 0.02),
        ("looks_sick", {"health": 0.1}, 1.0),
        ("looks_sick", {"health": 0.9}, 0.0),
    ],
)
def test_cues_are_as_noisy_as_they_say(scene, cue, levels, chance):
    town = showing(scene, cue, num_envs=4000)
    town.set(**levels)
    town.step("wait", "wait")
    shown = (town.state.agents.cues > 0).float()
    sigma = math.sqrt(chance * (1 - chance) / 4000)
    assert (shown.mean(1) - chance).abs().max() <= 4.5 * sigma
    town.step("wait", "wait")
    if 0 < chance < 1:
        both = shown * (town.state.agents.cues > 0)
        assert (both.mean() - chance**2).abs() < 4.5 * math.sqrt(chance**2 * (1 - chance**2) / 8000)
        assert (shown[0] * shown[1]).mean().sub(chance**2).abs() < 4.5 * math.sqrt(chance**2 * (1 - chance**2) / 4000)


def test_the_noise_of_different_cues_is_independent(scene):
    town = showing(scene, "looks_sad", "looks_dirty", num_envs=4000)
    town.set(mood=0.9, hygiene=0.1)
    town.step("wait", "wait")
    sad, dirty = (town.state.agents.cues >> bit & 1 for bit in (0, 1))
    expected = 0.10 * 0.95
    assert ((sad * dirty).float().mean() - expected).abs() < 4.5 * math.sqrt(expected * (1 - expected) / 8000)


def test_cues_follow_the_meters_of_the_same_step(scene):
    town = showing(scene, "looks_tired")
    town.set(0, energy=0.302)
    town.put(0, x=3)
    town.step("left", "wait")
    assert town.cues(0) == {"looks_tired"}


def seen_cues(town, agent=0, slot=0):
    """Cues of the nearest visible other, without a family flag."""
    size = 3 + (town.rules.family_size > 1) + len(town.rules.action_names) + len(town.rules.cues)
    entry = town.observe(agent)["others"][slot * size : (slot + 1) * size]
    bits = entry[size - len(town.rules.cues) :]
    return {name for name, bit in zip(town.rules.cues, bits, strict=True) if bit}


def grouped(scene, cues, **changes):
    rules = dataclasses.replace(still("L6", **changes), cues=cues)
    town = scene(rules=rules, num_agents=4, options={"observation": "groups"})
    town.set(all=0.5)
    return town


@pytest.mark.parametrize("distance", range(1, 8))
def test_a_cue_is_seen_within_its_radius(scene, distance):
    cues = {"far": Cue(any=["energy < 0.3"], radius=5), "near": Cue(any=["energy < 0.3"], radius=2)}
    town = grouped(scene, cues, sight=7)
    town.put(alive=False)
    town.put(slice(0, 2), alive=True)
    town.put(1, x=min(distance, 4), y=max(0, distance - 4))
    town.set(1, energy=0.1)
    town.step("wait", "wait", "wait", "wait")
    expected = ({"near"} if distance <= 2 else set()) | ({"far"} if distance <= 5 else set())
    assert seen_cues(town) == expected


def test_a_family_cue_is_seen_by_the_family_only(scene):
    cues = {"secret": Cue(any=["energy < 0.3"], family_only=True), "plain": Cue(any=["energy < 0.3"])}
    town = grouped(scene, cues, family_size=2)
    for agent in range(4):
        town.put(agent, x=agent * 2)
    town.set(1, energy=0.1)
    town.step("wait", "wait", "wait", "wait")
    assert town.cues(1) == {"secret", "plain"}
    assert seen_cues(town, 0) == {"secret", "plain"}
    assert seen_cues(town, 2) == {"plain"}


def test_the_dead_show_nothing(scene):
    town = showing(scene, "looks_sick", "at_home")
    town.place("Bed", 0, 0)
    town.step("wait", "wait")
    assert town.cues(0) == {"at_home"}
    town.set(0, health=0.0)
    town.step("wait", "wait")
    assert not town.state.agents.alive[0].item()
    assert town.cues(0) == set()
    assert town.cues(1) == {"at_home"}


# --- families, messages, traits ---------------------------------------------------------------------------------------


@pytest.fixture
def families(scene):
    return scene("L8", num_agents=6, options={"observation": "groups"}, family_size=3, symbols=4)


def messages(town, agent):
    """Symbols on the boards of the others in the family."""
    rows = torch.tensor(town.observe(agent)["messages"]).reshape(-1, town.rules.symbols)
    assert (rows.sum(1) == 1).all()
    return rows.argmax(1).tolist()


def test_messages_reach_only_the_family(families):
    families.step(*[("wait", symbol) for symbol in (1, 2, 3, 0, 0, 0)])
    assert [messages(families, agent) for agent in range(6)] == [[2, 3], [3, 1], [1, 2], [0, 0], [0, 0], [0, 0]]
    families.step(*[("wait", symbol) for symbol in (1, 2, 3, 3, 1, 2)])
    assert [messages(families, agent) for agent in range(3)] == [[2, 3], [3, 1], [1, 2]]
    assert [messages(families, agent) for agent in (3, 4, 5)] == [[1, 2], [2, 3], [3, 1]]


def test_a_message_is_read_from_any_distance(families):
    families.put(1, x=7, y=7)
    families.step(*[("wait", symbol) for symbol in (0, 2, 0, 0, 0, 0)])
    assert messages(families, 0) == [2, 0]


def test_posting_does_not_depend_on_a_legal_action(families):
    families.step(*[("interact", 3)] * 6)
    assert (families.state.agents.symbol == 3).all()
    assert (families.state.tally.illegal == 1).all()


def test_the_dead_send_no_messages(families):
    families.step(*[("wait", 3)] * 6)
    families.set(1, energy=0.001)
    families.step(*[("wait", 2)] * 6)
    assert messages(families, 0) == [0, 2]
    families.step(*[("wait", 1)] * 6)
    assert messages(families, 0) == [0, 1]


def test_boards_are_empty_in_the_morning_of_a_new_world(families):
    families.step(*[("wait", 3)] * 6)
    families.set(energy=0.001)
    assert families.step(*[("wait", 3)] * 6)["terminated"].item()
    assert not families.state.agents.symbol.any()


def test_families_are_neighbors_in_number(scene):
    town = scene("L7", num_agents=4, options={"observation": "groups"})
    for agent, x in enumerate((0, 2, 3, 5)):
        town.put(agent, x=x)
    size = 3 + 1 + 8 + 12
    family = [[town.observe(agent)["others"][slot * size + 3] for slot in range(3)] for agent in range(4)]
    assert family == [[1, 0, 0], [0, 1, 0], [0, 1, 0], [1, 0, 0]]


def test_traits_are_drawn_at_birth_and_kept(scene):
    town = scene("L7", num_agents=4, num_envs=500)
    traits = town.state.traits.clone()
    assert traits.shape == (4, 4, 500)
    assert traits.min() >= 0
    assert traits.max() <= 1
    assert (traits.mean(-1) - 0.5).abs().max() < 4.5 * math.sqrt(1 / 12 / 500)
    assert torch.corrcoef(traits.flatten(0, 1)).fill_diagonal_(0).abs().max() < 0.2
    town.step("wait", "wait", "wait", "wait")
    assert torch.equal(town.state.traits, traits)
    town.set(energy=0.0)
    town.step("wait", "wait", "wait", "wait")
    assert not (town.state.traits == traits).any()


# --- births -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["L0", "L1", "L2", "L3", "L4", "L5", "L6", "L7", "L8"])
def test_places_and_agents_begin_on_cells_of_their_own(scene, level):
    agents = load_level(level).num_agents
    town = scene(level, num_agents=agents, num_envs=300)
    town.env.reset()
    rules, layout = town.rules, town.state.layout
    present = layout.x[:, 0] >= 0
    assert present.sum() == len(rules.deployed)
    x, y = (torch.cat([mine, there[present]]) for mine, there in zip(town.state.agents[:2], layout, strict=True))
    assert x.min() >= 0
    assert y.min() >= 0
    assert x.max() < rules.width
    assert y.max() < rules.height
    cells = (y * rules.width + x).sort(0).values
    assert (cells.diff(dim=0) > 0).all()
    assert len({tuple(world) for world in (y * rules.width + x).T.tolist()}) > 250 or rules.width == 3


def test_a_full_map_holds_everyone(scene):
    town = scene(num_agents=50, num_envs=20)
    town.env.reset()
    cells = torch.cat([8 * town.state.agents.y + town.state.agents.x, 8 * town.state.layout.y + town.state.layout.x])
    assert torch.equal(cells.sort(0).values, torch.arange(64, dtype=cells.dtype).unsqueeze(1).expand(64, 20))


def test_places_move_with_every_episode(scene):
    town = scene()
    town.env.reset()
    before = town.state.layout.x.clone(), town.state.layout.y.clone()
    town.set(energy=0.001)
    assert town.step("wait")["done"].item()
    assert not (torch.equal(before[0], town.state.layout.x) and torch.equal(before[1], town.state.layout.y))


def test_given_places_stay(scene):
    places = {"Bed": {"positions": [[1, 2]]}, "Job": {"count": 2, "positions": [[4, 0], [0, 4]]}}
    town = scene("L1", affordances=places, num_envs=200)
    town.env.reset()
    at = {kind: town.rules.kinds.index(kind) * 2 for kind in places}
    assert town.rules.places_per_kind == 2
    layout = town.state.layout
    assert (layout.x[at["Bed"]] == 1).all()
    assert (layout.y[at["Bed"]] == 2).all()
    assert (layout.x[at["Bed"] + 1] < 0).all()
    assert (layout.x[at["Job"]] == 4).all()
    assert (layout.y[at["Job"] + 1] == 4).all()
    x, y = town.state.agents.x, town.state.agents.y
    assert (x.unique().tolist(), y.unique().tolist()) == (list(range(5)), list(range(5)))


# --- large numbers ----------------------------------------------------------------------------------------------------


def test_sixty_four_agents_live_on_a_large_map():
    env = TownEnv(2, level="L7", num_agents=64, rules={"width": 50, "height": 50})
    assert env.rollout(3)["agents", "observation"].shape[:3] == (2, 3, 64)


def test_more_cues_than_can_be_distinguished_are_refused():
    cues = {f"cue{number:02}": Cue(any=["energy > 0.9"]) for number in range(25)}
    with pytest.raises(ValueError, match="25 cues: at most 24"):
        TownEnv(1, rules=dataclasses.replace(load_level("L6"), cues=cues))


def test_places_move_now_and_then_and_all_at_once(scene):
    town = scene("L2", num_envs=64, moves_every=3)
    town.env.reset()

    def cells():
        return torch.stack((town.state.layout.x, town.state.layout.y)).clone()

    seen = [cells()]
    for _ in range(6):
        town.step("wait")
        seen.append(cells())
    stays = [torch.equal(before, after) for before, after in itertools.pairwise(seen)]
    assert stays == [True, True, False, True, True, False]
    there = seen[3][0] >= 0
    assert torch.equal(there, seen[0][0] >= 0)  # the same kinds are there
    assert (seen[3][:, there] < 5).all()
    moved = (seen[3] != seen[0]).any(0)[there].float().mean()
    assert moved > 0.9  # a 25th of them lands where it was
    cell = (seen[3][0] * 5 + seen[3][1]).T  # no two places on a cell
    assert all(len(set(row)) == 3 for row in (row[row >= 0].tolist() for row in cell))


# --- places that refuse ---------------------------------------------------------------------------------------------


def test_a_place_that_requires_others_works_only_with_them(scene):
    """A step in the park gives 0.05 fitness; the visitor loses 0.002, and pays 0.005 of energy for the asking."""
    park = {"others_required": 1, "duration": 3, "price": 0.0}
    town = scene("L3", num_agents=3, affordances={"Park": park}, multi_tick=True)
    town.place("Park", 1, 1)
    town.set(all=0.5)
    town.put(0, x=1, y=1)
    town.step("interact", "wait", "wait")
    assert town.meters()["fitness"] == pytest.approx(0.5 - 0.002)
    assert town.state.agents.refused[:, 0].tolist() == [True, False, False]
    assert [value[0, 0].item() for value in (town.state.tally.unpaid, town.state.tally.contested)] == [0, 0]
    town.put(1, x=1, y=1)  # who is there need not ask
    town.step("interact", "wait", "wait")
    assert town.meters()["fitness"] == pytest.approx(0.5 - 2 * 0.002 + 0.05)
    town.put(1, alive=False)
    town.step("interact", "wait", "wait")
    assert town.state.agents.refused[0, 0]


def test_of_places_that_look_the_same_the_first_ones_work_and_no_agent_sees_which(scene):
    change = {"Bed": {"count": 3, "working": 1, "price": 0.0}}
    town = scene("L3", affordances=change)
    cells = [(1, 1), (3, 3), (5, 5)]
    for which, (x, y) in enumerate(cells):
        town.place("Bed", x, y, which)
    town.set(all=0.5)
    served = []
    for x, y in cells:
        town.put(x=x, y=y)
        assert "interact" in town.mask()
        town.step("interact")
        served.append(not town.state.agents.refused.item())
    assert served == [True, False, False]


def test_places_trade_their_cells_within_their_kind_at_random_moments(scene):
    kinds = {"Bed": {"count": 3, "working": 1}, "Job": {}, "HomeMeal": {"count": 2, "working": 1}}
    town = scene("L2", num_envs=4096, affordances=kinds, trades_every=4)
    town.env.reset()

    def cells():
        return (town.state.layout.y * 5 + town.state.layout.x).unflatten(0, (-1, 3)).clone()

    before = cells()
    town.step("wait")
    after = cells()
    assert torch.equal(before.sort(1).values, after.sort(1).values)  # the same cells for each kind
    traded = (before != after).any(1)
    bed, meal, job = (town.rules.kinds.index(kind) for kind in ("Bed", "HomeMeal", "Job"))
    assert traded[bed].float().mean() == pytest.approx(0.25, abs=0.03)
    assert torch.equal(traded[bed], traded[meal])
    assert not traded[job].any()
    assert torch.equal(before[meal, :2][:, traded[bed]], after[meal, :2].flip(0)[:, traded[bed]])
    assert (before[bed][:, traded[bed]] != after[bed][:, traded[bed]]).all()  # another one works
    one_on = (before[bed, 1] == after[bed, 0])[traded[bed]].float().mean()
    assert one_on == pytest.approx(0.5, abs=0.06)  # or two on


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"moves_every": 0}, "moves_every is 0: give at least 1 step"),
        ({"trades_every": 0}, "trades_every is 0: give at least 1 step"),
        ({"affordances": {"Bed": {"others_required": -1}}}, "others_required is -1: give 0 or more agents"),
        ({"affordances": {"Bed": {"working": 2}}}, "working is 2 of 1 places: give no more than there are"),
        ({"affordances": {"Bed": {"working": 1, "positions": [[0, 0]]}}}, "no positions, or everybody knows which"),
    ],
)
def test_places_that_refuse_must_be_possible(scene, changes, words):
    with pytest.raises(ValueError, match=words):
        scene("L2", **changes)


def test_slots_are_known_by_their_kind_and_by_whether_they_hold_a_place():
    """Also by the way to them, from one edge of the widest map to the other."""
    rules = load_level("L4")
    slots = torch.arange(rules.num_slots + 1, dtype=torch.int32)
    expected = [slot // rules.places_per_kind for slot in range(rules.num_slots + 1)]
    assert kind_of(slots, rules).tolist() == expected and kind_of(slots, rules).dtype == torch.int32
    assert expected[-1] == len(rules.kinds)  # which is none
    edge = LARGEST_SIDE - 1
    cells, own = torch.tensor([0, edge, ABSENT]), torch.tensor([[0], [edge]])
    for way in (cells, *(cells - own)):
        assert holds_place(way).tolist() == [True, True, False]
