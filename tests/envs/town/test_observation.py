"""What agents see, number by number, on states written by hand; and what they must not see."""

from __future__ import annotations

import math

import pytest
import torch

from envs.town import LEVELS, load_level
from envs.town.observation import global_size, group_names

KINDS = ("Bed", "LuxuryBed", "Shower", "HomeMeal", "FastFood", "Doctor", "Hospital", "Therapist", "Recreation", "Bar")
KINDS += ("Job", "Labor", "Gym", "Park")
GROUPS = {"options": {"observation": "groups"}}
PRIVILEGED = {"options": {"observation": "groups", "privileged": True, "potential": True}}


def close(value, expected, tolerance=1e-6):
    assert value == pytest.approx(expected, abs=tolerance)


def one_hot(index, size):
    return [float(number == index) for number in range(size)]


@pytest.fixture
def town(scene):
    return scene(**GROUPS)


# --- about oneself ----------------------------------------------------------------------------------------------------


def test_own_meters(town):
    levels = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    town.state.meters[:, 0, 0] = torch.tensor(levels)
    close(town.observe()["meters"], levels)


@pytest.mark.parametrize(("x", "y", "expected"), [(0, 0, [0, 0]), (7, 4, [1, 1]), (3, 1, [3 / 7, 0.25])])
def test_position_is_a_share_of_the_map(scene, x, y, expected):
    town = scene(width=8, height=5, **GROUPS)
    town.put(x=x, y=y)
    close(town.observe()["position"], expected)


def test_a_map_one_cell_wide_has_a_position(scene):
    town = scene("L0", width=1, height=4, affordances={"Bed": {"positions": [[0, 0]]}}, **GROUPS)
    town.put(y=3)
    close(town.observe()["position"], [0, 1])


def test_the_place_underfoot(town):
    assert town.observe()["standing_on"] == one_hot(14, 15)
    for number, kind in enumerate(KINDS):
        town.clear()
        town.place(kind, 0, 0)
        town.place("Bed" if kind != "Bed" else "Bar", 1, 0)
        assert town.observe()["standing_on"] == one_hot(number, 15)


def test_any_place_of_a_kind_is_underfoot(scene):
    town = scene("L1", affordances={"Bed": {"count": 3}, "Job": {}}, **GROUPS)
    town.place("Bed", 4, 4, which=2)
    town.put(x=4, y=4)
    assert town.observe()["standing_on"] == one_hot(0, 15)


def test_progress_is_a_share_of_the_longest_visit(scene):
    town = scene("L5", **GROUPS)
    town.place("Bed", 0, 0)
    assert town.observe()["progress"] == [0.0]
    town.step("interact")
    town.step("interact")
    close(town.observe()["progress"], [2 / 8])


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, [0, 1, 0]), (6, [1, 0, 0.012]), (12, [0, -1, 0.024]), (24, [0, 1, 0.048]), (250, [0.5, -(0.75**0.5), 0.5])],
)
def test_the_hour_and_the_share_of_life_gone(town, step, expected):
    town.at_hour(step)
    close(town.observe()["time"], expected)


def test_the_last_action_and_whether_it_was_refused(town):
    assert town.observe()["previous_action"] == [*one_hot(5, 8), 0.0]
    town.place("Hospital", 0, 0)
    town.set(money=0.0)
    for action, seen, refused in [("meditate", 7, 0), ("interact", 4, 1), ("left", 5, 0), ("rest", 6, 0)]:
        town.step(action)
        assert town.observe()["previous_action"] == [*one_hot(seen, 8), float(refused)]


def test_a_lost_contest_is_felt(scene):
    town = scene("L6", num_agents=4, **GROUPS)
    town.place("Bed", 0, 0)
    town.step(*["interact"] * 4)
    felt = [town.observe(agent)["previous_action"] for agent in range(4)]
    assert sorted(last[-1] for last in felt) == [0, 1, 1, 1]
    assert all(last[4] == 1 for last in felt)


def test_own_character(scene):
    town = scene("L7", num_agents=2, **GROUPS)
    town.state.traits[:, 0, 0] = torch.tensor([0.1, 0.2, 0.3, 0.4])
    close(town.observe(0)["traits"], [0.1, 0.2, 0.3, 0.4])
    close(town.observe(1)["traits"], town.state.traits[:, 1, 0].tolist())


