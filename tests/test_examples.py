"""Every recipe runs, in small, and gives what it says."""

import importlib
import math
import re
import sys
from pathlib import Path

import gymnasium
import pytest
import torch

FOLDER = Path(__file__).parents[1] / "examples"
RECIPES = sorted(path.stem for path in FOLDER.glob("*.py"))
EAGER = "acceleration={step: false, advantages: false, update: false}"
QUICK = (EAGER, "threads=1", "device=cpu", "world.num_envs=4")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in RECIPES:
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.fixture
def uncompiled():
    """Run without compiling, which takes half a minute and has tests of its own."""
    with torch.compiler.set_stance("force_eager"):
        yield


def recipe(name):
    return importlib.import_module(name)


def test_there_are_thirteen_recipes_of_one_screen_or_two_and_the_page_lists_them():
    assert len(RECIPES) == 13
    assert all(len((FOLDER / f"{name}.py").read_text().splitlines()) <= 150 for name in RECIPES)
    page = (FOLDER / "README.md").read_text()
    assert sorted(re.findall(r"\((\w+)\.py\)", page)) == RECIPES


def test_train():
    small = ("algorithm.rollout_steps=8", "algorithm.minibatch_size=32", "evaluation.episodes=2")
    recipe("train").main(64, "example", *QUICK, *small, "+evaluation.world.rules={max_steps: 8}")
    assert Path("example.gif").stat().st_size > 0 and Path("runs/example/summary.json").is_file()


def test_gymnasium_world():
    small = ("algorithm.rollout_steps=64", "algorithm.minibatch_size=64")
    assert -50 * 5 < recipe("gymnasium_world").main(512, *QUICK, *small) < 0


@pytest.mark.slow
def test_own_world(uncompiled):
    assert 8 < recipe("own_world").main(4096, 32) < 500


def test_own_world_is_gymnasiums():
    env, other = recipe("own_world").CartPoleEnv(seed=1), gymnasium.make("CartPole-v1").unwrapped
    root = env.reset()
    other.reset()
    other.state = root["observation"][0].double().numpy()
    for step in range(100):
        played, root = env.step_and_maybe_reset(root.set("action", torch.tensor([step % 2])))
        observation, reward, ended, *_ = other.step(step % 2)
        assert played["next", "observation"][0].tolist() == pytest.approx(observation.tolist(), abs=1e-5)
        assert (played["next", "reward"].item(), played["next", "terminated"].item()) == (reward, ended)
        if ended:
            return
    raise AssertionError("it does not fall")


def test_torchrl_loop():
    assert math.isfinite(recipe("torchrl_loop").main(256, 8, 16))


def test_own_module():
    small = ("algorithm.rollout_steps=8", "algorithm.minibatch_size=32", "model.hidden_sizes=[8]")
    assert 0 < recipe("own_module").main(64, *QUICK, *small) < 10


@pytest.mark.slow
def test_own_algorithm(uncompiled):
    recipe("own_algorithm").main(512, 4)


@pytest.mark.slow
def test_goals():
    small = ("algorithm.learning_starts=128", "algorithm.batch_size=32", "algorithm.replay_size=1024")
    assert 0 <= recipe("goals").main(1024, 0.8, *QUICK, *small) <= 1


def test_population():
    small = ("population.members=2", "algorithm.rollout_steps=8", "algorithm.minibatch_size=32", "population.every=32")
    genes = recipe("population").main(128, *QUICK, *small, "population.replace=0.5", "population.warmup=0")
    assert genes and all(len(values) == 2 for values in genes.values())


@pytest.mark.slow
def test_explain():
    one, other = recipe("explain").main(5)
    assert one is not None and other is not None


def test_export():
    assert recipe("export").main().shape[0] == 3
