"""The scripted players: what they reach on every level and know in fog, and that idleness and tricks do not pay."""

from __future__ import annotations

import pytest
import torch
from tensordict.nn import TensorDictModuleBase

from envs import TownEnv
from envs.base.players import RandomPlayer
from envs.town.scripted import (
    ConstantPlayer,
    FogPlayer,
    GreedyPlayer,
    nearest_unseen,
    nothing_known,
    update_knowledge,
    way_round,
)
from envs.town.state import ABSENT
from torchrl_agent.training.evaluator import evaluate_policy, summarize

WORLDS = 24
"""Of each player."""
FAST = {"depletion": 2.0, "max_steps": 250}
"""A town in which one lives half as long."""


class Oscillator(ConstantPlayer):
    """Goes left and right for ever, or waits where it must."""

    def forward(self, tensordict):
        super().forward(tensordict)
        mask = tensordict["agents", "action_mask"]
        tensordict["agents", "action"] = torch.where(mask[..., 2], 2, 3)
        return tensordict


class Presser(ConstantPlayer):
    """Walks to the nearest place it finds by chance and presses the button for ever."""

    def forward(self, tensordict):
        mask = tensordict["agents", "action_mask"]
        moves = torch.where(mask[..., :4], torch.rand(mask[..., :4].shape), -1.0).argmax(-1)
        return tensordict.set(("agents", "action"), torch.where(mask[..., 4], 4, moves))


LIVING = {"greedy": GreedyPlayer}
IDLE = {
    "resting": lambda env: ConstantPlayer(env, "rest"),
    "waiting": lambda env: ConstantPlayer(env, "wait"),
    "random": RandomPlayer,
}
TRICKS = {"oscillator": lambda env: Oscillator(env, "wait"), "presser": lambda env: Presser(env, "wait")}
LESSONS, LONELY, CONTESTED = ("L0", "L1"), ("L2", "L3", "L4", "L5"), ("L6", "L7", "L8")


class SideBySide(TensorDictModuleBase):
    """Each player plays worlds of its own."""

    def __init__(self, env, players):
        super().__init__()
        self.players = [player(env) for player in players.values()]
        self.in_keys, self.out_keys = self.players[0].in_keys, self.players[0].out_keys

    def forward(self, tensordict):
        action = ("agents", "action")
        played = [player(tensordict.clone())[action].split(WORLDS) for player in self.players]
        return tensordict.set(action, torch.cat([rows[index] for index, rows in enumerate(played)]))


def play(level, players, **options):
    """The figures of each player, on the same level."""
    torch.manual_seed(0)
    env = TownEnv(len(players) * WORLDS, level=level, seed=5, **options)
    episodes = evaluate_policy(SideBySide(env, players), env)
    parts = {name: values.split(WORLDS) for name, values in episodes.items()}
    return {
        player: summarize({name: rows[index] for name, rows in parts.items()}) for index, player in enumerate(players)
    }


@pytest.mark.parametrize(
    "level",  # of each kind one, as all take long
    [
        level if level in ("L0", "L3") else pytest.param(level, marks=pytest.mark.slow)
        for level in (*LESSONS, *LONELY, *CONTESTED)
    ],
)
def test_living_pays_and_idleness_does_not(level):
    figures = play(level, {**LIVING, **IDLE}, rules=FAST if level == "L3" else None)
    greedy = figures["greedy"]
    assert figures["random"]["illegal_actions"] == greedy["illegal_actions"] == 0
    if level in LESSONS:  # without a happy end
        assert greedy["win_rate"] == 0
        assert greedy["lifetime"] > 1.3 * figures["waiting"]["lifetime"]
        return
    if level in CONTESTED:
        assert greedy["win_rate"] > 0.75
        assert greedy["contested"] > 1
    else:
        assert greedy["win_rate"] == 1.0
    for idler in IDLE:
        assert figures[idler]["return_mean"] < greedy["return_mean"] / 3, idler
        assert figures[idler]["win_rate"] == 0, idler


def test_known_tricks_earn_less_than_living():
    figures = play("L3", {**LIVING, **TRICKS}, rules=FAST)
    for trick in TRICKS:
        assert figures[trick]["return_mean"] < figures["greedy"]["return_mean"] / 2, trick


def test_rewards_that_were_hacked_can_still_be_hacked():
    """Teaching examples keep their flaw: under ``proximity`` a parked agent earns nearly as much as it possibly can."""
    parked = play("L3", {"parked": TRICKS["presser"]}, rules={"reward": "proximity", **FAST})["parked"]
    assert parked["return_mean"] > 0.9 * parked["lifetime"]


def test_no_player_keeps_the_world_that_it_observes():
    """Else whatever moves, copies or saves the policy would do so with every town of its world."""
    env = TownEnv(2, level="L6")
    experts = {name: player for name, several in env.experts().items() for player in several}
    for name, player in (env.players() | experts).items():
        assert list(player.modules()) == [player], name
        assert not player.state_dict(), name


# --- fog --------------------------------------------------------------------------------------------------------------


