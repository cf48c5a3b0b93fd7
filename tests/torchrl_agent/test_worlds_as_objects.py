"""Worlds given as objects of Python: classes, functions and environments of Gymnasium and of TorchRL."""

import subprocess
import sys

import gymnasium
import pytest
from strange_worlds import Reporter
from torchrl.envs import GymEnv, PendulumEnv, SerialEnv

from torchrl_agent import Experiment, evaluate, learn, load_agent, train
from torchrl_agent.runs.film import film_world
from torchrl_agent.trust.targets import OBJECTS, OF_PYTHON, name_object

SMALL = ("total_frames=64", "world.num_envs=2", "algorithm.rollout_steps=16", "evaluation.episodes=2")
QUIET = ("run.tensorboard=false", "run.film=false", "threads=1", "evaluation.max_steps=20")


def cart_pole(render_mode=None):
    return gymnasium.make("CartPole-v1", render_mode=render_mode)


WORLDS = {
    "a class of Gymnasium": Reporter,
    "a function of Gymnasium": cart_pole,
    "a lambda": lambda: gymnasium.make("CartPole-v1"),
    "an environment of Gymnasium": gymnasium.make("CartPole-v1"),
    "a class of TorchRL": PendulumEnv,
    "a function of TorchRL": lambda device: GymEnv("Acrobot-v1", device=device),
    "a function of a batch": lambda num_envs: SerialEnv(num_envs, lambda: GymEnv("CartPole-v1")),
    "an environment of TorchRL": PendulumEnv(),
}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_they_train_are_saved_and_are_judged(world, tmp_path):
    experiment = Experiment.load(world, *SMALL, *QUIET, "run.name=own", f"run.folder={tmp_path}")
    *_, last = train(experiment)
    assert last.frames == 64 and (tmp_path / "own" / "config.yaml").is_file()
    saved, agent = load_agent(tmp_path / "own")
    assert saved.world == experiment.world
    assert evaluate(saved, agent, episodes=2)["episodes"] == 2


@pytest.mark.parametrize("thing", [dict, object(), 3, None])
def test_what_makes_no_environment_is_refused(thing):
    with pytest.raises(ValueError, match="is no environment: give a class"):
        Experiment.load(thing)


@pytest.mark.parametrize("run", [train, learn])
def test_a_name_is_no_experiment_and_a_dict_no_override(run):
    with pytest.raises(ValueError, match=r"'smoke' is no experiment: give Experiment\.load\('smoke'\)\."):
        next(run("smoke"))
    with pytest.raises(ValueError, match=r"{'seed': 1} is no override: give texts KEY=VALUE"):
        Experiment.load("smoke", {"seed": 1})


def test_a_world_without_render_mode_cannot_be_drawn():
    with pytest.raises(ValueError, match="cannot be drawn: let it be made with render_mode=rgb_array"):
        film_world(Experiment.load(lambda: Reporter(), *SMALL), 1)


def test_what_can_be_imported_is_named_by_its_path():
    assert name_object(Reporter) == "strange_worlds.Reporter"
    assert Experiment.load(Reporter).name == "reporter"


def test_what_cannot_be_imported_has_one_name_in_this_process():
    def own():
        return cart_pole()

    name = name_object(own)
    assert name.startswith(OF_PYTHON) and name_object(own) == name and OBJECTS[name] is own


def test_arguments_go_to_the_world():
    learner = Experiment.load(Reporter, *SMALL, "+world.length=7").make_learner()
    rollout = learner.collector.collect()
    assert rollout["next", "done"].squeeze(-1).nonzero()[:, 0].unique().tolist() == [6, 13]


@pytest.mark.slow
def test_another_process_says_what_to_do(tmp_path):
    list(train(Experiment.load(lambda: cart_pole(), *SMALL, *QUIET, "run.name=own", f"run.folder={tmp_path}")))
    words = [sys.executable, "-m", "torchrl_agent", "evaluate", str(tmp_path / "own"), "--trust"]
    ended = subprocess.run(words, capture_output=True, text=True)
    assert ended.returncode != 0 and "Traceback" not in ended.stderr
    assert "was an object of another Python process: put it into a module" in ended.stderr


def test_a_batch_cannot_be_copied_into_other_sizes():
    with pytest.raises(ValueError, match="let a function make it that takes num_envs"):
        Experiment.load(SerialEnv(3, lambda: GymEnv("CartPole-v1")))


@pytest.mark.parametrize("thing", [3, None, print, dict], ids=str)
def test_what_is_no_world_is_refused_in_a_sentence(thing):
    with pytest.raises(ValueError) as caught:
        Experiment.load(thing)
    assert "\n" not in str(caught.value)