def test_the_potential_is_the_wellbeing_of_the_living(scene):
    town = scene("L2", num_agents=2, options={"potential": True})
    town.set(all=0.2, energy=0.4, satiation=0.9)
    town.put(1, alive=False)
    close(town.observe(0)["potential"], [0.6])
    close(town.observe(1)["potential"], [0.0])


def test_who_is_alive(scene):
    town = scene(num_agents=3)
    town.put(1, alive=False)
    assert [town.observe(agent)["alive"] for agent in range(3)] == [True, False, True]


# --- the map ----------------------------------------------------------------------------------------------------------


def test_the_map_shows_the_way_to_every_kind(scene):
    town = scene(width=8, height=5, **GROUPS)
    town.put(x=3, y=2)
    town.place("Bed", 7, 0)
    town.place("Park", 0, 2)
    town.place("Job", 3, 2)
    expected = torch.zeros(14, 3)
    expected[0] = torch.tensor([4 / 8, -2 / 5, 1])
    expected[13] = torch.tensor([-3 / 8, 0, 1])
    expected[10] = torch.tensor([0, 0, 1])
    close(town.observe()["map"], expected.flatten().tolist())


def test_the_map_shows_the_nearest_place_of_a_kind(scene):
    town = scene("L1", affordances={"Bed": {"count": 3}, "Job": {}}, **GROUPS)
    town.put(x=2, y=2)
    town.place("Bed", 0, 0, which=0)
    town.place("Bed", 4, 3, which=1)
    close(town.observe()["map"][:3], [2 / 5, 1 / 5, 1])
    town.place("Bed", 2, 1, which=2)
    close(town.observe()["map"][:3], [0, -1 / 5, 1])
    town.state.layout.x[:2], town.state.layout.y[:2] = -1000, -1000
    close(town.observe()["map"][:3], [0, -1 / 5, 1])
    close(town.observe()["map"][3:], [0] * 39)


def test_every_agent_has_its_own_map(scene):
    town = scene(num_agents=2, **GROUPS)
    town.place("Bed", 4, 4)
    town.put(1, x=5, y=4)
    close(town.observe(0)["map"][:3], [0.5, 0.5, 1])
    close(town.observe(1)["map"][:3], [-1 / 8, 0, 1])


# --- the window -------------------------------------------------------------------------------------------------------


def window(town, agent=0):
    """[rows, columns, channels]: kinds, other agent, wall."""
    side = 2 * town.rules.view + 1
    picture = torch.tensor(town.observe(agent)["window"])
    assert picture.shape == (len(town.rules.kinds) + 2, side, side)
    return picture.permute(1, 2, 0)


@pytest.fixture
def fog(scene):
    town = scene("L4", num_agents=3, **GROUPS)
    town.put(x=4, y=4)
    town.put(slice(1, 3), alive=False)
    return town


def test_the_window_shows_the_kinds_of_places(fog):
    fog.place("Bed", 4, 4)
    fog.place("Bar", 2, 3)
    fog.place("Park", 6, 6)
    fog.place("Job", 5, 2)
    expected = torch.zeros(5, 5, 16)
    for row, column, kind in [(2, 2, "Bed"), (1, 0, "Bar"), (4, 4, "Park"), (0, 3, "Job")]:
        expected[row, column, KINDS.index(kind)] = 1
    assert torch.equal(window(fog), expected)


@pytest.mark.parametrize(("x", "y"), [(1, 4), (7, 4), (4, 1), (4, 7), (1, 1), (7, 7), (0, 0)])
def test_what_lies_beyond_the_window_is_not_seen(fog, x, y):
    fog.place("Gym", x, y)
    fog.put(1, x=x, y=y, alive=True)
    assert not window(fog).any()


def test_the_window_shows_other_living_agents_and_not_oneself(fog):
    fog.put(1, x=3, y=4, alive=True)
    fog.put(2, x=5, y=6)
    expected = torch.zeros(5, 5, 16)
    expected[2, 1, 14] = 1
    assert torch.equal(window(fog), expected)
    fog.put(1, x=4)
    expected = torch.zeros(5, 5, 16)
    expected[2, 2, 14] = 1
    assert torch.equal(window(fog), expected)


