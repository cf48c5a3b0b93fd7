"""Players that search the true town, or learn by trial, on states written by hand."""

from __future__ import annotations

import pytest
import torch

from envs import TownEnv
from envs.town.experts import NO_ACTION, PlanningPlayer, SearchConfig, TryingPlayer, candidates
from envs.town.rules import RIGHT, WAIT
from envs.town.scripted import GreedyPlayer

SHORT = {"horizon": 12}


def planner(scene, **config):
    return PlanningPlayer(scene.env, SearchConfig(**{**SHORT, **config}))


def choice(player, scene):
    """Kind of the place that the first town's agent 0 would go to, or the action that it would take."""
    rules, (slot, action, _) = scene.rules, (part[0].item() for part in player.search(scene.state))
    if action != NO_ACTION:
        return rules.action_names[action]
    return "greedy" if slot == rules.num_slots else rules.kinds[slot // rules.places_per_kind]


def test_candidates_are_the_greedy_choice_the_towns_places_and_resting():
    env = TownEnv(level="L2")
    bed, job, meal = (env.rules.kinds.index(kind) * env.rules.places_per_kind for kind in ("Bed", "Job", "HomeMeal"))
    slots, actions = candidates(env.rules, env.tables, "goals")
    assert slots.tolist() == [env.rules.num_slots, *sorted((bed, meal, job)), env.rules.num_slots]
    assert actions.tolist() == [NO_ACTION] * 4 + [WAIT]  # L2 knows no rest
    slots, actions = candidates(env.rules, env.tables, "actions")
    assert set(slots.tolist()) == {env.rules.num_slots}
    assert actions.tolist() == [NO_ACTION, *range(WAIT + 1)]


def test_it_prefers_what_pays_later(scene):
    """Work costs energy and serves no need, but who has earned can eat; the park pays at once."""
    town = scene("L3", max_steps=40)
    town.set(all=0.9, satiation=0.35, money=0.0, hygiene=0.6)
    town.place("Job", 1, 0)
    town.place("HomeMeal", 2, 0)
    town.place("Park", 0, 1)
    values = planner(town, horizon=40).values(town.state)[0]
    slots = planner(town).slots.tolist()
    job, park = (values[slots.index(town.rules.kinds.index(kind))].item() for kind in ("Job", "Park"))
    assert job > park
    near = planner(town, horizon=3).values(town.state)[0]
    assert near[slots.index(town.rules.kinds.index("Park"))] > near[slots.index(town.rules.kinds.index("Job"))]


def test_it_refuses_a_place_that_will_be_closed_on_arrival(scene):
    """The doctor is four steps away and stays until 18: worth the way from 10 o'clock, not from 15."""
    town = scene("L5")
    town.set(all=0.9, health=0.3)
    town.place("Doctor", 4, 0)
    town.place("Park", 0, 1)
    player = planner(town, horizon=16)
    doctor = player.slots.tolist().index(town.rules.kinds.index("Doctor"))
    gained = []
    for hour in (10, 15):
        town.at_hour(hour)
        values = player.values(town.state)[0]
        gained.append((values[doctor] - values[-1]).item())  # beside resting for a while
    assert gained[0] > 0.1 > gained[1]


def test_a_goal_is_kept_until_it_is_used_and_then_greed_takes_over(scene):
    town = scene("L3")
    town.set(all=0.9)
    meal = town.place("HomeMeal", 2, 0)
    player = planner(town)
    goal = torch.tensor([meal])
    intention = player.search(town.state)._replace(slot=goal, action=torch.tensor([NO_ACTION]))
    greedy = torch.tensor([WAIT])
    taken = []
    for _ in range(4):
        action = player.pursue(intention, town.state, 0, greedy)
        taken.append(town.rules.action_names[action.item()])
        town.step(action.item())
    assert taken == ["right", "right", "interact", "wait"]


def test_an_action_is_taken_for_its_steps_only(scene):
    town = scene("L3")
    player = planner(town, candidates="actions", action_steps=2)
    intention = player.search(town.state)._replace(action=torch.tensor([RIGHT]))
    greedy = torch.tensor([WAIT])
    taken = [player.pursue(intention, town.state, since, greedy).item() for since in range(4)]
    assert taken == [RIGHT, RIGHT, WAIT, WAIT]


@pytest.mark.parametrize(
    ("expectation", "meters", "gain"),
    [
        ("repeat", {"all": 0.99, "satiation": 0.3}, 1),  # the other leaves the only bed, of one seat, to eat
        ("wait", {"all": 0.9, "energy": 0.1}, -1),  # the other is tired, and will sleep there
    ],
)
def test_what_the_others_do_decides(scene, expectation, meters, gain):
    town = scene("L6", num_agents=2)
    town.set(all=0.9, energy=0.2)
    town.set(1, **meters)
    bed, _ = town.place("Bed", 0, 0), town.place("HomeMeal", 3, 0)
    town.put(1, action=town.rules.action_names.index("interact"))
    known, expected = (planner(town, others=others).values(town.state)[0] for others in ("greedy", expectation))
    index = planner(town).slots.tolist().index(bed)
    assert gain * (known[index] - expected[index]) > 0.01


def test_the_search_never_touches_the_town_or_its_luck():
    env = TownEnv(2, level="L6", seed=3)
    root = env.reset()
    before = env.state.meters.clone(), env.state.agents.x.clone(), env._snapshot.chance.clock.clone()
    PlanningPlayer(env, SearchConfig(horizon=4))(root)
    after = env.state.meters, env.state.agents.x, env._snapshot.chance.clock
    assert all(map(torch.equal, before, after))


@pytest.mark.parametrize("level", ["L6", "L8"])
def test_only_agent_0_differs_from_greedy_and_a_town_is_played_alike_in_any_batch(level):
    actions = []
    for count in (1, 3):
        env = TownEnv(count, level=level, seed=7)
        player, root, taken = PlanningPlayer(env, SearchConfig(horizon=6, every=2)), env.reset(), []
        for _ in range(4):
            greedy = GreedyPlayer(env)(root.copy())["agents", "action"]
            played, following = env.step_and_maybe_reset(player(root))
            assert torch.equal(played["agents", "action"][:, 1:], greedy[:, 1:])
            taken.append(played["agents", "action"][0])
            root = following
        actions.append(torch.stack(taken))
    assert torch.equal(*actions)


# --- trial and error --------------------------------------------------------------------------------------------------


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


def test_learning_from_a_teacher_is_compared_with_learning_alone():
    """Levels with a teacher of what cannot be seen; reading others is a knowledge of its own."""

    def experts(**changes):
        return TownEnv(level="others_teacher", rules=changes).experts()

    found = experts()
    greedy, *alone = found["teacher"]
    assert (greedy, *alone) == (found["map"][0], *found["memory"])
    assert len(found["social"]) == 6
    for changes in (
        {"num_residents": 0},
        {"view": None},
        {"characters": ["onlooker", "trickster"]},  # who teaches is held back
        # of places that look the same all know the map
        {"affordances": {"Bed": {}, "HomeMeal": {"count": 2, "working": 1}}},
    ):
        assert "teacher" not in experts(**changes), changes
    assert "teacher" in experts(characters=["onlooker", "trickster"], cast="held_out")
