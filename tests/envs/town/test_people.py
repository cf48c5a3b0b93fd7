"""Towns take people from outside, from their next birth on, and nothing else changes by it."""

import dataclasses

import pytest
import torch
from tensordict import TensorDict
from torch._dynamo.utils import counters

from envs import TownEnv
from envs.town.levels import load_level
from envs.town.people import TRAITS

MONEY = 3
"""Row of the meter."""


def town(num_envs=3, **options):
    return TownEnv(num_envs, level="L7", num_agents=2, seed=4, **options)


def end(env, worlds):
    """Let everybody in these worlds die in the next step, in which all others wait."""
    env.state.meters[0, :, worlds] = 0.0
    wait = torch.full((env.num_envs, env.num_agents), env.rules.action_names.index("wait"))
    root = TensorDict({"agents": {"action": wait}}, batch_size=env.batch_size)
    env.step_and_maybe_reset(root)


def test_a_character_given_at_construction_is_everybodys_and_the_rest_is_drawn_as_before():
    plain, given = town(), town(traits={"greed": 0.25, "curiosity": 1.0})
    for env in (plain, given):
        env.reset()
    for name, drawn, born in zip(TRAITS, plain.state.traits, given.state.traits, strict=True):
        if name in ("greed", "curiosity"):
            assert (born == {"greed": 0.25, "curiosity": 1.0}[name]).all()
        else:
            assert torch.equal(born, drawn)
    assert (plain.state.traits != 0.25).all()


def test_without_people_given_a_seed_is_the_game_that_it_was():
    """Worked out by the version before: neuroticism of the first agent, and money, of three worlds."""
    env = town()
    env.reset()
    assert env.state.traits[0, 0].tolist() == pytest.approx(
        [0.4509311318397522, 0.9900094866752625, 0.8611031770706177]
    )
    assert (env.state.meters[MONEY] == 0.5).all()


def test_people_come_with_the_next_birth_of_each_world():
    env = town()
    env.reset()
    before = env.state.traits.clone()
    env.set_people({"agreeableness": torch.tensor([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])}, money=0.2)
    assert torch.equal(env.state.traits, before)
    end(env, worlds=1)
    row = env.state.traits[TRAITS.index("agreeableness")]
    assert row[:, 1].tolist() == pytest.approx([0.3, 0.4])
    assert torch.equal(row[:, [0, 2]], before[TRAITS.index("agreeableness")][:, [0, 2]])
    assert env.state.meters[MONEY, :, 1].tolist() == pytest.approx([0.7, 0.7])
    assert (env.state.meters[MONEY, :, [0, 2]] <= 0.5).all()
    env.reset()
    assert row.T.flatten().tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])


def test_what_is_not_given_stays_and_nan_is_drawn_again():
    env = town(traits={"greed": 0.9})
    env.set_people({"curiosity": 0.5})
    env.set_people(money=torch.tensor([0.8, 0.0]))
    env.reset()
    assert (env.state.traits[1] == 0.9).all()
    assert (env.state.traits[3] == 0.5).all()
    assert env.state.meters[MONEY].tolist() == [[1.0] * 3, [0.5] * 3], "nobody has more than 1.0"
    env.set_people({"greed": torch.nan})
    env.reset()
    assert (env.state.traits[1] != 0.9).all()


def test_residents_stay_who_they_are():
    plain, given = (TownEnv(4, level="others_tonight", seed=1, traits=each) for each in (None, {"greed": 0.5}))
    for env in (plain, given):
        env.set_people(money=0.1)
        env.reset()
    count = plain.rules.num_agents
    assert (given.state.traits[1, :count] == 0.5).all()
    assert torch.equal(given.state.traits[:, count:], plain.state.traits[:, count:])
    money = given.state.meters[given.rules.meter_names.index("money")]
    assert (money[count:] == given.rules.meters["money"].initial).all()
    assert (money[:count] > money[count:].max()).all()


def test_people_are_saved_with_the_worlds_and_older_towns_go_on():
    env, other = town(), town()
    env.set_people({"greed": 0.75}, money=0.1)
    other.load_state_dict(env.state_dict())
    for each in (env, other):
        each.reset()
    assert torch.equal(other.state.traits, env.state.traits)
    assert (other.state.traits[1] == 0.75).all()
    older = {name: value for name, value in town().state_dict().items() if "people" not in name}
    other.load_state_dict(older)
    other.reset()
    assert (other.state.traits[1] == 0.75).all()


def test_a_curriculums_next_stage_keeps_the_people():
    env = TownEnv(2, curriculum="depletion", traits={"greed": 0.75})
    env.set_people({"curiosity": 0.5})
    env.update_curriculum({"survival": torch.ones(200), "stage": torch.zeros(200), "complete": torch.ones(200)})
    assert env.curriculum.stage == 1
    env.reset()
    assert (env.state.traits[1] == 0.75).all()
    assert (env.state.traits[3] == 0.5).all()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"traits": {"lust": 0.5}}, "trait 'lust' is unknown: use neuroticism, greed"),
        ({"traits": {"greed": 1.5}}, "trait greed is 1.5: give a number in"),
        ({"traits": {"greed": "much"}}, "trait greed is 'much': give a number, or a tensor that fits"),
        ({"traits": {"greed": torch.zeros(5)}}, r"trait greed is of shape \(5,\)"),
        ({"traits": [0.5]}, r"traits are \[0\.5\]: give them by name"),
        ({"money": -0.1}, r"money is -0\.1: give a number in"),
        ({"money": torch.nan}, "money is nan: give a number in"),
    ],
)
def test_people_that_cannot_be(given, sentence):
    env = town()
    before = env.state_dict()
    with pytest.raises(ValueError, match=sentence):
        env.set_people(**given)
    assert all(torch.equal(value, before[name]) for name, value in env.state_dict().items())
    if "traits" in given:
        with pytest.raises(ValueError, match=sentence):
            town(**given)


def test_money_in_a_town_without():
    rules = load_level("L0")
    meters = {name: meter for name, meter in rules.meters.items() if name != "money"}
    rules = dataclasses.replace(rules, meters=meters, affordances={"Bed": rules.affordances["Bed"]}, deployed=["Bed"])
    env = TownEnv(2, rules=rules, traits={"greed": 0.5})
    env.reset()
    assert (env.state.traits[1] == 0.5).all()
    with pytest.raises(ValueError, match="has no meter money: leave money out"):
        env.set_people(money=0.1)


@pytest.mark.slow
def test_neither_people_nor_their_drives_make_a_graph_of_their_own():
    counters.clear()
    env = TownEnv(2, level="L7", num_agents=2, drives=True, compile={"backend": "eager"})
    root = env.reset()
    for step in range(3):
        env.set_people({"greed": 0.1 * step}, money=0.1 * step)
        root[env.action_key] = torch.full((2, 2), 5)
        _, root = env.step_and_maybe_reset(root)
        assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