def test_several_in_one_cell_look_like_one(fog):
    fog.put(slice(1, 3), x=3, y=3, alive=True)
    fog.place("Gym", 3, 3)
    expected = torch.zeros(5, 5, 16)
    expected[1, 1, [KINDS.index("Gym"), 14]] = 1
    assert torch.equal(window(fog), expected)


@pytest.mark.parametrize(("x", "y"), [(0, 0), (7, 7), (1, 6), (4, 7), (0, 3)])
def test_the_window_shows_walls(fog, x, y):
    fog.put(0, x=x, y=y)
    seen = window(fog)
    for row in range(5):
        for column in range(5):
            outside = not (0 <= x + column - 2 < 8 and 0 <= y + row - 2 < 8)
            assert seen[row, column].tolist() == [*[0] * 15, float(outside)]


def test_walls_stand_around_maps_that_are_not_square(scene):
    town = scene("L4", width=3, height=6, affordances=["Bed"], **GROUPS)
    town.put(x=1, y=2)
    wall = window(town)[..., -1]
    assert wall.tolist() == [[1, 0, 0, 0, 1]] * 5


@pytest.mark.parametrize("view", [1, 3])
def test_the_window_is_as_wide_as_the_level_says(scene, view):
    town = scene("L4", view=view, **GROUPS)
    town.put(x=4, y=4)
    town.place("Bed", 4 + view, 4 - view)
    seen = window(town)
    assert seen[0, 2 * view, 0] == 1
    assert seen.sum() == 1


def test_fog_replaces_the_map(scene):
    assert "window" not in scene(**GROUPS).observe()
    assert "map" not in scene("L4", **GROUPS).observe()


# --- the others -------------------------------------------------------------------------------------------------------


def others(town, agent=0):
    """Rows of (x, y, there, *family, *cues), without what they did."""
    first, actions = 3 + (town.rules.family_size > 1), len(town.rules.action_names)
    size = first + actions + len(town.rules.cues)
    values = town.observe(agent)["others"]
    rows = [values[start : start + size] for start in range(0, len(values), size)]
    return [[*row[:first], *row[first + actions :]] for row in rows]


def test_what_the_others_did_is_seen(scene):
    town = scene(num_agents=3, **GROUPS)
    town.put(0, x=3, y=3)
    town.put(1, x=3, y=4)
    town.put(2, x=7, y=7)
    town.step("wait", "rest", "up")
    assert town.observe()["others"][3:11] == [0, 0, 0, 0, 0, 0, 1, 0]
    assert not any(town.observe()["others"][11:])


def test_the_others_are_sorted_nearest_first(scene):
    town = scene(num_agents=4, **GROUPS)
    town.put(0, x=3, y=3)
    for agent, (x, y) in enumerate([(5, 5), (3, 4), (1, 3)], 1):
        town.put(agent, x=x, y=y)
    seen = others(town)
    close([value for row in seen for value in row], [0, 1 / 5, 1, -2 / 5, 0, 1, 2 / 5, 2 / 5, 1])


def test_of_others_at_the_same_distance_the_lower_number_comes_first(scene):
    town = scene(num_agents=3, **GROUPS)
    town.put(0, x=3, y=3)
    town.put(1, x=3, y=2)
    town.put(2, x=4, y=3)
    close(others(town)[0], [0, -1 / 5, 1])
    close(others(town)[1], [1 / 5, 0, 1])


@pytest.mark.parametrize(("x", "y", "there"), [(5, 0, 1), (3, 2, 1), (0, 5, 1), (6, 0, 0), (3, 3, 0), (7, 7, 0)])
def test_others_are_seen_as_far_as_sight_reaches(scene, x, y, there):
    town = scene(num_agents=2, **GROUPS)
    town.put(1, x=x, y=y)
    close(others(town)[0], [x / 5 * there, y / 5 * there, there])


def test_only_the_nearest_few_are_seen(scene):
    town = scene(num_agents=5, visible_agents=2, **GROUPS)
    for agent in range(1, 5):
        town.put(agent, x=agent)
    seen = others(town)
    close([*seen[0], *seen[1]], [1 / 5, 0, 1, 2 / 5, 0, 1])
    assert len(seen) == 2


def test_the_dead_are_not_seen(scene):
    town = scene("L8", num_agents=4, **GROUPS)
    town.put(slice(1, None), alive=False)
    town.put(cues=-1)
    assert not any(town.observe()["others"])


