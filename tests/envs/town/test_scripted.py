"""The scripted players: what they reach on every level, and that idleness and tricks do not pay."""

from __future__ import annotations

import pytest
import torch

from envs import TownEnv
from envs.town.scripted import ConstantPlayer, GreedyPlayer, RandomPlayer
from torchrl_agent.training.evaluation import evaluate_policy, summarise

WORLDS = 32


def play(level, player, **options):
    torch.manual_seed(0)
    env = TownEnv(WORLDS, level=level, seed=5, **options)
    return summarise(evaluate_policy(player(env), env))


@pytest.mark.parametrize("level", ["L2", "L3", "L4", "L5"])
def test_the_greedy_player_retires(level):
    figures = play(level, GreedyPlayer)
    assert figures["win_rate"] == 1.0
    assert figures["illegal_actions"] == 0


@pytest.mark.parametrize("level", ["L6", "L7", "L8"])
def test_most_greedy_players_retire_where_places_are_contested(level):
    figures = play(level, GreedyPlayer)
    assert figures["win_rate"] > 0.75
    assert figures["contested"] > 1


@pytest.mark.parametrize("level", ["L0", "L1"])
def test_lessons_without_a_happy_end(level):
    greedy, waiting = play(level, GreedyPlayer), play(level, lambda env: ConstantPlayer(env, "wait"))
    assert greedy["win_rate"] == 0
    assert greedy["lifetime"] > 1.3 * waiting["lifetime"]


@pytest.mark.parametrize("level", ["L2", "L3", "L5", "L6"])
def test_neither_resting_nor_waiting_nor_chance_pays(level):
    greedy = play(level, GreedyPlayer)["return_mean"]
    idlers = [lambda env: ConstantPlayer(env, "rest"), lambda env: ConstantPlayer(env, "wait"), RandomPlayer]
    for idler in idlers:
        figures = play(level, idler)
        assert figures["return_mean"] < greedy / 3
        assert figures["win_rate"] == 0


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


@pytest.mark.parametrize("player", [Oscillator, Presser])
def test_known_tricks_earn_less_than_living(player):
    assert play("L3", lambda env: player(env, "wait"))["return_mean"] < play("L3", GreedyPlayer)["return_mean"] / 2


def test_rewards_that_were_hacked_can_still_be_hacked():
    """Teaching examples keep their flaw: under ``proximity`` a parked agent earns nearly as much as it possibly can."""
    rules = {"reward": "proximity"}
    parked = play("L3", lambda env: Presser(env, "wait"), rules=rules)
    assert parked["return_mean"] > 0.9 * parked["lifetime"]


def test_random_players_take_legal_actions_only():
    for level in ("L3", "L8"):
        assert play(level, RandomPlayer)["illegal_actions"] == 0
