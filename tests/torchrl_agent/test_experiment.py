"""Configurations: by name, by file, by override; and one sentence for everything that is wrong."""

import dataclasses
import functools
import itertools
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from still_algorithm import Still

from torchrl_agent import experiment as experiment_module
from torchrl_agent.algorithms.registry import ALGORITHMS
from torchrl_agent.core import devices as capacity
from torchrl_agent.core.bounds import check_ranges
from torchrl_agent.core.devices import resolve_device
from torchrl_agent.experiment import Experiment
from torchrl_agent.experiment import compose as composition
from torchrl_agent.experiment.build import instantiate_world
from torchrl_agent.experiment.compose import config_names
from torchrl_agent.training.collector import WRITTEN_TOGETHER

SMALL = ("world.num_envs=2", "tuned.ppo.rollout_steps=4", "tuned.ppo.minibatch_size=8", "model.hidden_sizes=[8]")


def test_a_file_gives_differences_from_the_defaults(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "defaults: [experiment_schema, _self_]\nname: mine\nworld: {_target_: envs.ArenaEnv, num_envs: 3}\n"
        "algorithm: {gamma: 0.5, learning_rate: {schedule: cosine}}\n"
    )
    loaded = Experiment.load(path)
    assert loaded.algorithm.gamma == 0.5
    assert loaded.algorithm.learning_rate.schedule == "cosine"
    assert loaded.algorithm.learning_rate.initial == 3e-4  # the dataclass's default
    assert loaded.algorithm.lmbda == 0.95
    assert Experiment.load(str(path), "algorithm.gamma=0.25").algorithm.gamma == 0.25


