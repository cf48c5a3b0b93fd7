"""Players that search the true town, on states written by hand."""

from __future__ import annotations

import pytest
import torch

from envs import TownEnv
from envs.town.planning import NO_ACTION, PlanningPlayer, SearchConfig, candidates
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


def test_what_the_others_do_decides(scene):
    """Somebody rises from the only bed, of one seat, to eat; who expects him to stay often gets no seat."""
    town = scene("L6", num_agents=2)
    town.set(all=0.9, energy=0.2)
    town.set(1, all=0.99, satiation=0.3)
    bed, _ = town.place("Bed", 0, 0), town.place("HomeMeal", 3, 0)
    town.put(1, action=town.rules.action_names.index("interact"))
    known, expected = (planner(town, others=others).values(town.state)[0] for others in ("greedy", "repeat"))
    index = planner(town).slots.tolist().index(bed)
    assert known[index] > expected[index] + 0.01


def test_who_expects_the_others_to_wait_does_not_see_the_seat_taken(scene):
    """Somebody tired stands at the only bed, of one seat, and will sleep there."""
    town = scene("L6", num_agents=2)
    town.set(all=0.9, energy=0.2)
    town.set(1, all=0.9, energy=0.1)
    bed = town.place("Bed", 0, 0)
    known, expected = (planner(town, others=others).values(town.state)[0] for others in ("greedy", "wait"))
    index = planner(town).slots.tolist().index(bed)
    assert known[index] < expected[index] - 0.01


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
