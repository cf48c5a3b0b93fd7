"""The Gymnasium view of a world."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from envs import ArenaEnv
from envs.arena import Rules
from envs.gym import GymnasiumVectorEnv


@pytest.fixture
def vector():
    return GymnasiumVectorEnv(ArenaEnv(num_envs=8, seed=1, rules=Rules(max_steps=150), desynchronise=True))


def test_it_is_a_vector_env_that_resets_in_the_same_step(vector):
    assert isinstance(vector, gymnasium.vector.VectorEnv)
    assert vector.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert vector.single_observation_space.shape == (32,)
    assert vector.observation_space.shape == (8, 32)
    assert vector.single_action_space.n == 5


def test_observations_lie_in_their_space_and_types_are_gymnasiums(vector):
    observation, infos = vector.reset(seed=3)
    assert infos == {}
    assert observation in vector.observation_space
    observation, reward, terminated, truncated, _ = vector.step(vector.action_space.sample())
    assert observation in vector.observation_space
    assert reward.dtype == np.float64
    assert terminated.dtype == truncated.dtype == bool


def test_the_same_seed_is_the_same_game(vector):
    games = []
    for _ in range(2):
        game = [vector.reset(seed=7)[0]]
        game += [vector.step(np.full(8, step % 5))[0] for step in range(20)]
        games.append(np.stack(game))
    assert np.array_equal(*games)


def test_the_true_last_observation_and_the_statistics_are_in_the_infos(vector):
    vector.reset()
    ends = 0
    for _ in range(400):
        observation, _, terminated, truncated, infos = vector.step(np.zeros(8, dtype=np.int64))
        done = terminated | truncated
        assert ("final_obs" in infos) == done.any()
        if done.any():
            assert np.array_equal(infos["_final_obs"], done)
            assert not np.array_equal(infos["final_obs"][done], observation[done])
            assert np.array_equal(infos["final_obs"][~done], observation[~done])
            assert (infos["final_info"]["length"][done] > 0).all()
            ends += done.sum()
    assert ends > 3


def test_gymnasiums_own_statistics_agree_with_ours(vector):
    recorded = RecordEpisodeStatistics(vector)
    recorded.reset()
    compared = 0
    for _ in range(400):
        _, _, terminated, truncated, infos = recorded.step(np.zeros(8, dtype=np.int64))
        done = terminated | truncated
        if done.any():
            np.testing.assert_allclose(infos["episode"]["r"][done], infos["final_info"]["return"][done], rtol=1e-4)
            assert np.array_equal(infos["episode"]["l"][done], infos["final_info"]["length"][done])
            compared += 1
    assert compared


def test_several_observations_become_a_dict():
    vector = GymnasiumVectorEnv(ArenaEnv(num_envs=2, observation="dict"))
    observation, _ = vector.reset()
    assert isinstance(vector.single_observation_space, gymnasium.spaces.Dict)
    assert observation["player_state"].shape == (2, 7)


def test_pictures_of_all_worlds(vector):
    vector.reset()
    frames = vector.render()
    assert len(frames) == 8
    assert frames[0].dtype == np.uint8


@pytest.mark.parametrize(
    ("actions", "named"),
    [
        (np.zeros(3, dtype=int), "shape"),
        (np.zeros(8), "type"),
        (np.full(8, 5), "within"),
        (np.full(8, -1), "within"),
    ],
)
def test_bad_actions_are_refused(vector, actions, named):
    vector.reset()
    with pytest.raises(ValueError, match=named):
        vector.step(actions)


def test_stepping_needs_a_reset_and_seeds_are_single_numbers(vector):
    with pytest.raises(ValueError, match="reset"):
        vector.step(np.zeros(8, dtype=int))
    with pytest.raises(ValueError, match="seed"):
        vector.reset(seed=[1, 2])
