"""The scripted players: what they reach on every level, and that idleness and tricks do not pay."""

from __future__ import annotations

import pytest
import torch
from tensordict.nn import TensorDictModuleBase

from envs import TownEnv
from envs.base.players import RandomPlayer
from envs.town.scripted import ConstantPlayer, GreedyPlayer
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


def test_no_player_owns_the_world_it_looks_at():
    """Else whatever moves, copies or saves the policy would do so with every town of its world."""
    env = TownEnv(2, level="L6")
    experts = {name: player for name, several in env.experts().items() for player in several}
    for name, player in (env.players() | experts).items():
        assert list(player.modules()) == [player], name
        assert not player.state_dict(), name