def test_another_is_seen_with_family_and_cues_and_an_empty_slot_is_all_zeros(scene):
    town = scene("L7", num_agents=4, **GROUPS)
    for agent, x in enumerate((0, 2, 1, 7)):
        town.put(agent, x=x)
    town.put(1, cues=0b000000000101)
    town.put(2, cues=0b100000000000)
    town.put(3, cues=-1)
    stranger, kin, nobody = others(town)
    close(stranger, [1 / 5, 0, 1, 0, *[0] * 11, 1])
    close(kin, [2 / 5, 0, 1, 1, 1, 0, 1, *[0] * 9])
    close(nobody, [0] * 16)


# --- words ------------------------------------------------------------------------------------------------------------


def named(town, key):
    """What is not 0 of an observation, by its words."""
    words, values = town.env.names()["observation"][key], town.observe()[key]
    return {word: pytest.approx(value) for word, value in zip(words, values, strict=True) if value}


def test_words_say_what_the_numbers_are(scene):
    town = scene("L3", num_agents=2, **GROUPS)
    town.place("Park", 2, 1)
    town.at_hour(12)
    town.put(1, x=1, action=town.rules.action_names.index("rest"))
    town.set(all=0, mood=0.3)
    assert named(town, "meters") == {"mood": 0.3}
    assert named(town, "standing_on") == {"no place": 1}
    assert {word for word, value in named(town, "map").items()} == {"Park x", "Park y", "Park exists"}
    assert named(town, "others") == {"nearest x": 1 / town.rules.sight, "nearest exists": 1, "nearest did rest": 1}
    assert named(town, "time")["cosine of the hour"] == -1


def test_the_flat_observation_names_each_cell_of_the_window(scene):
    town = scene("L5", num_agents=1)
    town.put(x=3, y=3)
    town.place("Bed", 4, 1)
    seen = {word for word in named(town, "observation") if word.startswith("window")}
    assert seen == {"window Bed at (1, -2)"}


# --- the whole vector -------------------------------------------------------------------------------------------------


def group_sizes(rules):
    return {name: len(words) for name, words in group_names(rules).items()}


def test_sizes_of_the_groups():
    common = {"meters": 8, "position": 2, "standing_on": 15, "progress": 1, "time": 3, "previous_action": 9}
    assert group_sizes(load_level("L3")) == common | {"map": 42}
    assert group_sizes(load_level("L5")) == common | {"window": 400}
    assert group_sizes(load_level("L6")) == common | {"window": 400, "others": 3 * 14}
    assert group_sizes(load_level("L7")) == common | {"window": 400, "others": 3 * 24, "traits": 4}
    assert group_sizes(load_level("L8")) == common | {"window": 400, "others": 3 * 24, "traits": 4, "messages": 16}


@pytest.mark.parametrize("level", LEVELS)
def test_flat_is_the_groups_joined(scene, level):
    agents, flat, groups = load_level(level).num_agents, [], []
    for mode, results in (("flat", flat), ("groups", groups)):
        town = scene(level, num_agents=agents, num_envs=3, seed=5, options={"observation": mode})
        town.env.reset()
        for action in (1, 3, 5, 4, 0):
            results.append(town.step(*[[action, 1] if town.rules.symbols else action] * agents)["agents"])
    names = list(group_sizes(load_level(level)))
    for joined, parts in zip(flat, groups, strict=True):
        assert torch.equal(joined["observation"], torch.cat([parts[name].flatten(2) for name in names], -1))
        assert [parts[name][0, 0].numel() for name in names] == list(group_sizes(load_level(level)).values())


def test_sizes_are_equal_on_all_maps_and_for_all_places():
    same = [
        load_level("L0"),
        load_level("L1"),
        load_level("L2"),
        load_level("L3"),
        load_level("L3", width=40, height=3),
        load_level("L3", affordances={"Bed": {"count": 4}}),
    ]
    assert len({tuple(group_sizes(rules).items()) for rules in same}) == 1
    foggy = [load_level("L4"), load_level("L4", width=100, height=50, affordances=["Bed"])]
    assert len({tuple(group_sizes(rules).items()) for rules in foggy}) == 1


