"""Worlds by a prefix: the rules that make their configurations, what is refused, and that each trains."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
import torch

from envs.libs import gymnasium_packages
from torchrl_agent.core.run_names import check_run_name
from torchrl_agent.experiment import Experiment
from torchrl_agent.experiment.world_rules import PREFIXES, configuration, is_world
from torchrl_agent.runs.run import train

CORES = os.cpu_count() or 1
PACKAGES = {
    "gym:CartPole-v1": "gymnasium",
    "gym:Hopper-v5": "mujoco",
    "gym:MinAtar/Breakout-v1": "minatar",
    "gym:highway-v0": "highway_env",
    "gym:FetchReach-v4": "gymnasium_robotics",
    "ale:ALE/Pong-v5": "ale_py",
    "minigrid:MiniGrid-DoorKey-5x5-v0": "minigrid",
    "dmc:cartpole-swingup": "shimmy",
    "pettingzoo:mpe2.simple_spread_v3": "mpe2",
    "vmas:navigation": "vmas",
}
DEAR = {"gym:highway-v0"}
"""Worlds whose steps take a large part of a second."""


@pytest.mark.parametrize("name", ["Pong", "Pong-v5", "ALE/Pong-v5", "PongNoFrameskip-v4"])
def test_a_game_of_atari_has_several_names(name):
    assert PREFIXES["ale"][0](name)["env_name"] == (name if "Frame" in name else "ALE/Pong-v5")


def test_the_rules_of_a_vector_world():
    experiment = Experiment.load("gym:CartPole-v1")
    assert experiment.name == "cartpole_v1" and experiment.total_frames == 500_000
    assert experiment.world == {
        "_target_": "envs.libs.gymnasium.VectorGymEnv",
        "env_name": "CartPole-v1",
        "num_envs": min(64, 4 * CORES),
    }
    ppo = experiment.algorithm
    assert (ppo.rollout_steps, ppo.gamma, ppo.num_epochs, ppo.entropy_coeff) == (128, 0.99, 4, 0.01)
    assert ppo.minibatch_size == 256
    check_run_name(experiment.name)


@pytest.mark.parametrize(
    ("world", "gamma", "per_core"),
    [("gym:Pendulum-v1", 0.975, 8), ("gym:CliffWalking-v1", 0.99, 4), ("gym:Acrobot-v1", 0.99, 4)],
)
def test_the_rules_of_time_limits_and_continuous_actions(world, gamma, per_core):
    experiment = Experiment.load(world)
    assert experiment.algorithm.gamma == gamma and experiment.world["num_envs"] == min(64, per_core * CORES)
    ppo, continuous = experiment.algorithm, per_core == 8
    learning = (ppo.num_epochs, ppo.minibatch_size, ppo.learning_rate.initial, ppo.entropy_coeff)
    assert learning == ((10, 64, 3e-4, 0.0) if continuous else (4, 256, 1e-3, 0.01))
    assert experiment.model.initial_std == (0.37 if continuous else 1.0)


def test_overrides_are_stronger_than_rules_and_known_to_them():
    experiment = Experiment.load(
        "gym:CartPole-v1", "world.num_envs=3", "algorithm.rollout_steps=50", "algorithm.gamma=0.9"
    )
    assert experiment.world["num_envs"] == 3 and experiment.algorithm.gamma == 0.9
    assert experiment.algorithm.minibatch_size == 150  # of all frames


@pytest.mark.parametrize("override", ["policy=gru", "model.memory=lstm", "model.perception.reconstruction_coeff=1"])
def test_minibatches_of_agents_that_learn_from_sequences_are_whole_ones(override):
    experiment = Experiment.load("gym:Pendulum-v1", "world.num_envs=4", override)
    assert experiment.algorithm.minibatch_size == experiment.algorithm.rollout_steps == 128


def test_replays_make_as_many_updates_as_their_papers():
    sac = Experiment.load("gym:Pendulum-v1", "algorithm=sac").algorithm
    dqn = Experiment.load("gym:CartPole-v1", "algorithm=dqn").algorithm
    assert sac.replay_ratio / sac.batch_size == 1  # an update for each frame
    assert dqn.replay_ratio / dqn.batch_size == 1 / 4


@pytest.mark.parametrize(
    ("overrides", "step", "update", "advantages"),
    [
        (["algorithm=dqn"], True, True, True),
        (["total_frames=100000000"], True, True, False),
        (["total_frames=2000"], False, False, False),
        (["total_frames=100000000", "policy=gru"], False, False, False),
        (["total_frames=100000000", "model.memory=lstm"], False, False, False),
    ],
)
def test_long_trainings_without_memory_are_compiled(overrides, step, update, advantages):
    made = Experiment.load("gym:CartPole-v1", *overrides).acceleration
    assert (made.step, made.update, made.advantages) == (step, update, advantages)


def test_rules_are_logged(caplog):
    caplog.set_level("INFO", logger="torchrl_agent.core.progress")
    Experiment.load("gym:Pendulum-v1")
    assert "a discount of 0.975: episodes end after 200 steps" in caplog.text


def test_the_configuration_is_whole_and_loads_again(tmp_path):
    experiment = Experiment.load("gym:Pendulum-v1")
    path = tmp_path / "again.yaml"
    path.write_text(experiment.to_yaml(), encoding="utf-8")
    assert Experiment.load(path).hash() == experiment.hash()


@pytest.mark.parametrize(
    ("world", "named"),
    [
        ("gym:CartPool-v1", "there is no world CartPool-v1.*CartPole"),
        ("gym:PandaReach-v3", "no world PandaReach-v3.* named PACKAGE:PandaReach-v3"),
        ("gim:CartPole-v1", r"no prefix 'gim' \(did you mean gym\?\)"),
        ("gym:evil:World-v0", "'evil:World-v0', which may name a module or a file that is run: .*--trust"),
        ("ale:evil:World-v0", "which may name a module"),
        ("minigrid:evil:World-v0", "which may name a module"),
        ("dmc:evil:World-v0", "which may name a module"),
        ("pettingzoo:evil", "which may name a module"),
        ("vmas:../evil", "which may name a module"),
    ],
)
def test_names_that_cannot_be_are_refused_before_anything_is_imported(world, named, tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text("open('canary', 'w')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=named) as caught:
        Experiment.load(world)
    assert "\n" not in str(caught.value) and not (tmp_path / "canary").exists()


def test_names_of_files_and_configurations_are_no_worlds():
    assert not any(map(is_world, ("arena", "C:\\config.yaml", "known/pendulum", "gym:", "./gym:x.yaml")))
    assert all(is_world(example) for _, example in PREFIXES.values())


@pytest.mark.parametrize(
    "world", [pytest.param(world, marks=pytest.mark.slow if world in DEAR else ()) for world in PACKAGES]
)
def test_every_kind_of_world_trains_by_one_command_and_is_judged(world, tmp_path):
    if importlib.util.find_spec(PACKAGES[world]) is None:
        pytest.skip(f"{PACKAGES[world]} is not installed")
    small = ["world.num_envs=2", "algorithm.rollout_steps=16", "algorithm.num_epochs=1", "evaluation.episodes=2"]
    small += [
        "total_frames=64",
        "evaluation.max_steps=20",
        f"run.folder={tmp_path}",
        "run.name=brought",
        "run.film=false",
    ]
    experiment = Experiment.load(world, *small)
    iterations = list(train(experiment))
    assert iterations[-1].frames >= 64
    assert (tmp_path / "brought" / "summary.json").is_file()


def test_transforms_may_be_asked_for():
    half = "world.transforms=[{RewardScaling: {loc: 0.0, scale: 0.5}}]"
    experiment = Experiment.load("gym:CartPole-v1", half, "world.num_envs=2")
    assert experiment.make_world().rollout(2)["next", "reward"].unique().tolist() == [0.5]


def test_packages_name_extras_that_there_are():
    declared = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert all(f"\n{extra} = [" in declared for _, _, extra in gymnasium_packages.PACKAGES)


def test_the_rules_text_names_no_code_of_others():
    text, reasons = configuration("gym:Pendulum-v1")
    assert text.startswith("defaults: [experiment_schema, _self_]") and all(reasons)
    assert text.count("_target_") == 1


def test_pictures_have_networks_of_their_size():
    pytest.importorskip("ale_py")
    pong = Experiment.load("ale:ALE/Pong-v5")
    assert pong.model.perception.encoders == {"observation": "nature"} and not pong.model.normalize_observations
    assert pong.world["transforms"] == [{"SignTransform": {"in_keys": ["reward"]}}]
    env = pong.make_world(num_envs=2)
    agent = pong.make_agent(env)
    convolutions = [layer for layer in agent.modules() if isinstance(layer, torch.nn.Conv2d)]
    assert [(layer.out_channels, layer.kernel_size[0], layer.stride[0]) for layer in convolutions] == [
        (32, 8, 4),
        (64, 4, 2),
        (64, 3, 1),
    ]
    env.close()
