"""Levels as data: what each of them is, what is refused and how, and cells that are shuffled fairly."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
import torch
import yaml
from tensordict import TensorDict

from envs import TownEnv
from envs.toolkit.chance import seed_chance, shuffled_cells
from envs.town import LEVELS, Rules, load_level
from envs.town.checks import check_rules
from envs.town.levels import HERE

LADDER = ["L0", "L1", "L2", "L3", "L4", "L5", "L6", "L7", "L8"]

# --- the levels -------------------------------------------------------------------------------------------------------


def test_nine_levels_are_a_ladder_and_the_others_are_named_after_what_they_need():
    assert list(LEVELS[:9]) == LADDER
    paying = set(LEVELS[9:]) - {"false_belief"}  # which asks what is predicted of others, and has no reward for it
    assert {level.split("_")[0] for level in paying} <= {"foresight", "memory", "others", "change"}


@pytest.mark.parametrize(("level", "sums"), [("L3", (54, 7, 17)), ("L6", (43, 59, 61)), ("L8", (43, 61, 62))])
def test_recorded_seeds_play_the_games_that_they_always_played(level, sums):
    """Cells of the first town's places, and of all agents after 40 steps; exact whole numbers."""
    env = TownEnv(4, level=level, seed=11, privileged=level > "L5")
    root, shape = env.reset(), env.full_action_spec[env.action_key].shape
    for turn in range(40):
        action = (torch.arange(shape.numel()).reshape(shape) * 5 + turn * 3) % 8
        root = env.step_and_maybe_reset(root.set(env.action_key, action))[1]
    agents = env.state.agents
    found = env.state.layout.x[:, 0].clamp_min(-1).sum(), agents.x.sum(), agents.y.sum()
    assert tuple(each.item() for each in found) == sums


@pytest.mark.parametrize("level", LEVELS)
def test_each_level_can_be_played(level):
    env = TownEnv(2, level=level)
    assert env.rules.name == level
    assert env.rules == load_level(level)
    assert env.rollout(3).shape == (2, 3)


def test_each_level_adds_one_thing():
    levels = [load_level(level) for level in LADDER]
    assert [(rules.width, rules.height) for rules in levels] == [(3, 3), (5, 5), (5, 5)] + [(8, 8)] * 6
    assert [rules.deployed for rules in levels[:3]] == [["Bed"], ["Bed", "Job"], ["Bed", "Job", "HomeMeal"]]
    assert all(rules.deployed == list(rules.kinds) and len(rules.kinds) == 14 for rules in levels[3:])
    rewards = ["energy", "energy_health"] + ["wellbeing"] * 7
    assert [rules.reward for rules in levels] == [load_level("L3", reward=reward).reward for reward in rewards]
    assert [rules.view for rules in levels] == [None] * 4 + [2] * 5
    assert [rules.clock for rules in levels] == [False] * 5 + [True] * 4
    assert [rules.multi_tick for rules in levels] == [False] * 5 + [True] * 4
    assert [rules.num_agents for rules in levels] == [1] * 6 + [4] * 3
    assert [rules.contested for rules in levels] == [False] * 6 + [True] * 3
    assert [rules.affordances["Bed"].capacity for rules in levels] == [None] * 6 + [1] * 3
    assert {rules.affordances["Park"].capacity for rules in levels[3:]} == {None}
    assert [len(rules.cues) for rules in levels] == [0] * 6 + [3, 12, 12]
    assert [rules.traits for rules in levels] == [False] * 7 + [True] * 2
    assert [rules.family_size for rules in levels] == [1] * 7 + [2] * 2
    assert [rules.symbols for rules in levels] == [0] * 8 + [16]


def test_a_level_takes_over_what_it_extends_and_changes_what_it_says(write):
    rules = load_level(write(extends="L6", width=9, cues=["at_bar"]))
    assert (rules.width, rules.height, rules.num_agents, rules.view) == (9, 8, 4, 2)
    assert list(rules.cues) == ["at_bar"]
    assert rules.name == "mine"
    assert load_level(write(extends="L3", width=9), width=10).width == 10, "a change wins over the level"


