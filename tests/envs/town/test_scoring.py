"""What steps are to the traits of a character, on states written by hand."""

import pytest
import torch

from envs import TownEnv
from envs.town.state import TRAITS


def felt(step, agent=0, world=0):
    """The drives of a step by trait."""
    return dict(zip(TRAITS, step["agents", "drives"][world, agent].tolist(), strict=True))


@pytest.fixture
def town(scene):
    """Two agents of one family at noon, who lack nothing."""

    def make(**options):
        place = scene("L7", num_agents=2, options={"drives": True, **options}, moves_every=None, capacity=2)
        place.set(all=0.8)
        place.at_hour(12)
        return place

    return make


def test_greed_is_the_change_of_money(town):
    place = town()
    place.place("Job", 0, 0)
    step = place.step("interact", "wait")
    assert felt(step)["greed"] == pytest.approx(0.05625)  # of content.yaml, each step of a visit
    assert felt(step, 1)["greed"] == 0
    place.clear()
    place.place("Recreation", 0, 0)
    assert felt(place.step("interact", "wait"))["greed"] == pytest.approx(-0.03)


def test_agreeableness_is_the_change_of_the_meter_social_over_the_family(town):
    place = town()
    place.place("Park", 0, 0)
    step = place.step("interact", "wait")
    rate = 0.006 * place.rules.depletion
    family = ((0.0375 - rate) - rate) / 2
    assert felt(step)["agreeableness"] == pytest.approx(family, abs=1e-6)
    assert felt(step, 1)["agreeableness"] == pytest.approx(family, abs=1e-6)


def test_who_has_no_family_feels_for_itself(scene):
    place = scene("L6", num_agents=2, options={"drives": True}, moves_every=None)
    place.set(all=0.8)
    place.at_hour(12)
    place.place("Park", 0, 0)
    place.put(1, x=3)
    step = place.step("interact", "wait")
    rate = 0.006 * place.rules.depletion
    assert felt(step)["agreeableness"] == pytest.approx(0.0375 - rate, abs=1e-6)
    assert felt(step, 1)["agreeableness"] == pytest.approx(-rate, abs=1e-6)


def test_curiosity_is_the_first_use_of_a_kind_of_place_in_a_life(town):
    place = town()
    place.place("Bed", 0, 0)
    assert felt(place.step("wait", "wait"))["curiosity"] == 0
    assert [felt(place.step("interact", "wait"))["curiosity"] for _ in range(3)] == [1, 0, 0]
    place.clear()
    place.place("Park", 0, 0)
    place.put(1, x=3)
    step = place.step("interact", "interact")
    assert felt(step)["curiosity"] == 1
    assert felt(step, 1)["curiosity"] == 0, "there is nothing where the other stands"
    place.set(energy=0.0)
    place.step("wait", "wait")  # everybody dies, and others are born
    place.clear()
    place.set(all=0.8)
    place.at_hour(12)
    place.place("Park", 0, 0)
    assert felt(place.step("interact", "wait"))["curiosity"] == 1


def test_a_place_that_refuses_is_not_known_yet(town):
    place = town()
    place.place("Recreation", 0, 0)
    place.set(money=0.0)
    assert felt(place.step("interact", "wait"))["curiosity"] == 0
    place.set(money=0.5)
    assert felt(place.step("interact", "wait"))["curiosity"] == 1


def test_neuroticism_is_the_depth_of_the_lowest_fatal_meter(town):
    place = town()
    place.set(0, energy=0.2, health=0.25, mood=0.0)
    step = place.step("wait", "wait")
    energy = place.meters(0)["energy"]
    assert energy < 0.2, "it runs down in the step"
    assert felt(step)["neuroticism"] == pytest.approx(-(0.3 - energy) / 0.3, abs=1e-6)
    assert felt(step, 1)["neuroticism"] == 0
    place.set(0, energy=0.0)
    assert felt(place.step("wait", "wait"))["neuroticism"] == -1, "the step in which it dies"
    assert set(felt(place.step("wait", "wait")).values()) == {0.0}, "the dead feel nothing"


def test_the_character_is_shown_beside_and_neither_is_an_observation(town):
    place, plain = town(traits={"greed": 0.25}), TownEnv(1, level="L7", num_agents=2)
    shown = place.observe(0)
    assert shown["character"] == place.state.traits[:, 0, 0].tolist()
    assert shown["character"][1] == 0.25
    assert shown["drives"] == [0.0] * 4
    assert place.env.observation_spec["agents", "observation"] == plain.observation_spec["agents", "observation"]
    assert not {"drives", "character"} & set(plain.observation_spec["agents"].keys())
    assert "money" not in plain.observation_spec["episode"].keys()


def test_drives_change_nothing_that_is_played():
    one, other = (TownEnv(5, level="L8", seed=2, drives=each) for each in (False, True))
    first, second = one.reset(), other.reset()
    torch.manual_seed(0)
    for _ in range(60):
        first = one.rand_action(first)
        second["agents", "action"] = first["agents", "action"]
        a, first = one.step_and_maybe_reset(first)
        b, second = other.step_and_maybe_reset(second)
        assert torch.equal(a["next", "agents", "observation"], b["next", "agents", "observation"])
        assert torch.equal(a["next", "agents", "reward"], b["next", "agents", "reward"])
    assert (b["next", "agents", "drives"] != 0).any()


def test_possessions_are_statistics_of_the_episode(town):
    place = town()
    place.set(0, money=0.2)
    place.set(1, money=0.6)
    assert place.step("wait", "wait")["episode", "money"].item() == pytest.approx(0.4)