def known(state, player):
    """Slots that the first town's player knows the cell of."""
    return (player.knowledge.places.x[:, 0, 0] > ABSENT // 2).nonzero().squeeze(1).tolist()


def test_it_remembers_the_places_that_it_has_seen_and_no_others(scene):
    town = scene("L4")  # 8 x 8, a window of 5 x 5
    bed, job = town.place("Bed", 2, 2), town.place("Job", 3, 0)
    player, forgets = FogPlayer(town.env, remembers=True), FogPlayer(town.env, remembers=False)

    root = town.step("wait")

    def act():
        for each in (player, forgets):
            each(root.copy())

    act()
    assert known(town.state, player) == known(town.state, forgets) == [bed]
    town.put(x=5, y=0)
    act()
    assert known(town.state, player) == sorted([bed, job])
    assert known(town.state, forgets) == [job]
    town.state.tally.lifetime.fill_(0)  # another episode
    act()
    assert known(town.state, player) == [job]


def test_a_place_that_has_moved_is_forgotten_when_its_cell_is_seen(scene):
    town = scene("L4")
    bed = town.place("Bed", 2, 2)
    knowledge = update_knowledge(town.state, nothing_known(town.state, town.rules), town.rules)
    town.place("Bed", 7, 7)
    assert update_knowledge(town.state, knowledge, town.rules).places.x[bed].item() == ABSENT
    town.put(x=7, y=0)  # from where neither cell is seen
    assert update_knowledge(town.state, knowledge, town.rules).places.x[bed].item() == 2
    town.put(x=6, y=6)
    assert update_knowledge(town.state, knowledge, town.rules).places.x[bed].item() == 7


def test_it_visits_the_nearest_unseen_cell_and_then_begins_anew(scene):
    town = scene("L4", width=5, height=4)
    knowledge = update_knowledge(town.state, nothing_known(town.state, town.rules), town.rules)
    assert knowledge.cells.reshape(4, 5).tolist() == [[True] * 3 + [False] * 2] * 3 + [[False] * 5]
    assert [cell.item() for cell in nearest_unseen(town.state, knowledge.cells, town.rules)] == [3, 0]
    town.put(x=3, y=3)
    knowledge = update_knowledge(town.state, knowledge, town.rules)
    assert [cell.item() for cell in nearest_unseen(town.state, knowledge.cells, town.rules)] == [3, 0]
    town.put(x=3, y=1)
    knowledge = update_knowledge(town.state, knowledge, town.rules)
    assert (~knowledge.cells).nonzero().tolist() == [[15, 0, 0]]  # (0, 3)
    town.put(x=2, y=3)  # sees the last one: from now on only what is in sight counts
    knowledge = update_knowledge(town.state, knowledge, town.rules)
    assert knowledge.cells.reshape(4, 5).tolist() == [[False] * 5] + [[True] * 5] * 3
    assert [cell.item() for cell in nearest_unseen(town.state, knowledge.cells, town.rules)] == [2, 0]


def test_the_way_round_comes_by_every_cell(scene):
    town = scene("L4")
    seen = torch.zeros(8, 8, dtype=torch.bool)
    x, y, visited = 0, 0, set()
    for _ in range(20):
        visited.add((x, y))
        town.put(x=x, y=y)
        seen[max(y - 2, 0) : y + 3, max(x - 2, 0) : x + 3] = True
        to_x, to_y = (cell.item() for cell in way_round(town.state, town.rules))
        x, y = (x + (to_x > x) - (to_x < x), y) if to_x != x else (x, y + (to_y > y) - (to_y < y))
    assert seen.all()
    assert {(5, 3), (3, 5), (2, 3), (3, 2)} <= visited  # clockwise, and back to where it began


@pytest.mark.parametrize(
    ("level", "agents", "make"),
    [("L4", 1, lambda env: FogPlayer(env, remembers=False)), ("L6", 3, lambda env: env.players()["remembering"])],
    ids=["alone", "several"],
)
def test_with_the_whole_map_in_sight_it_is_the_greedy_player(level, agents, make):
    env = TownEnv(16, level=level, num_agents=agents, rules={"view": 8}, seed=1)
    root, player, greedy = env.reset(), make(env), env.players()["greedy"]
    for _ in range(10):
        assert torch.equal(*(each(root.copy())["agents", "action"] for each in (player, greedy)))
        root = env.step_and_maybe_reset(greedy(root))[1]


def test_without_knowledge_it_explores_the_town(scene):
    town = scene("L4")
    town.set(all=0.9, energy=0.2)
    town.place("Bed", 0, 6)
    root = town.env.fake_tensordict()
    for remembers in (True, False):
        action = FogPlayer(town.env, remembers)(root)["agents", "action"]
        assert town.rules.action_names[action.item()] == "right"
    assert town.rules.action_names[town.env.players()["greedy"](root)["agents", "action"].item()] == "down"


def test_each_agent_in_the_fog_goes_by_what_it_has_seen_itself(scene):
    town = scene("L4", num_agents=2)
    town.set(all=0.9, energy=0.2)
    bed = town.place("Bed", 2, 0)
    town.put(x=0, y=0)
    town.put(agent=1, x=7, y=0)
    player = FogPlayer(town.env, remembers=True, agents=2)

    def act():
        chosen = player(town.env.fake_tensordict())["agents", "action"]
        return [town.rules.action_names[action] for action in chosen[0].tolist()]

    assert act()[0] == "right"
    assert player.knowledge.places.x[bed].tolist() == [[2], [ABSENT]]
    town.state.tally.lifetime.fill_(1)
    town.place("Bed", 7, 1)  # it moves to where the second sees it, and the first does not
    town.put(agent=0, x=4, y=4)
    assert act() == ["left", "down"], "the first believes what is no longer so"
    assert player.knowledge.places.x[bed].tolist() == [[2], [7]]
    town.place("Bed", 0, 7)
    town.put(agent=1, x=4, y=0)
    assert act() == ["left", "right"], "now the second does, too"
