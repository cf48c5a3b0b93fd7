"""TorchRL's worlds as agents read and play them, whatever their specs are, and whatever makes the batch."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pkgutil

import pytest
import torch
from counting_world import registered
from strange_worlds import registered as registered_kinds
from torchrl.data import Binary, Bounded, Categorical, Composite, MultiOneHot, NonTensor, OneHot, Unbounded
from torchrl.envs import EnvBase, GymEnv, SerialEnv, TransformedEnv
from torchrl.envs.utils import check_env_specs

from envs import ArenaEnv
from torchrl_agent import Experiment, evaluate, learn
from torchrl_agent.experiment.build import instantiate_world
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.config import ModelConfig
from torchrl_agent.modules.perception import PerceptionConfig
from torchrl_agent.modules.specs import observation_shapes
from torchrl_agent.optimization.compilation import AccelerationConfig
from torchrl_agent.training.collector import RolloutCollector
from torchrl_agent.training.plain_worlds import plain_world
from torchrl_agent.training.world_check import check_world

HERE = "test_plain_worlds"


class Specs(EnvBase):
    """A world with the specs that it is given; it shows random entries and notes its last action."""

    def __init__(self, num_envs=2, shown=None, action=None, device="cpu"):
        super().__init__(device=device, batch_size=torch.Size([num_envs]))
        shown = shown or {"observation": Unbounded((3,))}
        self.observation_spec = Composite({k: v.expand(num_envs, *v.shape) for k, v in shown.items()}, shape=[num_envs])
        action = Categorical(2) if action is None else action
        self.action_spec = action.expand(num_envs, *action.shape)
        self.reward_spec = Unbounded((num_envs, 1), dtype=torch.float64)
        flag = Categorical(2, shape=(num_envs, 1), dtype=torch.bool)
        self.done_spec = Composite(done=flag, terminated=flag.clone(), truncated=flag.clone(), shape=[num_envs])

    def _reset(self, tensordict=None, **kwargs):
        return self.observation_spec.rand()

    def _step(self, tensordict):
        self.last = tensordict["action"]
        assert self.action_spec.is_in(self.last), self.last
        return (
            self.observation_spec.rand()
            .update(self.full_done_spec.zero())
            .set("reward", torch.ones(*self.batch_size, 1).double())
        )

    def _set_seed(self, seed):
        torch.manual_seed(seed)


SEEN = {
    "doubles": (Unbounded((3,), dtype=torch.float64), {"doubles_seen": (3,)}),
    "compass": (Categorical(4), {"compass_seen": (4,)}),
    "several": (Categorical(4, shape=(2,)), {"several_seen": (8,)}),
    "contact": (Binary(2, dtype=torch.bool), {"contact_seen": (2,)}),
    "counts": (Unbounded((3,), dtype=torch.int64), {"counts_seen": (3,)}),
    "number": (Unbounded(()), {"number_seen": (1,)}),
    "matrix": (Unbounded((2, 3)), {"matrix_seen": (6,)}),
    "code": (OneHot(5), {"code_seen": (5,)}),
    "camera": (Bounded(0, 255, (16, 16, 3), dtype=torch.uint8), {"camera_seen": (3, 16, 16)}),
    "picture": (Bounded(0, 255, (3, 16, 16), dtype=torch.uint8), {"picture": (3, 16, 16)}),
    "sensors": (Composite(lidar=Unbounded((8,)), hit=Categorical(2)), {"sensors_lidar": (8,), "sensors_hit": (2,)}),
}
TAKEN = {
    "one hot": (OneHot(4), 4),
    "several one hot": (MultiOneHot([2, 3]), 5),
    "binary": (Binary(3), 6),
    "doubles": (Bounded(-0.1, 0.1, (2,), dtype=torch.float64), 2),
    "matrix": (Bounded(-1, 1, (2, 2)), 4),
    "unbounded doubles": (Unbounded((2,), dtype=torch.float64), 2),
}


def play(env):
    agent = Agent(env, ModelConfig([8]))
    return agent, RolloutCollector(
        env, agent, 4, AccelerationConfig(step=False, advantages=False, update=False)
    ).collect()


@pytest.mark.parametrize("name", SEEN)
def test_observations_of_every_kind_are_seen(name):
    spec, shapes = SEEN[name]
    env = plain_world(Specs(shown={name: spec, "observation": Unbounded((1,))}))
    check_env_specs(env)
    check_world(env)
    assert {key: tuple(shape) for key, shape in observation_shapes(env).items()} == {"observation": (1,), **shapes}
    if name != "camera" and name != "picture":
        play(env)


def test_what_is_shown_are_the_worlds_numbers():
    env = plain_world(Specs(shown={"compass": Categorical(4), "camera": SEEN["camera"][0]}))
    root = env.rollout(3)
    assert torch.equal(root["compass_seen"].argmax(-1), root["compass"])
    assert torch.equal(root["camera_seen"], root["camera"].permute(0, 1, 4, 2, 3))


def test_texts_are_left_out_with_a_line(caplog):
    env = plain_world(Specs(shown={"words": NonTensor(()), "observation": Unbounded((1,))}))
    assert "words is no tensor and is left out" in caplog.text
    assert list(observation_shapes(env)) == ["observation"]


@pytest.mark.parametrize("name", TAKEN)
def test_actions_of_every_kind_are_taken(name):
    spec, outputs = TAKEN[name]
    world = Specs(action=spec)
    env = plain_world(world)
    check_env_specs(env)
    check_world(env)
    agent, rollout = play(env)
    last = [layer for layer in agent.actor_head.modules() if isinstance(layer, torch.nn.Linear)][-1]
    assert last.out_features == outputs and world.last.dtype == spec.dtype
    assert rollout["next", "reward"].dtype == torch.float32


def test_worlds_that_need_no_change_stay_as_they_are():
    world = SerialEnv(2, lambda: GymEnv("CartPole-v1", categorical_action_encoding=True))
    assert plain_world(world) is world


# --- what makes the batch --------------------------------------------------------------------------------------------


@pytest.fixture
def counting():
    with registered():
        yield


CARTPOLE = {"_target_": "torchrl.envs.GymEnv", "env_name": "CartPole-v1"}
WORLDS = {
    "GymEnv": CARTPOLE,
    "SerialEnv": {"_target_": "torchrl.envs.SerialEnv", "create_env_fn": {**CARTPOLE, "_partial_": True}},
    "ParallelEnv": {"_target_": "torchrl.envs.ParallelEnv", "create_env_fn": {**CARTPOLE, "_partial_": True}},
    "EnvCreator": {
        "_target_": "torchrl.envs.SerialEnv",
        "create_env_fn": {"_target_": "torchrl.envs.EnvCreator", "create_env_fn": {**CARTPOLE, "_partial_": True}},
    },
    "TransformedEnv": {
        "_target_": "torchrl.envs.TransformedEnv",
        "base_env": CARTPOLE,
        "transform": {"_target_": "torchrl.envs.RewardScaling", "loc": 0.0, "scale": 2.0},
    },
    "unbatched": {"_target_": "torchrl.envs.PendulumEnv"},
    "a function without num_envs": {"_target_": f"{HERE}.one_cartpole"},
    "a function with num_envs": {"_target_": f"{HERE}.several_cartpoles"},
}


def one_cartpole():
    return GymEnv("CartPole-v1")


def several_cartpoles(num_envs, **options):
    assert options == {"device": "cpu"}
    return GymEnv("CartPole-v1", num_envs=num_envs)


def two_cartpoles(device="cpu"):
    return GymEnv("CartPole-v1", num_envs=2)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "ParallelEnv" else ()) for name in WORLDS]
)
def test_num_envs_goes_to_whatever_makes_the_batch(name):
    for number in (1, 2):
        env = instantiate_world({**WORLDS[name], "num_envs": number}, torch.device("cpu"), 0)
        try:
            assert env.batch_size == (number,)
            check_world(env)
            _, rollout = play(env)
            assert rollout.shape == (4, number)
        finally:
            env.close()


def test_pictures_of_torchrls_gym_worlds_are_pictures():
    with registered_kinds():
        world = {"_target_": "torchrl.envs.GymEnv", "env_name": "Vector-v0", "from_pixels": True, "num_envs": 2}
        env = instantiate_world(world, torch.device("cpu"), 0)
        assert {key: tuple(shape) for key, shape in observation_shapes(env).items()} == {"pixels_seen": (3, 8, 9)}
        frames = env.rollout(3)
        assert frames["pixels_seen"][:, :, 0, 0, 0].tolist() == [[0, 1, 2]] * 2  # the step, as the world draws it
        env.close()


DOUBLES = {
    "JumanjiEnv": {"_target_": "torchrl_doubles.JumanjiEnv", "env_name": "Snake-v1"},
    "BraxEnv": {"_target_": "torchrl_doubles.BraxEnv", "env_name": "ant"},
    "MujocoPlaygroundEnv": {"_target_": "torchrl_doubles.MujocoPlaygroundEnv", "env_name": "CartpoleBalance"},
    "MJLabEnv": {"_target_": "torchrl_doubles.MJLabEnv", "task_id": "Mjlab-Velocity-Flat-Unitree-G1"},
    "a function for Isaac Lab": {"_target_": "torchrl_doubles.isaac_lab_world"},
}


@pytest.mark.parametrize("name", DOUBLES)
def test_worlds_of_simulators_that_are_not_here_train_and_are_judged_by_doubles(name):
    small = ["total_frames=64", "world.num_envs=2", "algorithm.rollout_steps=16", "evaluation.episodes=3"]
    rules = Experiment.load(pkgutil.resolve_name("strange_worlds.Reporter"), *small)
    layers = ModelConfig([8], perception=PerceptionConfig(enabled=name == "JumanjiEnv", embedding_size=8))
    experiment = dataclasses.replace(rules, world={**DOUBLES[name], "num_envs": 2}, model=layers)
    *_, last = learn(experiment)
    assert last.metrics["rollout/ep_len_mean"] == last.metrics["rollout/ep_rew_mean"] == 5
    assert evaluate(experiment, last.agent) | {"return_std": 0} == {
        "episodes": 3,
        "return_mean": 5.0,
        "return_std": 0,
        "length_mean": 5.0,
    }


@pytest.mark.parametrize("name", ["JumanjiEnv", "BraxEnv", "MujocoPlaygroundEnv"])
def test_the_doubles_take_what_torchrls_classes_take(name):
    theirs, ours = (
        list(inspect.signature(pkgutil.resolve_name(f"{module}.{name}").__init__).parameters)
        for module in ("torchrl.envs", "torchrl_doubles")
    )
    assert ours == theirs


class Renamed(ArenaEnv):
    """A batched world with an argument of its own, which passes the others on."""

    def __init__(self, *args, flag="", **options):
        super().__init__(*args, **options)
        self.flag = flag


def test_a_world_that_passes_its_arguments_on_is_made_with_the_number_of_worlds():
    env = instantiate_world({"_target_": f"{HERE}.Renamed", "num_envs": 3, "flag": "blue"}, torch.device("cpu"), 0)
    assert env.batch_size == (3,) and env.flag == "blue"


@pytest.mark.parametrize(
    ("target", "named"),
    [
        (f"{HERE}.two_cartpoles", "is a batch of 2, whatever num_envs is, .* let a function make it"),
        ("builtins.dict", "is a dict, no environment of TorchRL or Gymnasium"),
        ("torchrl.envs.TicTacToeEnv", "several"),
    ],
)
def test_what_cannot_be_a_batch_is_refused_in_a_sentence(target, named):
    with pytest.raises(ValueError, match=named) as caught:
        instantiate_world({"_target_": target, "num_envs": 3}, torch.device("cpu"), 0)
    assert "\n" not in str(caught.value)


# --- transforms by name ----------------------------------------------------------------------------------------------


def cartpole(transforms, evaluation=False):
    world = {"_target_": "envs.libs.gymnasium.VectorGymEnv", "env_name": "CartPole-v1", "num_envs": 2}
    return instantiate_world({**world, "transforms": transforms}, torch.device("cpu"), 0, evaluation)


def test_transforms_are_named_in_order():
    stack = [
        {"UnsqueezeTransform": {"dim": -2, "in_keys": ["observation"], "out_keys": ["stack"]}},
        {"CatFrames": {"N": 3, "dim": -2, "in_keys": ["stack"]}},
        {"FlattenObservation": {"first_dim": -2, "last_dim": -1, "in_keys": ["stack"]}},
    ]
    env = cartpole(stack)
    check_world(env)
    root = env.rollout(4)
    assert root["stack"].shape == (2, 4, 12)
    assert torch.equal(root["stack"][:, 3], root["observation"][:, 1:4].flatten(1))


def test_the_agents_normalizer_as_a_transform_of_the_world_shows_what_the_agent_reads():
    env = cartpole([])
    normalizer = Agent(env).normalizer
    normalizer.update(torch.randn(100, 4) * 3 + 1)
    of_world = copy.deepcopy(normalizer)
    of_world.frozen = True
    frames = TransformedEnv(env, of_world).rollout(5)
    shown = frames["next", "observation_normalized"]
    read = normalizer(frames["next"].exclude("observation_normalized"))["observation_normalized"]
    assert torch.equal(shown, read) and not torch.equal(shown, frames["next", "observation"])


def test_rewards_are_transformed_in_training_only_and_never_in_the_return():
    half = [{"RewardScaling": {"loc": 0.0, "scale": 0.5}}]
    for evaluation, reward in ((False, 0.5), (True, 1.0)):
        frames = cartpole(half, evaluation).rollout(3)
        assert frames["next", "reward"].unique().tolist() == [reward]
        assert frames["next", "episode", "return"][0, :, 0].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("transform", "named"),
    [
        ("CatFrame", r"names 'CatFrame', which there is not \(did you mean CatFrames\?\)"),
        ({"CatFrames": {"M": 3}}, "CatFrames cannot be put here .*check its arguments"),
        ({"CatFrames": {"N": 3, "dim": -1, "in_keys": ["pixels"]}}, "CatFrames reads 'pixels', which the world"),
        ({"CatFrames": {}, "SignTransform": {}}, "give each as NAME or"),
    ],
)
def test_transforms_that_cannot_be_are_refused_in_a_sentence(transform, named):
    with pytest.raises(ValueError, match=named) as caught:
        cartpole([transform])
    assert "\n" not in str(caught.value)