def test_a_level_may_extend_a_neighbor(write):
    write("base", extends="L1", width=6)
    rules = load_level(write(extends="base", height=7))
    assert (rules.width, rules.height, rules.deployed) == (6, 7, ["Bed", "Job"])


def test_changed_meters_and_places_keep_what_was_not_changed(write):
    path = write(extends="L3", meters={"energy": {"initial": 0.3}}, affordances={"Bed": {"price": 0.5}})
    rules, base = load_level(path), load_level("L3")
    assert rules.meters == base.meters | {"energy": dataclasses.replace(base.meters["energy"], initial=0.3)}
    assert rules.affordances == base.affordances | {"Bed": dataclasses.replace(base.affordances["Bed"], price=0.5)}
    assert rules.deployed == ["Bed"]


def test_changed_cues_keep_what_was_not_changed_and_new_ones_may_come(write):
    path = write(extends="L6", cues={"at_bar": {"radius": 9}, "looks_sad": None, "at_park": {"at": "Park"}})
    cues = load_level(path).cues
    assert list(cues) == ["at_bar", "looks_sad", "at_park"]
    assert (cues["at_bar"].radius, cues["at_bar"].at, cues["at_park"].at) == (9, "Bar", "Park")
    assert cues["looks_sad"] == load_level("L7").cues["looks_sad"]


def test_a_level_may_bring_its_own_content(write, tmp_path):
    content = {
        "meters": {"joy": {"initial": 0.5, "depletion": 0.1, "fatal": True}},
        "modulations": [],
        "cascades": [],
        "actions": {},
        "affordances": {"Fair": {"duration": 1, "tick": {"joy": 0.3}}},
        "cues": {},
        "rewards": {"joy": {"combine": "product", "meters": ["joy"]}},
    }
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(content))
    path = write(content="own.yaml", lesson="Joy.", width=2, height=2, max_steps=9, affordances="all", reward="joy")
    town = TownEnv(1, level=path)
    town.reset()
    for cells in (town.state.layout, town.state.agents):
        cells.x.fill_(0)
        cells.y.fill_(0)
    step = town.step(town.rand_action(TensorDict({}, [1])).set(("agents", "action"), torch.tensor([[4]])))
    assert step["next", "agents", "reward"].item() == pytest.approx(0.7)


def test_whole_rules_may_be_given_and_are_checked():
    rules = load_level("L3")
    assert TownEnv(1, rules=rules).rules == rules
    assert isinstance(rules, Rules)
    assert TownEnv(1, rules=rules, num_agents=3).rules.num_agents == 3
    with pytest.raises(ValueError, match="depletion is -1"):
        TownEnv(1, rules=dataclasses.replace(rules, depletion=-1.0))
    with pytest.raises(ValueError, match="depletion is -1"):
        check_rules(dataclasses.replace(rules, depletion=-1.0))


# --- new content by YAML only -----------------------------------------------------------------------------------------

SAUNA = {"duration": 2, "price": 0.2, "tick_price": 0.07, "tick": {"mood": 0.1}, "completion": {"social": 0.05}}


@pytest.mark.parametrize("multi_tick", [False, True])
def test_a_new_kind_of_place_needs_no_code(scene, write, multi_tick):
    affordances = {"Bed": {}, "Sauna": SAUNA | {"hours": [20, 26]}}
    path = write(extends="L3", affordances=affordances, clock=True, multi_tick=multi_tick, depletion=0.0)
    town = scene(path, options={"observation": "groups"})
    assert town.rules.kinds[-1] == "Sauna"
    assert len(town.rules.kinds) == 15
    town.place("Sauna", 0, 0)
    assert town.observe()["standing_on"] == [0.0] * 14 + [1.0, 0.0]
    town.at_hour(19)
    assert "interact" not in town.mask()
    town.at_hour(24)
    assert "interact" in town.mask()
    town.set(all=0.5)
    for _ in range(2 if multi_tick else 1):
        assert town.state.tally.visits.item() == 0
        town.step("interact")
    meters = town.meters()
    price = 0.14 if multi_tick else 0.2
    assert (meters["mood"], meters["social"], meters["money"]) == pytest.approx((0.7, 0.55, 0.5 - price), abs=1e-6)
    assert town.state.tally.visits.item() == 1


