"""Whatever spaces Gymnasium's worlds have: all 25 ordinary ones are seen, acted in and learned on."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Sequence, Text, Tuple
from torchrl.envs.utils import check_env_specs

from envs.libs import spaces
from envs.libs.gymnasium import VectorGymEnv
from envs.libs.spaces import Actions, observation_parts
from torchrl_agent import keys
from torchrl_agent.algorithms.ppo import PPO, PPOConfig
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.config import ModelConfig
from torchrl_agent.optimization.compilation import AccelerationConfig
from torchrl_agent.training.collector import RolloutCollector
from torchrl_agent.training.world_check import check_world

PICTURE = Box(0, 255, (16, 16, 3), np.uint8)
TWO = Discrete(2)
SEEN = {
    "float64": (Box(-1, 1, (3,), np.float64), {"observation": (3,)}),
    "int_box": (Box(0, 9, (3,), np.int64), {"observation": (3,)}),
    "bool_box": (Box(0, 1, (3,), bool), {"observation": (3,)}),
    "uint8_vector": (Box(0, 255, (128,), np.uint8), {"observation": (128,)}),
    "float_2d": (Box(-1, 1, (5, 5)), {"observation": (25,)}),
    "scalar_box": (Box(-1, 1, ()), {"observation": (1,)}),
    "hwc_picture": (PICTURE, {"observation": (3, 16, 16)}),
    "chw_picture": (Box(0, 255, (3, 16, 16), np.uint8), {"observation": (3, 16, 16)}),
    "gray_picture": (Box(0, 255, (16, 16), np.uint8), {"observation": (1, 16, 16)}),
    "float_chw": (Box(0, 1, (3, 16, 16)), {"observation": (3, 16, 16)}),
    "stack": (Box(0, 255, (4, 16, 16, 3), np.uint8), {"observation": (12, 16, 16)}),
    "dict_vec": (Dict(a=Box(-1, 1, (2,)), b=Discrete(3, start=1)), {"a": (2,), "b": (3,)}),
    "dict_pic_vec": (Dict(camera=PICTURE, speed=Box(-1, 1, (2,))), {"camera": (3, 16, 16), "speed": (2,)}),
    "dict_text": (Dict(camera=PICTURE, mission=Text(9)), {"camera": (3, 16, 16)}),
    "goal": (
        Dict({name: Box(-1, 1, (2,)) for name in ("observation", "achieved_goal", "desired_goal")}),
        {"achieved_goal": (2,), "desired_goal": (2,), "observation": (2,)},
    ),
    "multibinary_obs": (MultiBinary(4), {"observation": (4,)}),
    "multidiscrete_obs": (MultiDiscrete([3, 4]), {"observation": (7,)}),
    "nested": (
        Dict(sensors=Dict(lidar=Box(0, 1, (8,)), hit=MultiBinary(2)), state=Tuple((TWO, Box(0, 1, (1,))))),
        {"sensors_lidar": (8,), "sensors_hit": (2,), "state_0": (2,), "state_1": (1,)},
    ),
}
TAKEN = {
    "act_discrete": (TWO, 2),
    "act_multidiscrete": (MultiDiscrete([3, 4]), 7),
    "act_multibinary": (MultiBinary(3), 6),
    "act_start1": (Discrete(3, start=1), 3),
    "act_start_multi": (MultiDiscrete([[2, 3]], start=[[1, 5]]), 5),
    "act_box64": (Box(-0.1, 0.1, (2,), np.float64), 2),
    "act_box2d": (Box(-1, 1, (2, 2)), 4),
    "act_scalar": (Box(-1, 1, ()), 1),
    "act_unbounded": (Box(-np.inf, np.inf, (2,)), 2),
    "act_one_sided": (Box(np.array([0, -np.inf]), np.array([np.inf, 0]), dtype=np.float64), 2),
    "act_int": (Box(-2, 3, (2,), np.int32), 12),
    "act_wide_int": (Box(0, 10_000, (1,), np.int64), 1),
    "act_fixed": (Box(np.array([0, 1.0]), np.array([1, 1.0]), dtype=np.float32), 1),
    "act_dict": (Dict(kind=Discrete(3), push=Box(-1, 1, (2,))), 5),
    "act_tuple": (Tuple((Discrete(3), Discrete(2, start=4))), 5),
    "act_nested": (Dict(a=Tuple((Discrete(2), Box(0, 1, (1,)))), b=MultiBinary(2)), 7),
}


class Sampled(gymnasium.Env):
    """Shows random observations, asserts that every action is in its space, and ends after five steps."""

    def __init__(self, seen=None, taken=TWO, render_mode=None):
        self.observation_space = Box(-1, 1, (3,)) if seen is None else seen
        self.action_space, self.render_mode = taken, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.count = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        self.count += 1
        return self.observation_space.sample(), 1.0, self.count == 5, False, {}


def learn_once(env):
    """An iteration of PPO; its rollout."""
    picture = any(len(spec.shape) == 4 for spec in env.observation_spec.values())
    config = ModelConfig([8])
    config.perception.enabled = picture
    agent = Agent(env, config)
    eager = AccelerationConfig(step=False, advantages=False, update=False)
    algorithm = PPO(agent, PPOConfig(rollout_steps=8, minibatch_size=8, num_epochs=1), 2, eager)
    rollout = RolloutCollector(env, agent, 8, eager).collect()
    metrics = algorithm.learn(rollout, 1e-3)
    assert all(torch.as_tensor(value).isfinite().all() for value in metrics.values())
    return rollout


@pytest.mark.parametrize("name", SEEN)
def test_every_ordinary_observation_is_seen_whole(name):
    space, shapes = SEEN[name]
    env = VectorGymEnv(Sampled, 2, seen=space)
    env.set_seed(0)
    check_env_specs(env)
    check_world(env)
    shown = {key: tuple(spec.shape[1:]) for key, spec in env.observation_spec.items() if key != "episode"}
    assert shown == shapes
    learn_once(env)


@pytest.mark.parametrize("name", TAKEN)
def test_every_ordinary_action_is_taken(name):
    space, outputs = TAKEN[name]
    env = VectorGymEnv(Sampled, 2, taken=space)
    check_env_specs(env)
    check_world(env)
    agent = Agent(env, ModelConfig([8]))
    last = [layer for layer in agent.actor_head.modules() if isinstance(layer, torch.nn.Linear)]
    assert sum(layer.out_features for layer in last if layer.out_features != 8) == outputs
    rollout = learn_once(env)
    assert rollout["next", "reward"].mean() == 1


def test_pictures_keep_their_pixels_in_either_order():
    picture = np.arange(16 * 16 * 3).reshape(16, 16, 3).astype(np.uint8)
    for space, value in ((PICTURE, picture), (Box(0, 255, (3, 16, 16), np.uint8), picture.transpose(2, 0, 1))):
        ((part,), _) = observation_parts(space)
        assert (part.find(value) == picture.transpose(2, 0, 1)).all()


def test_whole_numbers_become_codes_and_texts_are_named():
    parts, left_out = observation_parts(Dict(kind=MultiDiscrete([2, 3], start=[0, 5]), note=Text(5)))
    assert parts[0].find({"kind": np.array([1, 7])}).tolist() == [0, 1, 0, 0, 1]
    assert left_out == ["note"]
    with pytest.raises(ValueError, match=r"kind is .*not in its space"):
        parts[0].find({"kind": np.array([1, 8])})


@pytest.mark.parametrize("space", [Sequence(TWO), Graph(TWO, TWO), Dict(a=TWO, b=Sequence(TWO))])
def test_what_has_no_fixed_size_is_refused_by_its_name(space):
    with pytest.raises(ValueError, match="fixed size: wrap the world"):
        VectorGymEnv(Sampled, 2, seen=space)
    with pytest.raises(ValueError, match="fixed size: wrap the world"):
        VectorGymEnv(Sampled, 2, taken=space)


def test_a_text_alone_is_nothing_to_see():
    with pytest.raises(ValueError, match=r"Sampled: the observations are Text.*nothing in it"):
        VectorGymEnv(Sampled, 2, seen=Text(5))


def test_names_that_mean_something_else_are_changed():
    own = {name: value for name, value in vars(keys).items() if name.isupper() and not name.startswith("EPISODE_")}
    names = {value for value in own.values() if isinstance(value, str)}
    names |= {*keys.MEMORY, *keys.TORCHRL_STATISTICS.values()}
    assert names - spaces.RESERVED == {"action_mask", "achieved_goal", "desired_goal"}
    parts, _ = observation_parts(Dict(state=TWO, goal=TWO, lidar=TWO))
    assert {part.name for part in parts} == {"state_seen", "goal_seen", "lidar"}


def test_actions_of_both_kinds_reach_the_world_in_order():
    actions = Actions(Dict(a=Tuple((Discrete(2, start=3), Box(-1, 1, (2,)))), b=MultiBinary(2), c=Box(0, 9, ())))
    value = actions.value(np.array([1, 0, 1, 0.5, -0.5, 7.0], np.float32))
    assert value["a"][0] == 4 and value["a"][1].tolist() == [0.5, -0.5]
    assert value["b"].tolist() == [0, 1] and value["c"] == 7
    assert actions.space.contains(value)


def test_numbers_of_an_action_stay_within_float64_bounds():
    space = Box(-0.1, 0.1, (1,), np.float64)
    assert space.contains(Actions(space).value(np.array([0.1], np.float32)))


def test_what_cannot_be_chosen_is_filled_in():
    actions = Actions(Box(np.array([0, 5.0]), np.array([1, 5.0]), dtype=np.float32))
    assert actions.low.tolist() == [0] and actions.value(np.array([0.25], np.float32)).tolist() == [0.25, 5]
    with pytest.raises(ValueError, match="nothing to choose"):
        Actions(Box(1, 1, (2,)))


@pytest.mark.parametrize("name", ["act_unbounded", "act_one_sided"])
def test_the_check_plays_no_absurd_numbers(name):
    played = []

    class Noting(Sampled):
        def step(self, action):
            played.append(np.abs(action).max())
            return super().step(action)

    check_world(VectorGymEnv(Noting, 2, taken=TAKEN[name][0]))
    assert max(played) < 100
