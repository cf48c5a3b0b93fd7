"""Worlds by Gymnasium's ids, and one world as a Gymnasium environment."""

from __future__ import annotations

import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.wrappers import RecordEpisodeStatistics

from envs import ArenaEnv
from envs.adapters.gymnasium_registration import register_worlds
from envs.adapters.gymnasium_single import GymnasiumEnv
from envs.adapters.gymnasium_vector import GymnasiumVectorEnv
from envs.arena import Rules

IDS = ["TorchRLAgent/Arena-v0", "TorchRLAgent/Town-v0"]
OPTIONS = [
    (IDS[0], {}),
    (IDS[0], {"observation": "pixels", "style": 2, "seed": 4}),
    (IDS[0], {"observation": "dict"}),
    (IDS[1], {}),
    (IDS[1], {"level": "L5", "observation": "groups"}),
]


def short_world(num_envs=1):
    return ArenaEnv(num_envs=num_envs, rules=Rules(max_steps=40))


@pytest.mark.parametrize(("identifier", "options"), OPTIONS)
def test_gymnasium_finds_no_fault_with_a_single_world(identifier, options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(identifier, **options)
        check_env(env.unwrapped)
    assert env.render_mode == "rgb_array"


@pytest.mark.parametrize(("identifier", "options"), OPTIONS)
def test_many_worlds_are_ours_and_play_what_a_single_one_plays(identifier, options):
    many = gymnasium.make_vec(identifier, num_envs=3, vectorization_mode="vector_entry_point", **options)
    one = gymnasium.make(identifier, **options)
    assert isinstance(many, GymnasiumVectorEnv)
    assert many.num_envs == 3
    assert many.single_observation_space == one.observation_space
    assert many.single_action_space == one.action_space
    seen, _ = many.reset(seed=6)
    assert data_equivalence(row(seen), one.reset(seed=6)[0], exact=True)
    for step in range(20):
        seen, reward, *_ = many.step(np.full(3, step % 5))
        following, mine, *_ = one.step(step % 5)
        assert data_equivalence(row(seen), following, exact=True)
        assert reward[0] == mine


def row(values):
    return {name: value[0] for name, value in values.items()} if isinstance(values, dict) else values[0]


@pytest.mark.slow
def test_gymnasium_alone_finds_the_ids_by_the_name_of_the_package():
    code = "import gymnasium; print(gymnasium.make('envs:TorchRLAgent/Arena-v0', style=2).action_space)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "Discrete(6)"


def test_registering_again_changes_nothing():
    before = gymnasium.spec(IDS[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register_worlds(["arena"])
    assert gymnasium.spec(IDS[0]) is before


def test_the_seed_given_at_making_is_that_of_the_first_reset():
    first, same, other = (gymnasium.make(IDS[0], seed=seed).reset()[0] for seed in (5, 5, 6))
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("identifier", "options", "named"),
    [
        (IDS[0], {"color": 3}, "unexpected keyword argument 'color'"),
        (IDS[0], {"level": "L3"}, "unexpected keyword argument 'level'"),
        (IDS[0], {"num_envs": 3}, "make_vec"),
        (IDS[0], {"observation": "smell"}, "pixels"),
        (IDS[0], {"style": 3}, "style is 3"),
        (IDS[0], {"seed": "five"}, "seed is 'five'"),
        (IDS[0], {"seed": -1}, "seed is -1"),
        (IDS[0], {"render_mode": "ansi"}, "rgb_array"),
        (IDS[1], {"level": "L77"}, "L77"),
        (IDS[1], {"style": 1}, "unexpected keyword argument 'style'"),
        (IDS[1], {"num_agents": 3}, "pettingzoo"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*render mode")
def test_options_that_cannot_work_are_refused_with_one_sentence(identifier, options, named):
    with pytest.raises((ValueError, TypeError), match=named) as caught:
        gymnasium.make(identifier, **options)
    assert "\n" not in str(caught.value)
    if "num_envs" not in options:
        with pytest.raises((ValueError, TypeError), match=named):
            gymnasium.make_vec(identifier, num_envs=2, **options)


def test_a_single_world_shows_the_true_last_observation_and_its_statistics():
    env = GymnasiumEnv(short_world())
    vector = GymnasiumVectorEnv(short_world())
    recorded = RecordEpisodeStatistics(env)
    recorded.reset(seed=2)
    vector.reset(seed=2)
    for step in range(1, 41):
        observation, _, terminated, truncated, info = recorded.step(step % 5)
        _, _, _, _, infos = vector.step(np.full(1, step % 5))
        if terminated or truncated:
            break
    assert (terminated, truncated, step) == (False, True, 40)
    assert np.array_equal(observation, infos["final_obs"][0])
    assert info["length"] == info["episode"]["l"] == 40
    assert info["return"] == pytest.approx(info["episode"]["r"], rel=1e-4)
    with pytest.raises(ValueError, match="call reset"):
        env.step(0)
    recorded.reset()
    recorded.step(0)


def test_a_single_town_gives_the_mask_of_the_last_moment_too():
    env = gymnasium.make(IDS[1], level="L2")
    _, info = env.reset(seed=1)
    ended = False
    while not ended:
        assert info["action_mask"].shape == (8,)
        _, _, terminated, truncated, info = env.step(int(info["action_mask"].argmax()))
        ended = terminated or truncated
    assert info["action_mask"].shape == (8,)
    assert info["length"] > 0


@pytest.mark.parametrize("action", [1, np.int64(1), np.array(1), torch.tensor(1), np.uint8(1)])
def test_a_single_action_is_a_whole_number_of_any_kind(action):
    env = gymnasium.make(IDS[0], disable_env_checker=True)
    env.reset(seed=1)
    expected = env.step(1)
    env.reset(seed=1)
    assert data_equivalence(env.step(action), expected, exact=True)


@pytest.mark.parametrize(
    ("action", "named"),
    [([1], "shape"), (np.zeros(2, int), "shape"), (1.0, "type"), (True, "type"), (None, "type"), (5, "within")],
)
def test_a_single_action_of_another_kind_is_refused(action, named):
    env = GymnasiumEnv(short_world())
    env.reset()
    with pytest.raises(ValueError, match=named):
        env.step(action)


def test_a_single_environment_needs_a_single_world_and_draws_only_when_asked():
    with pytest.raises(ValueError, match="8 worlds"):
        GymnasiumEnv(short_world(num_envs=8))
    env = gymnasium.make(IDS[0], render_mode=None)
    env.reset()
    assert env.unwrapped.render() is None
    assert gymnasium.make_vec(IDS[0], num_envs=2, render_mode=None).render_mode is None


def test_the_picture_after_the_last_step_shows_how_the_episode_ended():
    one = gymnasium.make(IDS[0], rules={"max_steps": 3}, disable_env_checker=True)
    one.reset(seed=1)
    for _ in range(3):
        *_, truncated, _ = one.step(4)
    assert truncated
    ended = one.render()
    assert np.array_equal(ended, one.render())
    one.reset()
    assert not np.array_equal(ended, one.render())
