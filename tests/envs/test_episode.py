"""The books that every world keeps of its episodes, those of older versions included."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torchrl.data import Categorical, Composite, Unbounded

from envs import WORLDS, ArenaEnv, TownEnv, World
from envs.episode import begin_episode


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


def told(env, steps):
    """Episode statistics after each step, by name [steps, N]."""
    root, seen = env.reset(), []
    for _ in range(steps):
        root.set(env.action_key, env.full_action_spec[env.action_key].zero())
        played, root = env.step_and_maybe_reset(root)
        seen.append(played["next", "episode"])
    return {name: value.squeeze(-1).tolist() for name, value in torch.stack(seen).items()}


def test_a_world_counts_what_its_game_does_not():
    seen = told(Count(2), 4)
    assert seen["return"] == [[1, 1], [1 + 2, 1 + 2], [1, 3 + 3], [1 + 2, 1]]  # world 0 ends in steps 2 and 4
    assert seen["length"] == [[1, 1], [2, 2], [1, 3], [2, 1]]
    assert seen["complete"] == [[1, 1]] * 4
    assert seen["stage"] == [[0, 0]] * 4
    assert set(seen) == {"return", "length", "complete", "stage"}


def test_the_return_of_several_agents_is_their_mean():
    env = Count(2, agents=2)
    assert told(env, 2)["return"] == [[5.5, 5.5], [16.5, 16.5]]
    assert env.episode.total_reward.tolist() == [[0, 3], [0, 30]]  # world 0 has begun anew


def test_an_episode_that_begins_midway_is_not_complete_and_the_next_one_is():
    seen = told(Count(1, midway=True), 4)
    assert seen["length"] == [[1], [1], [2], [1]]  # steps that were played, the first one from 1 to 2
    assert seen["complete"] == [[0], [1], [1], [1]]


def test_books_take_the_stage_that_fresh_worlds_get():
    env = ArenaEnv(2, curriculum="ladder", stage=1, rules={"max_steps": 2})
    assert told(env, 1)["stage"] == [[1, 1]]
    env.curriculum.stage = 2
    env.begin_stage()
    assert told(env, 3)["stage"] == [[2, 2]] * 3


def test_a_world_that_waits_for_its_reset_earns_nothing_and_grows_no_older():
    env = Count(1)
    root = env.reset().set("action", torch.zeros(1, dtype=torch.int64))
    for expected in (1, 3, 3, 3):
        assert env.step(root)["next", "episode", "return"].item() == expected
    assert env.episode.length.item() == 0


def test_what_a_game_still_counts_itself_is_taken_from_it_with_a_warning():
    class Old(Count):
        def statistics(self, state):
            return {"return": state.step * 7, "win": state.step}

    with pytest.warns(DeprecationWarning, match="Old.statistics gives return, which the world counts itself"):
        env = Old(1)
    seen = told(env, 1)
    assert seen["return"] == [[7]] and seen["win"] == [[1]] and seen["length"] == [[1]]


# --- saved worlds of a version in which games kept the books


def older(env, town):
    """What such a version would have saved of these worlds."""
    saved = env.state_dict()
    books = {name: saved.pop(f"episode.{name}") for name in env.episode._fields}
    saved["settings.stage"] = saved.pop("stage").float()
    saved["state.tally.total_reward"] = books["total_reward"]
    if town:
        saved["state.settings.stage"] = books["stage"].float()
        saved["state.first_step"] = saved["state.step"] - books["length"].int()
    else:
        saved["state.difficulty.stage"] = books["stage"].float()
        saved["state.tally.first_step"] = saved["state.progress.step"] - books["length"]
    return saved


@pytest.mark.parametrize("name", ["arena", "town"])  # those that there were
def test_saved_worlds_of_an_older_version_go_on_with_their_books(name):
    options = {"curriculum": "ladder" if name == "arena" else "depletion", "stage": 2, "desynchronize": True}
    env, other = (WORLDS[name](3, seed=seed, **options) for seed in (1, 2))
    told(env, 5)
    env._snapshot.episode.complete.copy_(torch.tensor([False, False, False]))
    other.load_state_dict(older(env, town=name == "town"))
    for key, value in env.state_dict().items():
        if key != "curriculum":
            assert torch.equal(value, other.state_dict()[key]), key


def test_episodes_of_unknown_beginning_count_as_begun_midway():
    env, other = Count(2), Count(2)
    saved = {
        name: value for name, value in env.state_dict().items() if not name.startswith("episode") and name != "stage"
    }
    other.load_state_dict(saved)
    assert not other.episode.complete.any() and not other.episode.length.any()


# --- constructors


@pytest.mark.filterwarnings("ignore:.*by keyword:DeprecationWarning")
@pytest.mark.parametrize("make", [ArenaEnv, TownEnv, Count])
def test_all_but_the_number_of_worlds_is_given_by_keyword(make):
    with pytest.raises(TypeError, match="positional"):
        make(2, "cpu", 5, 1)


@pytest.mark.parametrize("make", [ArenaEnv, TownEnv])
def test_device_and_seed_by_position_still_work_with_a_warning(make):
    with pytest.warns(DeprecationWarning, match="takes device and seed by keyword: write device=, seed=") as told_of:
        env = make(2, "cpu", 5)
    assert told_of[0].filename == __file__
    assert (env.reset() == make(2, device="cpu", seed=5).reset()).all()


@pytest.mark.parametrize("make", [ArenaEnv, TownEnv])
def test_desynchronise_still_works_with_a_warning(make):
    with pytest.warns(DeprecationWarning, match="has desynchronize= for desynchronise=") as told_of:
        env = make(2, seed=5, desynchronise=True)
    assert told_of[0].filename == __file__
    assert (env.reset() == make(2, seed=5, desynchronize=True).reset()).all()


def test_books_begin_empty():
    books = begin_episode(torch.tensor([3, 3], dtype=torch.int16), num_agents=4, complete=False)
    assert books.total_reward.shape == (4, 2)
    assert {name: value.tolist() for name, value in books.statistics().items()} == {
        "return": [0, 0],
        "length": [0, 0],
        "complete": [0, 0],
        "stage": [3, 3],
    }