def test_sizes_do_not_grow_with_agents_beyond_the_visible_ones():
    assert group_sizes(load_level("L6", num_agents=6)) == group_sizes(load_level("L6", num_agents=30))


@pytest.mark.parametrize("level", LEVELS)
def test_everything_lies_between_minus_1_and_1_and_fits_the_specs(scene, level):
    agents = load_level(level).num_agents
    options = {"observation": "groups", "potential": True, "privileged": agents > 1}
    town = scene(level, num_agents=agents, num_envs=8, options=options)
    env = town.env
    data = env.reset()
    torch.manual_seed(0)
    for turn in range(25):
        if turn % 8 == 3:
            town.state.meters.uniform_(0, 1)
            town.state.agents.x.copy_(torch.randint_like(town.state.agents.x, 0, town.rules.width))
            town.state.agents.y.copy_(torch.randint_like(town.state.agents.y, 0, town.rules.height))
        step, data = env.step_and_maybe_reset(env.rand_action(data))
        seen = step["next"]
        assert env.observation_spec.is_in(seen.select(*env.observation_spec.keys(True, True)))
        for key in seen.keys(True, True):
            if seen[key].is_floating_point() and "episode" not in key and "reward" not in key:
                assert seen[key].abs().max() <= 1, key
                assert torch.isfinite(seen[key]).all(), key