def test_a_new_kind_joins_the_needs_that_the_town_can_serve(write):
    affordances = {"Bed": {}, "Sauna": SAUNA}
    assert load_level(write(extends="L3", affordances=affordances)).needs == ("energy", "mood")
    weak = SAUNA | {"tick": {"mood": 0.04}}
    assert load_level(write(extends="L3", affordances=affordances | {"Sauna": weak})).needs == ("energy",)


def test_new_meters_and_actions_of_whole_rules_can_be_played():
    rules = load_level("L3")
    rules = dataclasses.replace(rules, actions={**rules.actions, "sing": {"mood": 0.1}}, enabled=["sing"])
    env = TownEnv(1, rules=rules)
    env.reset()
    env.state.meters.fill_(0.5)
    data = TensorDict({"agents": {"action": torch.tensor([[8]])}}, batch_size=[1])
    assert env.step(data)["next", "agents", "observation"][0, 0, 4].item() == pytest.approx(0.599)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.fixture
def write(tmp_path):
    """Write a level into a file of its own."""

    def make(name="mine", /, **keys):
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(keys, sort_keys=False))
        return path

    return make


PLAIN = {"lesson": "x", "width": 5, "height": 5, "max_steps": 9, "affordances": ["Bed"], "reward": "energy"}


def at(**fields):
    """A Bed with these fields."""
    return {"affordances": {"Bed": fields, "Job": {}}}


@pytest.mark.parametrize("name", PLAIN)
def test_what_a_level_must_say(write, name):
    path = write(**{key: value for key, value in PLAIN.items() if key != name})
    with pytest.raises(ValueError, match=f"town mine: {name} is missing"):
        load_level(path)


