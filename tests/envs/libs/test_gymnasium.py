"""Gymnasium's worlds for us: actions, pictures, closing."""

from __future__ import annotations

import time
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from counting_world import NAME, OPEN, registered
from gymnasium.vector import SyncVectorEnv
from strange_worlds import Broken, Lengths, Masked, Reporter, TwoHeads
from tensordict import assert_close

from envs.libs.gymnasium import VectorGymEnv
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.config import ModelConfig
from torchrl_agent.optimization.compilation import AccelerationConfig
from torchrl_agent.training.collector import RolloutCollector
from torchrl_agent.training.world_check import check_world


@pytest.fixture(autouse=True)
def known():
    """The counting world by its name."""
    with registered():
        yield


def test_discrete_actions_count_from_0_whatever_the_first_one_is_called():
    env = VectorGymEnv(NAME, 2, device="cpu")
    assert env.action_spec.space.n == 3
    root = env.reset()
    for number in range(3):
        root = env.step(root.set("action", torch.tensor([number, 2 - number])))["next"]
    assert [[int(action) for action in world.actions] for world in OPEN] == [[5, 6, 7], [7, 6, 5]]
    check_world(env)


def test_every_world_that_is_made_is_closed():
    env = VectorGymEnv(NAME, 3)
    assert len(OPEN) == 3, "the one that was tried is closed"
    env.close()
    assert not OPEN


def test_a_world_is_drawn_by_its_own_render():
    env = VectorGymEnv(NAME, 2, device="cpu", **VectorGymEnv.film_arguments)
    assert env.metadata["render_fps"] == 15
    root = env.reset()
    for step in range(3):
        picture = env.draw(1)
        assert picture.dtype == np.uint8 and picture.shape == (44, 66, 3) and (picture == 20 * step).all()
        root = env.step(root.set("action", env.action_spec.rand()))["next"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"paints": None}, rf"{NAME} cannot be drawn: its render gives object of shape \(\), no picture"),
        ({"drawn": False}, rf"{NAME} cannot be drawn: pencil is not installed, or pip install .*\[render\]"),
    ],
)
def test_a_world_that_cannot_be_drawn_says_why(options, named):
    assert not hasattr(VectorGymEnv(NAME, 2, device="cpu", **options), "draw")
    env = VectorGymEnv(NAME, 2, device="cpu", render_mode="rgb_array", **options)
    env.reset()
    with pytest.raises(ValueError, match=named) as caught:
        env.draw(0)
    assert "\n" not in str(caught.value)


# --- masks of legal actions ------------------------------------------------------------------------------------------


def play(env, steps=12):
    """Random legal steps; the frames."""
    root, frames = env.reset(), []
    for _ in range(steps):
        frame, root = env.step_and_maybe_reset(root.set("action", legal_action(env, root)))
        frames.append(frame)
    return torch.stack(frames, 1)


def legal_action(env, root):
    spec = env.full_action_spec["action"].clone()
    spec.update_mask(root["action_mask"])
    return spec.rand()


@pytest.mark.parametrize("where", ["observation", "info", "action_masks", "get_action_mask", "valid_action_mask"])
def test_masks_are_found_and_obeyed(where):
    env = VectorGymEnv(Masked, 2, where=where)
    check_world(env)
    assert play(env)["action"].tolist() == [[step % 9 % 4 for step in range(12)]] * 2
    agent = Agent(env, ModelConfig([8]))
    eager = AccelerationConfig(step=False, advantages=False, update=False)
    assert RolloutCollector(env, agent, 12, eager).collect()["next", "reward"].mean() == 1  # it asserts legal actions


def test_masks_of_several_heads_are_obeyed_by_head():
    env = VectorGymEnv(TwoHeads, 2)
    check_world(env)
    agent = Agent(env, ModelConfig([8]))
    eager = AccelerationConfig(step=False, advantages=False, update=False)
    assert RolloutCollector(env, agent, 12, eager).collect()["next", "reward"].mean() == 1


@pytest.mark.parametrize(
    ("legal", "named"), [([0, 0, 0, 0], "forbids every choice: allow one"), ([1, 1], "has 2 entries for 4 choices")]
)
def test_masks_that_cannot_be_are_refused(legal, named):
    with pytest.raises(ValueError, match=named) as caught:
        VectorGymEnv(Masked, 2, where="info", legal=legal)
    assert "\n" not in str(caught.value) and "Masked" in str(caught.value)


# --- figures, repeats, wrappers, pictures ----------------------------------------------------------------------------


def test_numbers_in_info_are_episode_statistics():
    env = VectorGymEnv(Reporter, 2)
    check_world(env)
    frames = env.rollout(5, break_when_any_done=False)
    statistics = frames["next", "episode"]
    assert set(statistics.keys()) == {"return", "length", "info_speed", "info_is_success"}
    assert statistics["info_speed"][0, :, 0].tolist() == [1, 1.5, 2, 2.5, 1]  # means over the episode so far
    assert statistics["info_is_success"][0, :, 0].tolist() == [0, 0, 0, 1, 0]  # how it ended
    assert statistics["return"][0, :, 0].tolist() == statistics["length"][0, :, 0].tolist() == [1, 2, 3, 4, 1]


def test_each_world_repeats_actions_by_itself():
    env = VectorGymEnv(Lengths, 2, frame_skip=4)
    env.set_seed(2)  # episodes of 5 and 20 steps
    frames = env.rollout(5, break_when_any_done=False)
    assert frames["next", "reward"][:, :, 0].tolist() == [[4, 1, 4, 1, 4], [4, 4, 4, 4, 4]]