@pytest.mark.parametrize("level", ["L3", "L5", "L8"])
def test_the_extremes_stay_between_minus_1_and_1(scene, level):
    agents = max(2, load_level(level).num_agents)
    town = scene(level, num_agents=agents, **PRIVILEGED)
    places = {kind: (7 * (number % 2), 7 * (number // 2 % 2)) for number, kind in enumerate(KINDS)}
    for kind, (x, y) in places.items():
        town.place(kind, x, y)
    for x, y, level_of_all, step in [(0, 0, 0.0, 0), (7, 7, 1.0, 500), (0, 7, 1.0, 499)]:
        town.put(x=x, y=y, progress=7 if town.rules.multi_tick else 0)
        town.set(all=level_of_all)
        town.at_hour(step)
        for agent in range(agents):
            for name, value in town.observe(agent).items():
                if name != "others_number":
                    assert torch.tensor(value).float().abs().max() <= 1, name


# --- what must stay hidden --------------------------------------------------------------------------------------------

HIDDEN = {
    "another's meters": lambda state: state.meters[:, 1:].copy_(torch.rand_like(state.meters[:, 1:])),
    "another's character": lambda state: state.traits[:, 1:].copy_(torch.rand_like(state.traits[:, 1:])),
    "another's progress": lambda state: state.agents.progress[1:].fill_(2),
    "another's visit": lambda state: state.agents.slot[1:].fill_(3),
    "the action of who is out of sight": lambda state: state.agents.action[3].fill_(4),
    "another's refusal": lambda state: state.agents.refused[1:].fill_(True),
    "a stranger's message": lambda state: state.agents.symbol[2:].fill_(9),
    "one's own message": lambda state: state.agents.symbol[:1].fill_(9),
    "one's own cues": lambda state: state.agents.cues[:1].fill_(15),
    "cues of who is out of sight": lambda state: state.agents.cues[3].fill_(15),
    "moves out of sight": lambda state: state.agents.x[3].sub_(1),
    "a death out of sight": lambda state: state.agents.alive[3].fill_(False),
    "places beyond the window": lambda state: state.layout.x[5].fill_(6),
    "statistics": lambda state: [value.add_(3) for value in state.tally],
    "events of others": lambda state: [value[1:].fill_(True) for value in state.events],
    "settings": lambda state: state.settings.depletion.fill_(0.1),
}
SHOWN = {
    "own meters": lambda state: state.meters[:, 0].fill_(0.3),
    "own character": lambda state: state.traits[:, 0].fill_(0.3),
    "own progress": lambda state: state.agents.progress[0].fill_(1),
    "own refusal": lambda state: state.agents.refused[0].fill_(True),
    "the family's message": lambda state: state.agents.symbol[1].fill_(9),
    "cues nearby": lambda state: state.agents.cues[1].fill_(15),
    "an action nearby": lambda state: state.agents.action[1].fill_(4),
    "moves nearby": lambda state: state.agents.x[1].add_(1),
    "a death nearby": lambda state: state.agents.alive[2].fill_(False),
    "places in the window": lambda state: state.layout.x[4].fill_(1),
    "the hour": lambda state: state.step.add_(1),
}


@pytest.fixture
def crowd(scene):
    """Agent 0 with family nearby, a stranger nearby and one far away; one place in the window and one beyond."""
    town = scene("L8", num_agents=4, **PRIVILEGED)
    for agent, (x, y) in enumerate([(1, 1), (2, 2), (1, 3), (7, 7)]):
        town.put(agent, x=x, y=y)
    town.place("FastFood", 3, 1)
    town.place("Doctor", 5, 5)
    town.set(all=0.5)
    return town


def seen_by_the_first(town):
    seen = town.env.observe(town.state)["agents"]
    return {name: value[0, 0].clone() for name, value in seen.items() if name != "privileged"}


@pytest.mark.parametrize("what", HIDDEN)
def test_nothing_hidden_reaches_the_actor(crowd, what):
    before = seen_by_the_first(crowd)
    HIDDEN[what](crowd.state)
    after = seen_by_the_first(crowd)
    assert before.keys() == after.keys()
    for name in before:
        assert torch.equal(before[name], after[name]), name


@pytest.mark.parametrize("what", SHOWN)
def test_what_can_be_seen_is_seen(crowd, what):
    before = seen_by_the_first(crowd)
    SHOWN[what](crowd.state)
    after = seen_by_the_first(crowd)
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_meters_of_others_do_not_leak_through_a_step(scene):
    towns = []
    for level in (0.5, 0.6):
        town = scene("L8", num_agents=4, cues=["looks_tired"], num_envs=4, **GROUPS)
        town.set(slice(1, None), all=level)
        town.put(slice(1, None), x=1)
        towns.append(town)
    for symbol in (1, 2, 3):
        first, second = (town.step(*[("rest", symbol)] * 4) for town in towns)
        for name in group_names(town.rules):
            assert torch.equal(first["agents", name][:, 0], second["agents", name][:, 0]), name
        assert torch.equal(first["agents", "reward"][:, 0], second["agents", "reward"][:, 0])


def test_labels_and_potential_change_nothing_that_is_acted_on(scene):
    plain, labeled = scene("L8", num_agents=4, **GROUPS), scene("L8", num_agents=4, **PRIVILEGED)
    for _ in range(3):
        first, second = (town.step(*[("right", 3)] * 4)["agents"] for town in (plain, labeled))
        for key in first.keys(True, True):
            assert torch.equal(first[key], second[key]), key
    assert "privileged" not in first.keys()
    assert "potential" not in first.keys()


# --- labels for training ----------------------------------------------------------------------------------------------


def labels(town, agent=0):
    labels = town.env.observe(town.state)["agents"]["privileged"]
    return {name.removeprefix("others_"): value[0, agent] for name, value in labels.items()}


def numbers(town, agent=0):
    return town.env.observe(town.state)["agents"]["others_number"][0, agent].tolist()


def test_labels_tell_the_truth_about_the_visible_others(scene):
    town = scene(num_agents=5, **PRIVILEGED)
    town.set(all=0.5)
    for agent, x in enumerate((0, 4, 1, 7, 2)):
        town.put(agent, x=x)
    town.put(4, alive=False)
    town.set(1, mood=0.2)
    town.set(2, fitness=0.1, money=0.0)
    town.set(3, health=0.0)
    found = labels(town)
    assert numbers(town) == [2, 1, 5, 5]
    assert found["need"].tolist() == [7, 4, 0, 0]
    close(found["meters"][0].tolist(), [0.5, 0.5, 0.5, 0, 0.5, 0.5, 0.5, 0.1])
    close(found["meters"][1].tolist(), [0.5, 0.5, 0.5, 0.5, 0.2, 0.5, 0.5, 0.5])
    assert not found["meters"][2:].any()
    found = labels(town, agent=3)
    assert numbers(town, agent=3) == [1, 5, 5, 5]
    assert found["need"].tolist() == [4, 0, 0, 0]


def test_the_most_pressing_need_is_one_that_the_town_can_serve(scene):
    town = scene("L2", num_agents=2, **PRIVILEGED)
    town.set(all=0.1, energy=0.6, satiation=0.5, money=0.0)
    assert labels(town)["need"].tolist() == [2]
    town.set(energy=0.4)
    assert labels(town)["need"].tolist() == [0]


def test_labels_are_in_the_order_of_the_others(scene):
    town = scene("L7", num_agents=4, num_envs=50, **PRIVILEGED)
    town.env.reset()
    seen = town.env.observe(town.state)["agents"]
    rows = seen["others"].unflatten(-1, (3, -1))
    there = seen["others_number"] < 4
    index = torch.where(there, seen["others_number"], 0)
    assert torch.equal(rows[..., 2] > 0, there)
    for row, axis in ((0, town.state.agents.x.T), (1, town.state.agents.y.T)):
        theirs = axis.unsqueeze(1).expand(-1, 4, -1).gather(-1, index)
        way = torch.where(there, (theirs - axis.unsqueeze(-1)) / 5, 0.0)
        assert torch.allclose(rows[..., row], way)


# --- the whole world, for critics -------------------------------------------------------------------------------------


def test_the_state_shows_everything(scene):
    town = scene("L1", num_agents=2)
    town.place("Job", 1, 4)
    town.put(1, x=4, y=2, alive=False)
    town.set(all=0.5)
    town.set(1, mood=0.25)
    town.at_hour(6)
    state = town.env.observe(town.state)["state"][0].tolist()
    meters = [0.5] * 16
    meters[2 * 4 + 1] = 0.25
    x, y = [-1.0] * 14, [-1.0] * 14
    x[10], y[10] = 0.25, 1.0
    close(state, [*meters, 0, 1, 0, 0.5, 1, 0, *x, *y, math.sin(math.pi / 2), 0, 6 / town.rules.max_steps])
    assert len(state) == global_size(town.rules)


# --- no agent is special ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(1, 0, 2, 3), (3, 2, 1, 0), (2, 3, 0, 1)])
def test_permuting_agents_permutes_what_they_see_and_get(scene, order):
    """Without ties of distance and contests; what agents are goes with them."""
    cells = [(0, 0), (1, 0), (0, 3), (4, 4)]
    actions = [
        ("interact", "rest", "wait", "interact"),
        ("up", "wait", "up", "right"),
        ("rest", "meditate", "interact", "down"),
    ]
    levels = torch.rand(8, 4, generator=torch.Generator().manual_seed(1)) * 0.8 + 0.2
    traits = torch.rand(4, 4, generator=torch.Generator().manual_seed(2))

    def play(order):
        options = {"observation": "groups"}
        town = scene(
            "L6",
            num_agents=4,
            capacity=9,
            sight=14,
            traits=True,
            cues=["looks_tired", "at_job", "at_bar"],
            options=options,
        )
        town.place("Bed", 0, 0)
        town.place("Job", 4, 4)
        town.at_hour(10)
        for place, agent in enumerate(order):
            town.put(place, x=cells[agent][0], y=cells[agent][1])
            town.state.meters[:, place, 0] = levels[:, agent]
            town.state.traits[:, place, 0] = traits[:, agent]
        return [town.step(*[step[agent] for agent in order])["agents"] for step in actions]

    plain, permuted = play(range(4)), play(order)
    for one, other in zip(plain, permuted, strict=True):
        for name in set(one.keys(True, True)) - {"others_number"}:
            assert torch.equal(one[name][:, list(order)], other[name]), name
        names = torch.tensor([order.index(agent) for agent in range(4)] + [4])  # new number of each agent
        assert torch.equal(names[one["others_number"][:, list(order)]], other["others_number"])


def test_families_may_be_exchanged(scene):
    def play(order):
        town = scene("L8", num_agents=4, cues=["looks_tired"], sight=14, **GROUPS)
        cells, symbols = [(0, 0), (1, 0), (0, 3), (4, 4)], [1, 2, 3, 4]
        for place, agent in enumerate(order):
            town.put(place, x=cells[agent][0], y=cells[agent][1])
            town.state.traits[:, place, 0] = 0.1 * agent
            town.set(place, energy=0.2 * (agent + 1))
        return town.step(*[("wait", symbols[agent]) for agent in order])["agents"]

    plain, permuted = play((0, 1, 2, 3)), play((2, 3, 0, 1))
    for name in set(plain.keys(True, True)) - {"others_number"}:
        assert torch.equal(plain[name][:, [2, 3, 0, 1]], permuted[name]), name