@pytest.mark.parametrize(
    ("changes", "culprits"),
    [
        # sizes
        ({"width": 0}, ["width is 0"]),
        ({"height": -3}, ["height is -3"]),
        ({"max_steps": 0}, ["max_steps is 0"]),
        ({"num_agents": 0}, ["num_agents is 0"]),
        ({"max_cues": 0}, ["max_cues is 0"]),
        ({"family_size": 0}, ["family_size is 0"]),
        ({"width": 257}, ["257 x 8", "256"]),
        ({"height": 300}, ["8 x 300"]),
        ({"view": 0}, ["view is 0"]),
        ({"depletion": -0.5}, ["depletion is -0.5"]),
        ({"symbols": -1}, ["symbols is -1"]),
        ({"visible_agents": -1}, ["visible_agents is -1"]),
        ({"sight": -2}, ["sight is -2"]),
        ({"num_agents": 3, "family_size": 2}, ["3 agents", "families of 2"]),
        ({"symbols": 4}, ["family_size"]),
        # kinds of values
        ({"width": 5.5}, ["width is 5.5"]),
        ({"width": "wide"}, ["width is 'wide'"]),
        ({"clock": 1}, ["clock is 1"]),
        ({"num_agents": True}, ["num_agents is True"]),
        ({"depletion": "fast"}, ["depletion is 'fast'"]),
        ({"view": 1.5}, ["view is 1.5"]),
        ({"view": True}, ["view is True"]),
        ({"lesson": 5}, ["lesson is 5"]),
        ({"max_steps": None}, ["max_steps is None"]),
        # unknown names
        ({"widht": 5}, ["widht"]),
        ({"name": "other"}, ["name"]),
        ({"deployed": ["Bed"]}, ["deployed"]),
        ({"affordances": ["Bed", "Pool"]}, ["Pool", "Bed"]),
        ({"actions": ["fly"]}, ["fly", "rest, meditate"]),
        ({"cues": ["looks_odd"]}, ["looks_odd", "looks_sick"]),
        ({"cues": "at_bar"}, ["cues is 'at_bar'", "list of cues"]),
        ({"cues": False}, ["cues is False", "list of cues"]),
        ({"cues": [{"at_bar": {"radius": 9}}]}, ["at_bar", "is unknown: use looks_sick"]),
        ({"cues": {"at_bra": None}}, ["'at_bra' is unknown .did you mean at_bar..: use looks_sick"]),
        ({"cues": {1: {"at": "Bar"}}}, ["cue 1 is unknown"]),
        ({"cues": {"at_bar": {"radius": -1}}}, ["cue at_bar", "radius is -1"]),
        ({"cues": {"at_bar": {"color": 1}}}, ["cue at_bar", "color"]),
        ({"reward": "riches"}, ["riches", "wellbeing"]),
        # meters
        ({"meters": {"energy": {"initial": 1.5}}}, ["meter energy begins at 1.5"]),
        ({"meters": {"mood": {"initial": -0.1}}}, ["meter mood begins at -0.1"]),
        ({"meters": {"energy": {"fatal": False}, "health": {"fatal": False}}}, ["no meter is fatal"]),
        ({"meters": {"energy": {"begin": 1.0}}}, ["meter energy", "begin"]),
        ({"meters": {"energy": {"initial": "full"}}}, ["meter energy", "initial is 'full'"]),
        ({"meters": {"energy": {"fatal": 1}}}, ["meter energy", "fatal is 1"]),
        ({"meters": {"engery": {"initial": 0.5}}}, ["meter engery", "depletion"]),
        # affordances
        (at(tick={"vigour": 0.1}), ["Bed", "vigour"]),
        (at(completion={"vigour": 0.1}), ["Bed", "vigour"]),
        (at(hours=[8, 8]), ["Bed", r"\[8, 8\]"]),
        (at(hours=[22, 6]), ["Bed", r"\[22, 6\]"]),
        (at(hours=[-1, 6]), ["Bed", r"\[-1, 6\]"]),
        (at(hours=[18, 29]), ["Bed", r"\[18, 29\]"]),
        (at(hours=[8]), ["Bed", r"\[8\]"]),
        (at(capacity=-1), ["Bed", "capacity is -1"]),
        (at(duration=0), ["Bed", "duration is 0"]),
        (at(count=0), ["Bed", "count is 0"]),
        (at(price=-0.1), ["Bed", "price"]),
        (at(tick_price=-0.1), ["Bed", "price"]),
        (at(duration=1.5), ["Bed", "duration is 1.5"]),
        (at(capacity=1.5), ["Bed", "capacity is 1.5"]),
        (at(price="dear"), ["Bed", "price is 'dear'"]),
        (at(color="red"), ["Bed", "color"]),
        ({"affordances": {"Pool": {"price": 0.1}}}, ["Pool", "duration"]),
        ({"capacity": -1}, ["capacity is -1"]),
        # the layout
        ({"num_agents": 65}, ["65 agents", "64 cells"]),
        ({"num_agents": 51}, ["14 places", "51 agents", "64 cells"]),
        ({"width": 2, "height": 7}, ["14 places", "1 agents", "14 cells"]),
        (at(count=63), ["64 places", "64 cells"]),
        (at(count=2, positions=[[0, 0]]), ["Bed", "1 positions for 2 places"]),
        (at(positions=[[0, 0]]), ["some have none"]),
        ({"affordances": {"Bed": {"positions": [[1, 1]]}, "Job": {"positions": [[1, 1]]}}}, ["overlap", r"\[1, 1\]"]),
        ({"affordances": {"Bed": {"positions": [[8, 1]]}}}, [r"\[8, 1\]", "8 x 8"]),
        ({"affordances": {"Bed": {"positions": [[1, -1]]}}}, [r"\[1, -1\]", "8 x 8"]),
        # rewards
        ({"reward": {"combine": "sum", "meters": ["energy"]}}, ["reward", "'sum'", "geometric_mean"]),
        ({"reward": {"combine": "product", "meters": ["vigour"]}}, ["reward", "vigour"]),
        ({"reward": {"weights": {"vigour": 1.0}}}, ["reward", "vigour"]),
        ({"reward": {"low": {"limit": 0.2}}}, ["reward.low", "limit"]),
        ({"reward": {"terminal": {"fame": 0.2}}}, ["reward.terminal", "fame"]),
        ({"reward": {"bonus": 1.0}}, ["reward", "bonus"]),
        ({"reward": {"base": "much"}}, ["reward", "base is 'much'"]),
        ({"reward": 5}, ["reward", "5"]),
        # what is nothing at all
        ({"affordances": None}, ["affordances"]),
        ({"affordances": {"Bed": 5}}, ["Bed"]),
        (at(tick=5), ["Bed"]),
        (at(hours=8), ["Bed"]),
        (at(hours=["dawn", "dusk"]), ["Bed"]),
        (at(positions=[1]), ["Bed"]),
        ({"meters": {"energy": 0.5}}, ["energy"]),
        ({"affordances": ["Job"], "reward": "wellbeing"}, ["reward"]),
        ({"affordances": []}, ["affordances"]),
        ({"reward": {"combine": "product"}}, ["reward"]),
        ({"reward": {"low": {"threshold": 0.2}}}, ["penalty"]),
        (at(tick={"energy": "lots"}), ["Bed"]),
        ({"capacity": "one"}, ["capacity"]),
        ({"capacity": 1.5}, ["capacity"]),
        ({"capacity": 1, "unlimited": ["Prak"]}, ["Prak"]),
        ({"affordances": ["Bed", "Bed"]}, ["Bed"]),
        ({"depletion": math.nan}, ["depletion"]),
        ({"reward": {"milestones": {0: 1.0}}}, ["milestones"]),
        ({"reward": {"weights": {"energy": "x"}}}, ["weights"]),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_cannot_be_is_refused_by_name(write, changes, culprits):
    path = write(**({"extends": "L3"} | changes))
    with pytest.raises(ValueError, match=culprits[0]) as error:
        TownEnv(1, level=path)
    message = str(error.value)
    assert message.startswith("town mine")
    assert message.endswith(".")
    for culprit in culprits:
        error.match(culprit)


@pytest.fixture
def with_content(write, tmp_path):
    """The project's content with one thing changed."""

    def make(section, name, value, /, **keys):
        content = yaml.safe_load((HERE / "content.yaml").read_text())
        if isinstance(name, int):
            content[section][name] |= value
        else:
            content[section][name] = value
        (tmp_path / "own.yaml").write_text(yaml.safe_dump(content))
        return write(extends="L6", content="own.yaml", **keys)

    return make


CUE = {"cues": ["odd"]}


@pytest.mark.parametrize(
    ("section", "name", "value", "keys", "culprits"),
    [
        ("modulations", 0, {"source": "vigour"}, {}, ["vigour"]),
        ("modulations", 0, {"target": "vigour"}, {}, ["vigour"]),
        ("modulations", 0, {"rate": "slow"}, {}, ["modulations", "rate is 'slow'"]),
        ("cascades", 3, {"source": "vigour"}, {}, ["vigour"]),
        ("cascades", 3, {"target": "vigour"}, {}, ["vigour"]),
        ("cascades", 0, {"threshold": 0.0}, {}, ["satiation -> health", "threshold"]),
        ("cascades", 0, {"power": 1}, {}, ["cascades", "power"]),
        ("actions", "sing", {"vigour": 1}, {}, ["action sing", "vigour"]),
        ("cues", "odd", {"any": ["energy"]}, CUE, ["cue odd", "'energy'"]),
        ("cues", "odd", {"any": ["energy <= 0.3"]}, CUE, ["cue odd", "energy <= 0.3"]),
        ("cues", "odd", {"all": ["energy < low"]}, CUE, ["cue odd", "energy < low"]),
        ("cues", "odd", {"any": ["vigour < 0.3"]}, CUE, ["cue odd", "vigour"]),
        ("cues", "odd", {}, CUE, ["cue odd", "exactly one"]),
        ("cues", "odd", {"at": "Bed", "any": ["energy < 0.3"]}, CUE, ["cue odd", "exactly one"]),
        ("cues", "odd", {"all": ["mood < 0.3"], "any": ["energy < 0.3"]}, CUE, ["cue odd", "exactly one"]),
        ("cues", "odd", {"at": "Pool"}, CUE, ["cue odd", "Pool"]),
        ("cues", "odd", {"at": "Bed", "reliability": 1.1}, CUE, ["cue odd", "reliability is 1.1"]),
        ("cues", "odd", {"at": "Bed", "false_positive": -0.1}, CUE, ["cue odd", "false_positive is -0.1"]),
        ("cues", "odd", {"at": "Bed", "radius": 2.5}, CUE, ["cue odd", "radius is 2.5"]),
        ("cues", "odd", {"at": "Bed", "color": 1}, CUE, ["cue odd", "color"]),
    ],
    ids=lambda value: str(value)[:50],
)
def test_content_that_cannot_be_is_refused_by_name(with_content, section, name, value, keys, culprits):
    with pytest.raises(ValueError, match=culprits[0]) as error:
        load_level(with_content(section, name, value, **keys))
    assert str(error.value).startswith("town mine")
    for culprit in culprits:
        error.match(culprit)


def test_what_is_not_used_may_be_odd(with_content):
    load_level(with_content("cues", "odd", {"any": ["vigour < 0.3"]}))


def test_unknown_levels_are_refused():
    with pytest.raises(ValueError, match=r"'L9' is unknown: use L0, L1.*L8"):
        load_level("L9")
    with pytest.raises(ValueError, match=r"nowhere\.yaml"):
        load_level("nowhere.yaml")


def test_levels_extend_what_there_is_and_not_in_circles(write):
    with pytest.raises(ValueError, match="'L9' is unknown"):
        load_level(write(extends="L9"))
    with pytest.raises(ValueError, match="level mine extends itself"):
        load_level(write(extends="mine"))
    write("one", extends="two")
    with pytest.raises(ValueError, match="extends itself"):
        load_level(write("two", extends="one"))


@pytest.mark.parametrize(
    ("text", "culprit"), [("width: [", "cannot be read"), ("- 1", "no mapping"), ("", "no mapping")]
)
def test_files_that_are_no_levels_are_refused(tmp_path, text, culprit):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=culprit) as error:
        load_level(path)
    error.match(r"mine\.yaml")


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        ({"observation": "pixels"}, "'pixels'"),
        ({"privileged": True}, "at least 2 agents"),
        ({"privileged": True, "level": "L6", "rules": {"visible_agents": 0}}, "visible_agents"),
        ({"rules": {"extends": "L9"}}, "extends"),
        ({"rules": {"width": 1, "height": 40}}, "at least 2 cells"),
        ({"rules": {"sight": 0}}, "sight is 0"),
        ({"num_agents": 2000, "rules": {"width": 60, "height": 60}}, "at most 1024"),
        ({"num_agents": 0}, "num_agents is 0"),
        ({"rules": {"widht": 3}}, "widht"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments, culprit):
    with pytest.raises(ValueError, match=culprit):
        TownEnv(**arguments)


def test_content_must_be_there_and_complete(write, tmp_path):
    (tmp_path / "own.yaml").write_text("meters: {}")
    with pytest.raises(ValueError, match="its content has no modulations"):
        load_level(write(extends="L3", content="own.yaml"))
    with pytest.raises(ValueError, match=r"nowhere\.yaml cannot be read"):
        load_level(write(extends="L3", content="nowhere.yaml"))


def test_new_kinds_keep_the_order_of_the_file(write):
    names = [f"Place{letter}" for letter in "QWERTYUIOPAS"]
    rules = load_level(write(extends="L3", affordances={name: SAUNA for name in names}))
    assert list(rules.kinds[14:]) == names


# --- shuffled cells ---------------------------------------------------------------------------------------------------


def cells(width, height, count, num_envs, seed=0):
    chance = seed_chance(seed, num_envs).tick()
    sizes = (torch.full((num_envs,), size, dtype=torch.int32) for size in (width, height))
    x, y = shuffled_cells(chance, 5, count, *sizes)
    assert x.min() >= 0
    assert y.min() >= 0
    assert x.max() < width
    assert y.max() < height
    return (y * width + x).long()


def surprise(counts):
    """Standard deviations that the chi-square of equally likely counts lies above its mean."""
    expected = counts.sum() / counts.numel()
    freedom = counts.numel() - 1
    return (((counts - expected) ** 2).sum() / expected - freedom).item() / math.sqrt(2 * freedom)


@pytest.mark.parametrize("height", [1, 2, 3, 5, 8, 17])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 8, 13])
def test_a_whole_map_of_shuffled_cells_is_a_permutation(width, height):
    everything = torch.arange(width * height).unsqueeze(1).expand(-1, 200)
    assert torch.equal(cells(width, height, width * height, 200).sort(0).values, everything)