def test_wrappers_are_named_in_order():
    env = VectorGymEnv(Reporter, 2, wrappers=[{"FrameStackObservation": {"stack_size": 2}}, "FlattenObservation"])
    frames = env.rollout(3)
    assert frames["next", "observation"][0].tolist() == [[0, 1], [1, 2], [2, 3]]
    env = VectorGymEnv(Reporter, 2, wrappers=[{"TimeLimit": {"max_episode_steps": 2}}])
    assert env.rollout(4)["next", "truncated"][0, :, 0].tolist() == [False, True]


def test_the_usual_wrappers_have_keys():
    env = VectorGymEnv(Reporter, 2, length=9, noop_start=3, frame_stack=2)
    env.set_seed(0)
    first = env.reset()["observation"]
    assert first.shape == (2, 2)
    begun = {int(env.reset()["observation"][0, -1]) for _ in range(20)}
    assert begun == {1, 2, 3}  # idle steps
    env = VectorGymEnv(Reporter, 2, from_pixels=True, gray=True, resize=[4, 4])
    assert env.reset()["pixels"].shape == (2, 16)  # so small that it is no picture


def test_sticky_actions_repeat_the_last_one():
    env = VectorGymEnv(NAME, 2, sticky_actions=1 - 1e-12)
    root = env.reset()
    for number in range(3):
        root = env.step(root.set("action", torch.tensor([number, number])))["next"]
    made = [[int(action) for action in world.actions] for world in OPEN]
    assert made == [[5, 5, 5]] * 2


@pytest.mark.parametrize(
    ("wrapper", "named"),
    [
        ("RecordVideo", "there is no wrapper 'RecordVideo': use some of"),
        ({"GrayscaleObservation": {}}, "GrayscaleObservation cannot be put here .*order of the wrappers"),
        ({"TimeLimit": {"steps": 2}}, "TimeLimit cannot be put here .*check its arguments"),
        ({"TimeLimit": {}, "ClipReward": {}}, "give each wrapper as NAME or"),
    ],
)
def test_wrappers_that_cannot_be_are_refused(wrapper, named):
    with pytest.raises(ValueError, match=named):
        VectorGymEnv(Reporter, 2, wrappers=[wrapper])


def test_from_pixels_shows_what_the_world_draws():
    env = VectorGymEnv(Reporter, 2, from_pixels=True)
    frames = env.rollout(3)
    assert frames["pixels"].shape == (2, 3, 3, 8, 9) and frames["pixels"].dtype == torch.uint8
    assert frames["pixels"][0, :, 0, 0, 0].tolist() == [0, 1, 2] and "observation" not in frames.keys()
    assert {"pixels", "state_seen"} <= set(
        VectorGymEnv(Reporter, 2, from_pixels=True, pixels_only=False).reset().keys()
    )


def test_worlds_in_processes_play_the_same_games():
    games = []
    for processes in (False, True):
        env = VectorGymEnv("CartPole-v1", 3, processes=processes)
        env.set_seed(5)
        torch.manual_seed(0)
        games.append(env.rollout(60, break_when_any_done=False))
        env.close()
    assert_close(*games)


class Interrupted(Lengths):
    """A world in which a busy machine interrupts one step."""

    interruptions: ClassVar = [0.2]

    def step(self, action):
        if self.interruptions:
            time.sleep(self.interruptions.pop())
        return super().step(action)


def test_a_step_that_is_interrupted_makes_no_process_of_each_world():
    env = VectorGymEnv(Interrupted, 2)
    assert not Interrupted.interruptions and isinstance(env._env, SyncVectorEnv)


# --- faults of theirs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ("raises", r"step of Broken failed \(ZeroDivisionError: it says nothing, strange_worlds.py:\d+\): fix"),
        ("shape", r"step of Broken failed \(ValueError: observation has shape \(4,\), its space \(3,\): make"),
        ("type", r"step of Broken failed \(ValueError: observation has type <U1, its space float32"),
    ],
)
def test_an_error_of_a_world_is_one_sentence(fault, named):
    env = VectorGymEnv(Broken, 2, fault=fault)
    with pytest.raises(ValueError, match=named) as caught:
        env.rollout(80)
    assert "\n" not in str(caught.value)


def test_a_world_that_fails_at_once_is_reported_when_it_is_made():
    with pytest.raises(ValueError, match=r"the first steps of Broken failed \(KeyError: 'nothing', strange_worlds.py"):
        VectorGymEnv(Broken, 2, fault="reset")


@pytest.mark.parametrize(
    ("fault", "named"),
    [("dies", "a process of Broken ended in its step .*world.processes=false"), ("hangs", "Broken took more than 1 s")],
)
def test_a_world_that_dies_or_hangs_in_its_process_is_reported(fault, named, monkeypatch):
    monkeypatch.setattr("envs.libs.gymnasium.PATIENCE", 1.0)
    env = VectorGymEnv(Broken, 2, fault=fault, processes=True)
    with pytest.raises(ValueError, match=named):
        env.rollout(80)
    env.close()


@pytest.mark.parametrize("name", ["CartPool-v1", "CartPole-v9", "nowhere:Nothing-v0", "nowhere/Nothing-v0"])
def test_a_world_that_does_not_exist_is_one_sentence(name):
    with pytest.raises(ValueError, match=name.replace("/", ".")) as caught:
        VectorGymEnv(name, 2)
    assert "\n" not in str(caught.value)


def test_a_package_that_a_world_lacks_is_one_sentence():
    gymnasium.register("Lacking-v0", "a_package_that_is_not_there:World")
    try:
        with pytest.raises(ValueError, match=r"Lacking-v0 needs another package: .*a_package_that_is_not_there"):
            VectorGymEnv("Lacking-v0", 2)
    finally:
        del gymnasium.registry["Lacking-v0"]
