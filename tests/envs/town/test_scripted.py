"""The scripted players: what they reach on every level, and that idleness and tricks do not pay."""

from __future__ import annotations

import functools

import pytest
import torch
from tensordict.nn import TensorDictModuleBase

from envs import TownEnv
from envs.town.scripted import ConstantPlayer, GreedyPlayer, RandomPlayer
from torchrl_agent.training.evaluation import evaluate_policy, summarise

WORLDS = 24
"""Of each player."""

pytestmark = pytest.mark.xdist_group("players of the town")  # so that a level is played once


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


PLAYERS = {
    "greedy": GreedyPlayer,
    "resting": lambda env: ConstantPlayer(env, "rest"),
    "waiting": lambda env: ConstantPlayer(env, "wait"),
    "random": RandomPlayer,
    "oscillator": lambda env: Oscillator(env, "wait"),
    "presser": lambda env: Presser(env, "wait"),
}


class SideBySide(TensorDictModuleBase):
    """Each player plays worlds of its own."""

    def __init__(self, env):
        super().__init__()
        self.players = [player(env) for player in PLAYERS.values()]
        self.in_keys, self.out_keys = self.players[0].in_keys, self.players[0].out_keys

    def forward(self, tensordict):
        action = ("agents", "action")
        played = [player(tensordict.clone())[action].split(WORLDS) for player in self.players]
        return tensordict.set(action, torch.cat([rows[index] for index, rows in enumerate(played)]))


@functools.cache
def figures(level):
    """Of every player, on the same level."""
    torch.manual_seed(0)
    env = TownEnv(len(PLAYERS) * WORLDS, level=level, seed=5)
    episodes = evaluate_policy(SideBySide(env), env)
    rows = [{name: values.split(WORLDS)[index] for name, values in episodes.items()} for index in range(len(PLAYERS))]
    return {player: summarise(own) for player, own in zip(PLAYERS, rows, strict=True)}


@pytest.mark.parametrize("level", ["L2", "L3", "L4", "L5"])
def test_the_greedy_player_retires(level):
    greedy = figures(level)["greedy"]
    assert greedy["win_rate"] == 1.0
    assert greedy["illegal_actions"] == 0


@pytest.mark.parametrize("level", ["L6", "L7", "L8"])
def test_most_greedy_players_retire_where_places_are_contested(level):
    greedy = figures(level)["greedy"]
    assert greedy["win_rate"] > 0.75
    assert greedy["contested"] > 1


@pytest.mark.parametrize("level", ["L0", "L1"])
def test_lessons_without_a_happy_end(level):
    players = figures(level)
    assert players["greedy"]["win_rate"] == 0
    assert players["greedy"]["lifetime"] > 1.3 * players["waiting"]["lifetime"]


@pytest.mark.parametrize("level", ["L2", "L3", "L5", "L6"])
def test_neither_resting_nor_waiting_nor_chance_pays(level):
    players = figures(level)
    for idler in ("resting", "waiting", "random"):
        assert players[idler]["return_mean"] < players["greedy"]["return_mean"] / 3
        assert players[idler]["win_rate"] == 0


@pytest.mark.parametrize("trick", ["oscillator", "presser"])
def test_known_tricks_earn_less_than_living(trick):
    players = figures("L3")
    assert players[trick]["return_mean"] < players["greedy"]["return_mean"] / 2


def test_rewards_that_were_hacked_can_still_be_hacked():
    """Teaching examples keep their flaw: under ``proximity`` a parked agent earns nearly as much as it possibly can."""
    env = TownEnv(WORLDS, level="L3", seed=5, rules={"reward": "proximity"})
    parked = summarise(evaluate_policy(Presser(env, "wait"), env))
    assert parked["return_mean"] > 0.9 * parked["lifetime"]


@pytest.mark.parametrize("level", ["L3", "L8"])
def test_random_players_take_legal_actions_only(level):
    assert figures(level)["random"]["illegal_actions"] == 0