@pytest.mark.parametrize(("width", "height", "count"), [(256, 256, 300), (256, 1, 256), (1, 256, 200), (100, 37, 64)])
def test_shuffled_cells_of_large_maps_are_distinct(width, height, count):
    assert (cells(width, height, count, 50).sort(0).values.diff(dim=0) > 0).all()


def test_worlds_of_different_sizes_are_shuffled_together():
    width, height = (torch.arange(low, low + 12, dtype=torch.int32) for low in (3, 2))
    x, y = shuffled_cells(seed_chance(0, 12), 5, 6, width, height)
    assert ((x >= 0) & (x < width) & (y >= 0) & (y < height)).all()
    assert ((y * width + x).sort(0).values.diff(dim=0) > 0).all()
    for world in (0, 7):
        alone = shuffled_cells(seed_chance(0, 12), 5, 6, *(torch.full((12,), size[world]) for size in (width, height)))
        assert torch.equal(alone[0][:, world], x[:, world])


def test_shuffled_cells_are_the_same_for_the_same_luck_and_others_for_other_luck():
    assert torch.equal(cells(8, 8, 15, 64, seed=3), cells(8, 8, 15, 64, seed=3))
    assert not (cells(8, 8, 15, 64, seed=3) == cells(8, 8, 15, 64, seed=4)).all(0).any()


SIZES = [(2, 2), (2, 3), (3, 2), (3, 3), (3, 8), (4, 7), (5, 5), (8, 8)]
WORLDS = 100_000


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_cell_is_equally_likely(width, height):
    found = cells(width, height, min(width * height, 2 * width + 2), WORLDS)
    for place in found:
        assert surprise(torch.bincount(place, minlength=width * height).float()) < 5


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_pair_of_cells_is_equally_likely(width, height):
    """Two rounds are found out on every size here, three on those up to 5 x 5."""
    size = width * height
    found = cells(width, height, min(size, 2 * width + 2), WORLDS)
    apart = ~torch.eye(size, dtype=torch.bool)
    chosen = sorted({0, 1, 2, width, width + 1, len(found) - 1} & set(range(len(found))))
    for first, second in itertools.combinations(chosen, 2):
        pairs = torch.bincount(found[first] * size + found[second], minlength=size**2).float()
        assert surprise(pairs.reshape(size, size)[apart]) < 6, (first, second)
