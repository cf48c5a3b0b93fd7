"""Towns take people from outside, from their next birth on, and a hidden character leads residents: towns by hand."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import yaml
from tensordict import TensorDict
from torch._dynamo.utils import counters

from envs import TownEnv
from envs.town.experts import STAY, YESTERDAY, PlanningPlayer, SearchConfig
from envs.town.levels import HERE, load_level
from envs.town.people import HAPPY, SAD
from envs.town.rules import INTERACT, WAIT
from envs.town.state import TRAITS

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


def test_people_are_saved_with_the_worlds():
    env, other = town(), town()
    env.set_people({"greed": 0.75}, money=0.1)
    other.load_state_dict(env.state_dict())
    for each in (env, other):
        each.reset()
    assert torch.equal(other.state.traits, env.state.traits)
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


# --- residents --------------------------------------------------------------------------------------------------------


PEOPLE = {
    "bon_vivant": {"hours": [16, 20], "happy": "Bar", "sad": "Park", "errands": ["Bed"], "speed": 1},
    "runner": {"errands": ["Bar", "Park"], "speed": 3},
    "early_bird": {"early": 0.6},
    "liar": {"lies": True},
    "stranger": {"errands": ["Park"], "held_out": True},
}
PLACES = {
    "Bed": {"tick_price": 0.0, "price": 0.0},
    "Bar": {"hours": [0, 24], "duration": 1, "tick_price": 0.0, "price": 0.0},
    "Park": {"hours": [0, 24], "duration": 1},
}


def town_of(scene, who, cells, **changes):
    """Two learners and a resident of one kind in the upper left corner, with places at ``cells``."""
    town = scene(
        "L3",
        num_agents=2,
        num_residents=1,
        characters={who: PEOPLE[who]},
        cast="all",
        affordances=PLACES,
        clock=True,
        multi_tick=True,
        cues=["looks_happy", "looks_sad"],
        **changes,
    )
    for kind, cell in cells.items():
        town.place(kind, *cell)
    town.set(all=0.9)
    town.state.residents.happy.fill_(True)
    return town


def walk(town, steps):
    """Cells of the resident after each of so many steps."""
    cells = []
    for _ in range(steps):
        town.step("wait", "wait")
        cells.append(town.where(2))
    return cells


@pytest.mark.parametrize(("happy", "cells"), [(True, [(1, 0), (2, 0), (3, 0)]), (False, [(0, 1), (0, 2), (0, 3)])])
def test_its_mood_decides_where_it_goes_at_its_hour(scene, happy, cells):
    town = town_of(scene, "bon_vivant", {"Bar": (5, 0), "Park": (0, 5), "Bed": (0, 0)})
    town.state.residents.happy.fill_(happy)
    town.at_hour(14)
    assert walk(town, 2) == [(0, 0), (0, 0)]  # in bed until 16
    assert walk(town, 3) == cells
    town.at_hour(20)
    assert walk(town, 1)[0] == cells[1]  # home again


def test_it_runs_its_errands_in_turn_and_as_fast_as_it_can(scene):
    """From (0, 0) three cells a step to the bar at (5, 1): across first, then down; a visit; and on to the park."""
    town = town_of(scene, "runner", {"Bar": (5, 1), "Park": (5, 3)})
    assert walk(town, 4) == [(3, 0), (5, 1), (5, 1), (5, 3)]
    assert town.state.tally.visits[2].item() == 1
    assert walk(town, 2) == [(5, 3), (5, 1)]
    assert town.state.tally.visits[:, 0].tolist() == [0, 0, 2]


@pytest.mark.parametrize(("table", "eat"), [((3, 1), 1.0), ((0, 1), 0.25)])
def test_a_rival_leaves_one_table_free(table, eat):
    """Happy, it goes to the one at (0, 1). Who is there too must draw the seat twice in the two hours to eat."""
    env = TownEnv(256, level="others_rival", seed=3)
    root = env.reset()
    state = env.state
    state.residents.character.fill_(list(env.rules.characters).index("treats_itself"))
    state.residents.happy.fill_(True)
    state.step.fill_(15)
    state.agents.x[0], state.agents.y[0] = table
    for _ in range(4):
        interact = torch.full(env.full_action_spec[env.action_key].shape, INTERACT)
        root = env.step_and_maybe_reset(root.set(env.action_key, interact))[1]
    assert (env.state.agents.x[1] == 0).all()
    satiation = env.state.meters[env.rules.meter_names.index("satiation"), 0]  # 0.5 before, 0.12 less by now
    assert torch.isclose(satiation, torch.tensor(0.38), atol=1e-4).logical_or(satiation > 0.9).all()
    assert (satiation > 0.9).float().mean().item() == pytest.approx(eat, abs=0.1)


def test_a_friends_errand_of_the_evening_is_one_of_three_places():
    """Its character and mood say which; the six kinds that one can train with and the three that are held back are all
    nine pairs of places.
    """
    env = TownEnv(18, level="others_errands", rules={"cast": "all"}, seed=3)
    root = env.reset()
    kinds = env.rules.characters
    assert len({(kind.happy, kind.sad) for kind in kinds.values()}) == len(kinds) == 9
    held_out = {(kind.happy, kind.sad) for kind in kinds.values() if kind.held_out}
    assert held_out == {("Bar", "Park"), ("Park", "HomeMeal"), ("HomeMeal", "Bar")}
    state, where = env.state, {"Bar": (0, 0), "Park": (2, 2), "HomeMeal": (4, 0)}
    state.residents.character.copy_(torch.arange(9).repeat(2))
    state.residents.happy.copy_(torch.arange(18) < 9)
    state.step.fill_(16)
    wait = torch.full(env.full_action_spec[env.action_key].shape, WAIT)
    env.step_and_maybe_reset(root.set(env.action_key, wait))
    found = zip(env.state.agents.x[1].tolist(), env.state.agents.y[1].tolist(), strict=True)
    expected = [where[kind.happy] for kind in kinds.values()] + [where[kind.sad] for kind in kinds.values()]
    assert list(found) == expected


def test_it_sees_to_a_need_earlier_than_others_would(scene):
    town = town_of(scene, "early_bird", {"Bar": (5, 0), "Bed": (0, 5)})
    assert walk(town, 1) == [(0, 0)]  # nothing is below 0.6
    town.set(2, energy=0.55)
    assert walk(town, 1) == [(0, 1)]
    town.set(2, energy=0.9, social=0.5)
    assert walk(town, 1) == [(1, 1)]


def test_the_kinds_of_the_content_live_in_a_town_with_all_places():
    people = yaml.safe_load((HERE / "content.yaml").read_text())["characters"]
    rules = {"num_residents": 6, "characters": list(people), "cast": "all"}
    env = TownEnv(32, level="L6", rules=rules, seed=3)
    env.rollout(40, break_when_any_done=False)
    assert {character.held_out for character in env.rules.characters.values()} == {True, False}
    been = (env.state.tally.visits[4:] > 0).float().mean()
    assert been > 0.3  # they live: most have been somewhere
    assert (env.state.tally.illegal[4:] < 40).all()


def test_it_holds_seats_like_anybody_and_never_dies(scene):
    town = town_of(scene, "runner", {"Bar": (0, 0)}, capacity=1)
    town.set(2, all=0.0)
    refused = torch.zeros(3)
    for _ in range(40):
        town.step("interact", "wait")
        refused += town.state.agents.refused[:, 0]
        town.state.tally.visits[2] = 0  # to the bar again
        town.set(0, all=0.9)
    assert refused[0] > 5
    assert refused[2] > 5
    assert town.state.agents.alive[2]


def test_who_lies_shows_the_opposite_of_what_it_feels(scene):
    for who, shown in (("liar", "looks_sad"), ("runner", "looks_happy")):
        town = town_of(scene, who, {})
        for _ in range(20):  # looks_sad is reliable in 85 of 100
            town.step("wait", "wait")
            assert town.state.meters[4, 2].item() == pytest.approx(HAPPY)
            assert town.cues(2) <= {shown} or who == "runner"
        seen = [town.cues(2) for _ in range(20) if town.step("wait", "wait") is not None]
        assert {shown} in seen


@pytest.mark.parametrize(("who", "lies"), [("teacher", False), ("trickster", True)])
def test_a_teacher_shows_whether_its_pupil_comes_nearer(scene, who, lies):
    """The pupil is at (2, 2), the kitchen at (4, 1). Who lies shows the opposite."""
    people = load_level("others_teacher").characters
    assert people[who].lies == lies
    town = scene("others_teacher", rules={"cast": "all"})
    town.state.residents.character.fill_(list(people).index(who))
    town.place("HomeMeal", 4, 1)
    town.put(0, x=2, y=2)
    way = {"left": False, "right": True, "wait": False, "up": True}  # waiting two cells away is not coming nearer
    way = [*way.items(), ("up", False), ("up", False)]  # past it, and against the wall
    way += [("down", True), ("right", True), ("right", True), ("interact", True), ("right", False)]
    for step, (action, nearer) in enumerate(way):
        town.step(action)
        assert (town.cues(1) == {"looks_happy"}) == (nearer ^ lies), (step, action)
    assert town.state.tally.visits[0].item() == 1
    town.place("HomeMeal", 6, 1)  # where it may be on another day
    town.step("right")
    assert (town.cues(1) == {"looks_happy"}) == (not lies)


def test_teachers_share_the_learners_and_others_show_their_mood(scene):
    """Of three residents the first two teach, one learner each, and the last has the first learner again."""
    people = {"teacher": {"teaches": "Park"}, "onlooker": {}}
    town = scene(
        "L3", num_agents=2, num_residents=3, characters=people, affordances=PLACES, cues=["looks_happy"], max_cues=1
    )
    town.state.residents.character[:, 0] = torch.tensor([0, 0, 0])
    town.state.residents.happy.fill_(False)
    for action in ("right", "left", "down", "up"):
        town.step(action, action)
        assert [town.cues(who) for who in (2, 3, 4)] == [set()] * 3, "there is no park"
    town.place("Park", 5, 5)
    town.step("right", "left")
    assert [town.cues(who) for who in (2, 3, 4)] == [{"looks_happy"}, set(), {"looks_happy"}]
    town.state.residents.happy[0] = True
    town.state.agents.alive[0] = False
    town.step("wait", "right")
    assert [town.cues(who) for who in (2, 3, 4)] == [{"looks_happy"}, {"looks_happy"}, set()], "nobody to teach"
    town.state.residents.character.fill_(1)
    town.state.residents.happy[0] = False
    town.step("wait", "right")
    assert [town.cues(who) for who in (2, 3, 4)] == [set()] * 3
    town.state.residents.happy[1] = True
    town.step("wait", "wait")
    assert [town.cues(who) for who in (2, 3, 4)] == [set(), {"looks_happy"}, set()]


def test_a_teacher_means_the_place_that_works():
    """Of three kitchens that look the same one serves, now this and now that."""
    changes = {
        "affordances": {"HomeMeal": {"count": 3, "working": 1, "duration": 1}},
        "characters": {"teacher": {"errands": []}},
        "trades_every": 8,
    }
    env = TownEnv(64, level="others_teacher", rules={**changes, "moves_every": None, "width": 3, "height": 3}, seed=3)
    root, seen = env.reset(), {True: 0, False: 0}
    for _ in range(60):
        before = torch.stack(env.state.layout)
        root = env.step_and_maybe_reset(env.rand_action(root))[1]
        agents = env.state.agents
        asked = (agents.action[0] == INTERACT) & (torch.stack(env.state.layout) == before).flatten(0, 1).all(0)
        served, warm = ~agents.refused[0, asked], agents.cues[1, asked] > 0
        assert torch.equal(served, warm)
        for met in served.tolist():
            seen[met] += 1
    assert min(seen.values()) > 20


def test_a_new_mood_comes_at_midnight_only(scene):
    town = town_of(scene, "runner", {})
    env = TownEnv(256, level="others_tonight", seed=3)
    env.reset()
    moods = [env.state.residents.happy.clone()]
    for _ in range(48):
        env.rand_step(env.fake_tensordict())
        moods.append(env.state.residents.happy.clone())
    changes = [step for step in range(48) if not torch.equal(moods[step], moods[step + 1])]
    assert changes == [23, 47]
    assert moods[0].float().mean().item() == pytest.approx(0.5, abs=0.12)
    assert (moods[0] ^ moods[24]).float().mean().item() == pytest.approx(0.5, abs=0.12)
    felt = env.state.meters[4, 1]
    assert torch.equal(felt, torch.where(env.state.residents.happy[0], HAPPY, SAD))
    assert town.state.residents.happy.shape == (1, 1)


@pytest.mark.parametrize(("cast", "drawn"), [("train", {0, 1}), ("held_out", {2, 3, 4}), ("all", {0, 1, 2, 3, 4})])
def test_each_episode_draws_characters_from_its_cast(cast, drawn):
    env = TownEnv(512, level="others_tonight", rules={"cast": cast}, seed=1)
    env.reset()
    count = env.state.residents.character.flatten().bincount(minlength=5)
    assert set(count.nonzero().flatten().tolist()) == drawn
    assert count[list(drawn)].min() > 512 / len(drawn) * 0.7


def test_learners_alone_are_in_the_tensordict_and_residents_are_others(scene):
    env = TownEnv(
        4, num_agents=2, level="others_tonight", rules={"num_residents": 3}, privileged=True, observation="groups"
    )
    root = env.rand_step(env.reset())
    agents = root["next", "agents"]
    assert root["agents", "action"].shape == agents["reward"].shape[:2] == agents["alive"].shape == (4, 2)
    assert agents["others_number"].shape == (4, 2, 4)
    assert env.full_observation_spec["agents", "others_number"].space.n == 6
    assert set(agents["others_number"][0, 0].tolist()) == {1, 2, 3, 4}  # all within sight
    assert agents["privileged", "others_meters"].shape == (4, 2, 4, 8)


def test_a_label_says_what_a_resident_is_after_long_before_it_goes(scene):
    """The bar gives social (meter 5), the park here fitness (7)."""
    env = TownEnv(64, level="others_tonight", privileged=True, seed=2)
    need = env.reset()["agents", "privileged", "others_need"][:, 0, 0]
    character, happy = (value[0] for value in env.state.residents)
    assert torch.equal(need, torch.where(happy ^ (character == 1), 5, 7))


def test_rewards_lives_and_ends_are_the_learners(scene):
    town = town_of(scene, "runner", {}, max_steps=4, reward="constant")
    town.set(0, energy=0.0)
    played = town.step("wait", "wait")
    assert played["agents", "reward"][0, :, 0].tolist() == [1.0, 1.0]
    assert not played["done"].item()
    town.set(1, energy=0.0)
    played = town.step("wait", "wait")
    assert played["terminated"].item()  # the resident's life does not count
    assert played["episode", "lifetime"].item() == 1.5


def test_the_window_shows_residents(scene):
    town = scene(
        "L4",
        num_residents=1,
        characters={"runner": PEOPLE["runner"]},
        affordances=PLACES,
        options={"observation": "groups"},
    )
    town.put(1, x=2, y=1)
    others = torch.tensor(town.observe()["window"])[-2]
    assert others.nonzero().tolist() == [[3, 4]]  # two to the right and one down of the middle


def test_what_is_expected_of_residents_is_imagined(scene):
    """Happy, it will be in the bar at (0, 1), not in the park at (3, 1): a planner must know its mood."""
    env = TownEnv(1, level="others_tonight", seed=0)
    env.reset()
    env.state.residents.character.fill_(0)
    env.state.residents.happy.fill_(True)
    env.state.step.fill_(36)
    env.state.agents.x.fill_(2)
    env.state.agents.y.fill_(1)
    places = {"bar": env.rules.kinds.index("Bar"), "park": env.rules.kinds.index("Park")}

    def gains(expected):
        player = PlanningPlayer(env, SearchConfig(residents=expected, horizon=12))
        values = player.values(env.state)[0].tolist()
        return [values[player.slots.tolist().index(kind * env.rules.places_per_kind)] for kind in places.values()]

    for expected, favorite in ((None, 0), ("brooder", 1), ("walker", 1), ("barfly", 0)):
        bar, park = gains(expected)
        assert (bar > park + 0.5) == (favorite == 0), expected
        assert (park > bar + 0.5) == (favorite == 1), expected
    assert gains(STAY)[0] == pytest.approx(gains(STAY)[1])


def test_yesterdays_mood_is_remembered():
    env = TownEnv(32, level="others_tonight", seed=0)
    player = PlanningPlayer(env, SearchConfig(residents=YESTERDAY, every=1000, horizon=1))
    root, first = env.reset(), env.state.residents.happy.clone()
    assert (player.believed(env.state).residents.character == len(env.rules.characters)).all()  # there was none
    for _ in range(25):
        root = env.step_and_maybe_reset(player(root))[1]
    player(root)
    believed = player.believed(env.state).residents
    assert torch.equal(believed.happy, first)
    assert not torch.equal(env.state.residents.happy, first)
    assert torch.equal(believed.character, env.state.residents.character)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cast": "held_out", "characters": ["brooder"]}, "no character is in the cast 'held_out'"),
        ({"num_residents": -1}, "num_residents is -1: it must not be negative"),
        ({"characters": ["nobody"]}, "character 'nobody' is unknown: use bon_vivant"),
        ({"characters": "all"}, "characters is 'all': give a list of characters"),
        ({"characters": {"techer": None}}, "character 'techer' is unknown .did you mean teacher..: use bon_vivant"),
        ({"characters": {"one": {"speed": 0}}}, "character one: speed is 0: give at least 1 cell"),
        ({"characters": {"one": {"hours": [20, 16]}}}, "an appointment at \\[20, 16\\]: give two hours"),
        ({"characters": {"one": {"errands": ["Gym"]}}}, "character one: affordance 'Gym' is unknown: use Bed, Bar"),
        ({"characters": {"one": {"teaches": "Gym"}}}, "character one: affordance 'Gym' is unknown: use Bed, Bar"),
        ({"num_agents": 2, "family_size": 2}, "residents belong to no family"),
    ],
)
def test_residents_must_be_possible(changes, words):
    with pytest.raises(ValueError, match=words):
        load_level("others_tonight", **changes)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["others_tonight", "others_teacher"])
def test_compiled_equals_eager_with_residents(level):
    games = []
    for compiled in (False, True):
        env = TownEnv(8, num_agents=2, level=level, seed=5, privileged=True, compile=compiled)
        root, played = env.reset(), []
        for turn in range(60):
            action = torch.full((8, 2), (turn * 7) % 6)
            step, root = env.step_and_maybe_reset(root.set(("agents", "action"), action))
            played.append(step)
        games.append(torch.stack(played))
    for key in games[0].keys(True, True):
        torch.testing.assert_close(games[0][key], games[1][key], msg=str(key))
