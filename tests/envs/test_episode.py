"""The statistics that every world keeps of its episodes, those of older versions included."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torchrl.data import Categorical, Composite, Unbounded

from envs import ArenaEnv, TownEnv, World
from envs.base.episode import begin_episode


class State(NamedTuple):
    step: Tensor


class Count(World):
    """World n ends after n + 2 steps; step k is worth k to agent 0 and 10 k to agent 1."""

    def __init__(self, num_envs=1, *, agents=None, midway=False, **options):
        super().__init__(num_envs, **options)
        self.num_agents = agents
        shape = (num_envs,) if agents is None else (num_envs, agents)
        seen = Composite(clock=Unbounded((*shape, 1)), shape=shape)
        specs = seen if agents is None else Composite(agents=seen, shape=(num_envs,))
        self._build(specs, Categorical(2, shape=shape), midway=midway)

    def settings(self):
        return State(torch.zeros(self.num_envs))

    def spawn(self, settings, chance, midway):
        return State(torch.full_like(settings.step, float(midway)))

    def advance(self, state, action, chance):
        return State(state.step + 1)

    def observe(self, state):
        clock = state.step.clone().unsqueeze(-1)
        return (
            {"clock": clock} if self.num_agents is None else {"agents": {"clock": clock.unsqueeze(1).repeat(1, 2, 1)}}
        )

    def outcome(self, state):
        reward = state.step if self.num_agents is None else torch.stack((state.step, 10 * state.step))
        over = state.step >= torch.arange(self.num_envs) + 2
        return reward, over, torch.zeros_like(over)


class PrizeState(NamedTuple):
    step: Tensor
    prize: Tensor


class Prize(Count):
    """Each step is worth the prize of the game, the moment at which it began."""

    def spawn(self, settings, chance, midway):
        return PrizeState(torch.zeros_like(settings.step), chance.clock.float())

    def advance(self, state, action, chance):
        return state._replace(step=state.step + 1)

    def outcome(self, state):
        return state.prize, *super().outcome(state)[1:]


def reported(env, steps):
    """Episode statistics after each step, by name [steps, N]."""
    root, seen = env.reset(), []
    for _ in range(steps):
        root.set(env.action_key, env.full_action_spec[env.action_key].zero())
        played, root = env.step_and_maybe_reset(root)
        seen.append(played["next", "episode"])
    return {name: value.squeeze(-1).tolist() for name, value in torch.stack(seen).items()}


def test_a_world_counts_what_its_game_does_not():
    seen = reported(Count(2), 4)
    assert seen["return"] == [[1, 1], [1 + 2, 1 + 2], [1, 3 + 3], [1 + 2, 1]]  # world 0 ends in steps 2 and 4
    assert seen["length"] == [[1, 1], [2, 2], [1, 3], [2, 1]]
    assert seen["complete"] == [[1, 1]] * 4
    assert seen["stage"] == [[0, 0]] * 4
    assert set(seen) == {"return", "length", "complete", "stage"}


def test_rewards_stay_what_they_were_when_a_world_begins_anew():
    env = Prize(1)
    root, rewards, prizes = env.reset(), [], []
    for _ in range(7):
        prizes.append(env.state.prize.item())
        played, root = env.step_and_maybe_reset(root.set("action", env.action_spec.zero()))
        rewards.append(played["next", "reward"])
    assert len(set(prizes)) == 4
    assert torch.stack(rewards).flatten().tolist() == prizes


def test_the_return_of_several_agents_is_their_mean():
    env = Count(2, agents=2)
    assert reported(env, 2)["return"] == [[5.5, 5.5], [16.5, 16.5]]
    assert env.episode.total_reward.tolist() == [[0, 3], [0, 30]]  # world 0 has begun anew


def test_an_episode_that_begins_midway_is_not_complete_and_the_next_one_is():
    seen = reported(Count(1, midway=True), 4)
    assert seen["length"] == [[1], [1], [2], [1]]  # steps that were played, the first one from 1 to 2
    assert seen["complete"] == [[0], [1], [1], [1]]


def test_books_take_the_stage_that_fresh_worlds_get():
    env = ArenaEnv(2, curriculum="ladder", stage=1, rules={"max_steps": 2})
    assert reported(env, 1)["stage"] == [[1, 1]]
    env.curriculum.stage = 2
    env.begin_stage()
    assert reported(env, 3)["stage"] == [[2, 2]] * 3


def test_a_world_that_waits_for_its_reset_earns_nothing_and_grows_no_older():
    env = Count(1)
    root = env.reset().set("action", torch.zeros(1, dtype=torch.int64))
    for expected in (1, 3, 3, 3):
        assert env.step(root)["next", "episode", "return"].item() == expected
    assert env.episode.length.item() == 0


def test_a_game_leaves_to_the_world_what_the_world_counts():
    class Counts(Count):
        def statistics(self, state):
            return {"return": state.step * 7, "win": state.step}

    with pytest.raises(ValueError, match="statistics gives return, which the world counts itself"):
        Counts(1)


# --- constructors


@pytest.mark.parametrize("make", [ArenaEnv, TownEnv, Count])
def test_all_but_the_number_of_worlds_is_given_by_keyword(make):
    with pytest.raises(TypeError, match="positional"):
        make(2, "cpu")


def test_books_begin_empty():
    episode = begin_episode(torch.tensor([3, 3], dtype=torch.int16), num_agents=4, complete=False)
    assert episode.total_reward.shape == (4, 2)
    assert {name: value.tolist() for name, value in episode.statistics().items()} == {
        "return": [0, 0],
        "length": [0, 0],
        "complete": [0, 0],
        "stage": [3, 3],
    }