def test_a_file_may_begin_with_one_of_ours(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("defaults: [smoke, _self_]\nname: mine\nalgorithm: {gamma: 0.5}\n")
    loaded, ours = Experiment.load(path), Experiment.load("smoke", "algorithm.gamma=0.5")
    assert (loaded.name, loaded.algorithm.gamma) == ("mine", 0.5)
    ours.name = "mine"
    assert loaded == ours


def test_overrides_reach_every_level_with_the_right_types():
    loaded = Experiment.load(
        "smoke",
        "seed=7",
        "algorithm.learning_rate.initial=0.5",
        "world.num_envs=3",
        "model.hidden_sizes=[4,5]",
        "algorithm.target_kl=0.02",
        "run.name=first",
        "+world.seed=9",
    )
    assert (loaded.seed, loaded.algorithm.learning_rate.initial, loaded.world["num_envs"]) == (7, 0.5, 3)
    assert loaded.model.hidden_sizes == [4, 5]
    assert (loaded.algorithm.target_kl, loaded.run.name, loaded.world["seed"]) == (0.02, "first", 9)


@pytest.mark.parametrize("name", config_names())
def test_the_stored_configuration_is_a_valid_input_and_equal(tmp_path, name):
    original = Experiment.load(name, "seed=5", "algorithm.gamma=0.9", "run.name=a b", "device=cpu")
    path = tmp_path / "config.yaml"
    path.write_text(original.to_yaml())
    again = Experiment.load(path)
    assert "_target_" in again.world
    assert again == original
    assert again.to_yaml() == original.to_yaml()
    assert again.hash() == original.hash()
    assert yaml.safe_load(path.read_text())["algorithm"]["gamma"] == 0.9  # in full and readable by anything


def test_the_hash_tells_configurations_apart_but_not_where_they_are_stored():
    base = Experiment.load("smoke").hash()
    assert Experiment.load("smoke", "run.folder=elsewhere", "run.name=x").hash() == base
    assert Experiment.load("smoke", "algorithm.gamma=0.9").hash() != base
    assert Experiment.load("smoke", "seed=1").hash() != base


# --- the algorithm's section ---


@pytest.mark.parametrize(("name", "other"), list(zip(config_names(), itertools.cycle(ALGORITHMS), strict=False)))
def test_the_discount_is_the_worlds_whatever_learns(name, other):
    usual, loaded = (Experiment.load(name, "device=cpu", *words).algorithm for words in ([], [f"algorithm={other}"]))
    assert loaded.gamma == usual.gamma
    assert type(loaded) is ALGORITHMS[other].config_class


MINE = """defaults: [experiment_schema, _self_]
name: mine
world: {_target_: envs.ArenaEnv, num_envs: 3}
algorithm: {gamma: 0.5}
tuned: {ppo: {gamma: 0.1, num_epochs: 7}, dqn: {num_steps: 2}}
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(MINE)
    return path


def test_what_suits_a_world_is_weaker_than_the_section_and_that_than_overrides(mine):
    ppo = Experiment.load(mine).algorithm
    assert (ppo.gamma, ppo.num_epochs, ppo.lmbda) == (0.5, 7, 0.95)
    dqn = Experiment.load(mine, "algorithm.gamma=0.25", "algorithm=dqn").algorithm  # in any order
    assert (dqn.gamma, dqn.num_steps, dqn.double) == (0.25, 2, True)
    assert Experiment.load(mine, "tuned.ppo.num_epochs=8").algorithm.num_epochs == 8
    assert Experiment.load(mine, "tuned.dqn.num_steps=8").tuned["dqn"] == {"num_steps": 8}
    assert Experiment.load(mine, "algorithm={_target_: dqn, num_steps: 4}").algorithm.num_steps == 4


def test_another_algorithm_takes_over_the_discount_of_a_stored_run_and_has_its_own_numbers(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(Experiment.load("smoke", "algorithm=a2c", "algorithm.gamma=0.5").to_yaml())
    ppo, dqn = (Experiment.load(path, f"algorithm={name}").algorithm for name in ("ppo", "dqn"))
    assert (ppo.gamma, ppo.rollout_steps, ppo.minibatch_size) == (0.5, 32, 128)
    assert (dqn.gamma, dqn.rollout_steps, dqn.batch_size) == (0.5, 8, 128)


def test_what_is_written_for_no_algorithm_is_meant_for_all(mine):
    mine.write_text(MINE.replace("gamma: 0.5}", "gamma: 0.5, rollout_steps: 48, num_epochs: 9}"))
    assert Experiment.load(mine).algorithm.num_epochs == 9
    assert Experiment.load(mine, "algorithm=a2c").algorithm.rollout_steps == 48


def test_an_algorithm_may_be_anybodys(mine):
    loaded = Experiment.load(mine, "algorithm=still_algorithm.Still", "algorithm.patience=3")
    assert loaded.algorithm_class is Still
    assert (loaded.algorithm.patience, loaded.algorithm.gamma) == (3, 0.5)
    mine.write_text(loaded.to_yaml())
    assert Experiment.load(mine, trust=True) == loaded


@pytest.mark.parametrize("name", ["sarsa", "nowhere.Sarsa", "math.sqrt", "torch.nn.Linear", "3"])
def test_an_algorithm_that_is_none_is_refused_by_name(mine, name):
    for override in (f"algorithm={name}", f"tuned={{{name}: {{gamma: 1}}}}"):
        with pytest.raises(ValueError, match=name):
            Experiment.load(mine, override)


# --- what is refused ---


def one_sentence(caught):
    text = str(caught.value)
    assert text.strip()
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("override", "culprit"),
    [
        ("algorithm.gama=0.9", "algorithm.gama"),
        ("ppo.gamma=0.9", "ppo"),
        ("speed=3", "speed"),
        ("world.wings=2", "world.wings"),
        ("algorithm.gamma=high", "algorithm.gamma"),
        ("model.hidden_sizes=wide", "model.hidden_sizes"),
        ("total_frames=1.5", "total_frames"),
        ("ppo=3", "ppo"),
        ("world=3", "world"),
        ("acceleration.step=7x", "acceleration.step"),
        ("no override", "no override"),
    ],
)
def test_unknown_keys_and_wrong_types_are_refused_by_name(override, culprit):
    with pytest.raises(ValueError) as caught:
        Experiment.load("smoke", override)
    assert culprit in one_sentence(caught)


@pytest.mark.parametrize(
    ("lines", "culprit"),
    [
        ("algorithm: {gama: 0.5}", "algorithm.gama"),
        ("algorithm: {gamma: high}", "algorithm.gamma"),
        ("tuned: {ppo: {gama: 0.5}}", "algorithm.gama"),
        ("algorithm: 3", "algorithm is 3"),
        ("speed: 3", "speed"),
        ("ppo: 3", "ppo"),
        ("ppo: [", "mine"),
    ],
)
def test_unknown_keys_and_wrong_types_in_a_file_are_refused_by_name(tmp_path, lines, culprit):
    path = tmp_path / "mine.yaml"
    path.write_text(f"defaults: [experiment_schema, _self_]\nname: mine\nworld: {{_target_: envs.ArenaEnv}}\n{lines}\n")
    with pytest.raises(ValueError) as caught:
        Experiment.load(path)
    assert culprit in one_sentence(caught)


@pytest.mark.parametrize("config", ["nowhere", "nowhere.yaml", "../smoke"])
def test_an_unknown_configuration_is_refused_by_name(config):
    with pytest.raises(ValueError, match=r"nowhere|smoke") as caught:
        Experiment.load(config)
    one_sentence(caught)


def test_a_yaml_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "other.yaml"
    path.write_text("color: green\n")
    with pytest.raises(ValueError, match="other") as caught:
        Experiment.load(path)
    assert "experiment_schema" in one_sentence(caught)


@pytest.mark.parametrize(
    ("overrides", "culprit"),
    [
        (("world._target_=envs.NoWorld",), "envs.NoWorld"),
        (("world._target_=nowhere.World",), "nowhere.World"),
        (("world._target_=math.sqrt",), "math.sqrt"),
        (("~world._target_",), "_target_"),
        (("world.num_envs=0",), "num_envs"),
        (("world.num_envs=many",), "num_envs"),
        (("world.style=3",), "style"),
        (("world.observation=smell",), "observation"),
        (("world.rules=chess",), "chess"),
        (("world.curriculum=nowhere",), "nowhere"),
        (("world.stage=99",), "stage"),
        (("+world.wings=2",), "wings"),
        (("algorithm.minibatch_size=0",), "algorithm.minibatch_size"),
        (("algorithm.num_epochs=0",), "algorithm.num_epochs"),
        (("algorithm.learning_rate.schedule=steps",), "schedule"),
        (("model.activation=sine",), "model.activation"),
        (("device=warp",), "warp"),
        (("threads=0",), "threads"),
        (("seed=-1",), "seed"),
    ],
)
def test_values_that_cannot_work_are_refused_by_name(overrides, culprit):
    with pytest.raises(ValueError) as caught:
        Experiment.load("smoke", *SMALL, *overrides).make_learner()
    assert culprit in one_sentence(caught)


NUMBERS = {
    "total_frames=9223372036854775808": "total_frames is 9223372036854775808: it must be at most 9007199254740992.",
    "~total_frames": "total_frames cannot be taken away: give it a value, such as total_frames=VALUE.",
    "algorithm.num_epochs=2147483648": "algorithm.num_epochs is 2147483648: it must be at most 1000000.",
    "algorithm.rollout_steps=99999999999999999999": "algorithm.rollout_steps is 99999999999999999999: it must be at "
    "most 1000000.",
    "algorithm={_target_: dqn, replay_ratio: 1e30}": "algorithm.replay_ratio is 1e+30: it must be at most 1000000.",
    "seed=-99999999999999999999": "seed is -99999999999999999999: it must be at least 0.",
    "model.clip_observations=1e300": "model.clip_observations is 1e+300: float32 would make inf of it, give a number "
    "that it can hold.",
    "algorithm.adam_epsilon=1e-60": "algorithm.adam_epsilon is 1e-60: float32 would make 0 of it, give a number that "
    "it can hold.",
    "model.hidden_sizes=[[1]]": "model.hidden_sizes[0] is [1]: give a whole number.",
    "+model.manager.goals.money={money: nan}": "model.manager.goals.money.money is nan: give a finite number.",
    "+world.speed=nan": "world.speed is nan: give a finite number.",
    "world.num_envs=99999999999999999999": "world.num_envs is 99999999999999999999: it must be at most "
    "9223372036854775807.",
}


@pytest.mark.parametrize("override", NUMBERS)
def test_numbers_that_their_keys_cannot_hold_are_refused_in_one_sentence(override):
    with pytest.raises(ValueError) as caught:
        Experiment.load("smoke", override)
    assert one_sentence(caught) == NUMBERS[override]


def float_keys(config, path=""):
    """Every key of a configuration that holds a float, or may hold one, with whether it may be infinite."""
    for each in dataclasses.fields(config):
        value = getattr(config, each.name)
        if dataclasses.is_dataclass(value):
            yield from float_keys(value, f"{path}{each.name}.")
        elif str(each.type).startswith("float"):
            yield f"{path}{each.name}", bool(each.metadata.get("infinite"))


def set_key(config, key, value):
    *path, last = key.split(".")
    setattr(functools.reduce(getattr, path, config), last, value)


FLOAT_KEYS = {
    (algorithm, key): infinite
    for algorithm in ALGORITHMS
    for key, infinite in float_keys(Experiment.load("smoke", f"algorithm={algorithm}"))
    if algorithm == "ppo" or key.startswith("algorithm.")
}


@pytest.mark.parametrize(("algorithm", "key"), FLOAT_KEYS)
def test_no_float_of_any_key_is_nan_and_few_are_infinite(algorithm, key):
    loaded = Experiment.load("smoke", f"algorithm={algorithm}")
    for value in (math.nan, math.inf, -1e39):
        set_key(loaded, key, value)
        if value == math.inf and FLOAT_KEYS[algorithm, key]:
            check_ranges(loaded)
        else:
            with pytest.raises(ValueError, match=rf"^{re.escape(key)} is {re.escape(str(value))}: ") as caught:
                check_ranges(loaded)
            one_sentence(caught)


def test_infinity_means_without_bound_where_something_is_clipped():
    clips = ("max_grad_norm", "clip_rewards", "clip_observations", "rho_clip", "c_clip")
    assert {key.split(".")[-1] for (_, key), infinite in FLOAT_KEYS.items() if infinite} == set(clips)
    assert Experiment.load("smoke", "algorithm.max_grad_norm=inf").algorithm.max_grad_norm == math.inf


@pytest.mark.parametrize(
    ("override", "culprit"),
    [
        ("model.hidden_sizes=[1000000,1000000]", "smaller size under model"),
        ("world.num_envs=1000000000000", "smaller world.num_envs"),
    ],
)
def test_what_cannot_fit_into_memory_is_refused_before_it_is_made(override, culprit):
    with pytest.raises(ValueError, match=r"would need at least [\d,.]+ GiB") as caught:
        Experiment.load("smoke", *SMALL, override).make_learner()
    assert culprit in one_sentence(caught)


@pytest.mark.parametrize(
    ("overrides", "culprit"),
    [
        ((), "smaller algorithm.rollout_steps or world.num_envs"),
        (("algorithm=dqn",), "smaller algorithm.replay_size, algorithm.rollout_steps or world.num_envs"),
    ],
)
def test_frames_that_cannot_fit_into_memory_are_refused(overrides, culprit, monkeypatch):
    monkeypatch.setattr(capacity, "free_memory", lambda device: 20_000)
    with pytest.raises(ValueError, match="would need") as caught:
        Experiment.load(
            "smoke", *SMALL, "algorithm.rollout_steps=32", "model.hidden_sizes=[1]", *overrides
        ).make_learner()
    assert culprit in one_sentence(caught)


def test_a_rollout_and_a_replay_must_fit_together(monkeypatch):
    settings = ("smoke", *SMALL, "algorithm=dqn", "algorithm.rollout_steps=64", "algorithm.replay_size=256")
    learner = Experiment.load(*settings).make_learner()
    frame = sum(each.nbytes for each in learner.env.fake_tensordict()[0].values(True, True))
    together = ((64 + WRITTEN_TOGETHER) * learner.num_envs + 256) * frame  # each alone is smaller
    for free in (together, together - 1):
        monkeypatch.setattr(capacity, "free_memory", lambda device, free=free: free)
        if free == together:
            Experiment.load(*settings).make_learner()
            continue
        with pytest.raises(
            ValueError, match=r"rollout of 64 steps of \d+ worlds with a replay of 256 frames would need"
        ):
            Experiment.load(*settings).make_learner()


def test_cuda_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for device in ("cuda", "cuda:3"):
        with pytest.raises(ValueError, match=device) as caught:
            Experiment.load("smoke", *SMALL, f"device={device}").make_learner()
        assert "device=cpu" in one_sentence(caught)
    assert resolve_device("auto").type == "cpu"


def test_the_evaluation_world_differs_as_configured():
    loaded = Experiment.load("smoke")
    assert loaded.make_world().curriculum is not None
    world = loaded.make_world(evaluation=True, num_envs=3)
    assert world.curriculum is None
    assert world.batch_size == (3,)
    assert loaded.world["curriculum"] == "reference"  # the training world's arguments are untouched


def test_worlds_are_seeded():
    loaded = Experiment.load("smoke", *SMALL, "seed=3")
    first, second, other = loaded.make_world(), loaded.make_world(), loaded.make_world(seed=4)
    observations = [env.reset()["observation"] for env in (first, second, other)]
    assert torch.equal(observations[0], observations[1])
    assert not torch.equal(observations[0], observations[2])


def test_a_world_without_batch_is_a_batch_of_one():
    arguments = {"_target_": "torchrl.envs.GymEnv", "env_name": "CartPole-v1"}
    assert instantiate_world(arguments, torch.device("cpu"), 0).batch_size == (1,)


# --- on_cuda


@pytest.fixture
def pretend(monkeypatch):
    """Make the machine look as if every device were this one."""

    def set_device(name):
        monkeypatch.setattr(experiment_module, "resolve_device", lambda asked: torch.device(name))

    return set_device


@pytest.fixture
def both(tmp_path):
    """A configuration with a part for CUDA."""
    path = tmp_path / "both.yaml"
    path.write_text(
        "defaults: [experiment_schema, _self_]\nname: both\nworld: {_target_: envs.ArenaEnv, num_envs: 8}\n"
        "total_frames: 100\non_cuda: {world.num_envs: 1000, total_frames: 200, algorithm.minibatch_size: 500}\n"
    )
    return path


def sizes(loaded):
    return loaded.world["num_envs"], loaded.total_frames, loaded.algorithm.minibatch_size


def test_overrides_for_cuda_apply_only_there(pretend, both):
    pretend("cpu")
    assert sizes(Experiment.load(both)) == (8, 100, 4096)
    pretend("cuda")
    assert sizes(Experiment.load(both)) == (1000, 200, 500)


def test_overrides_for_cuda_are_weaker_than_the_command_line(pretend, both):
    pretend("cuda")
    assert sizes(Experiment.load(both, "world.num_envs=64", "total_frames=300")) == (64, 300, 500)


def test_overrides_for_cuda_of_a_base_are_weaker_than_the_file_itself(pretend, both, tmp_path):
    derived = tmp_path / "derived.yaml"
    derived.write_text(
        "defaults: [both, _self_]\nname: derived\ntotal_frames: 150\nworld: {num_envs: 16}\n"
        "on_cuda: {world.num_envs: 32}\n"
    )
    pretend("cuda")
    assert sizes(Experiment.load(derived, trust=True)) == (32, 150, 500)
    pretend("cpu")
    assert sizes(Experiment.load(derived, trust=True)) == (16, 150, 4096)


def test_a_run_on_cuda_keeps_the_command_line_when_its_stored_configuration_is_loaded(pretend, both, tmp_path):
    pretend("cuda")
    original = Experiment.load(both, "world.num_envs=64", "total_frames=300")
    path = tmp_path / "config.yaml"
    path.write_text(original.to_yaml())
    assert sizes(Experiment.load(path)) == (64, 300, 500)


def test_what_python_put_in_place_of_plain_values_is_written_as_they_are():
    experiment = Experiment.load("smoke")
    plain = experiment.to_yaml()
    experiment.model.hidden_sizes = (32, 32)
    experiment.total_frames = np.int64(experiment.total_frames)
    experiment.algorithm.gamma = np.float64(experiment.algorithm.gamma)
    assert experiment.to_yaml() == plain
    experiment.world["map"] = Path.home() / "maps" / "a.txt"
    assert yaml.safe_load(experiment.to_yaml())["world"]["map"] == "~/maps/a.txt"
    experiment.world["map"] = len
    with pytest.raises(ValueError, match="holds <built-in function len>, which YAML cannot hold"):
        experiment.to_yaml()


def test_a_configuration_that_changed_on_the_disk_is_read_again(tmp_path, monkeypatch):
    folder = Path(shutil.copytree(composition.CONFIGS, tmp_path / "configs"))
    monkeypatch.setattr(composition, "CONFIGS", folder)
    assert Experiment.load("arena_style2").world["style"] == Experiment.load("arena_style2").world["style"] == 2
    base = folder / "arena.yaml"  # what it begins with
    base.write_text(base.read_text(encoding="utf-8").replace("desynchronize: true", "desynchronize: false", 1))
    assert Experiment.load("arena_style2").world["desynchronize"] is False
