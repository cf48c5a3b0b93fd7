"""Runs in a world of Gymnasium's: it is filmed by its own pictures, and every copy of it is closed."""

from __future__ import annotations

import pytest
from counting_world import MADE, NAME, OPEN, registered
from PIL import Image

from torchrl_agent import Experiment
from torchrl_agent.experiment.judging import evaluate
from torchrl_agent.models.planned_policy import acting_policy
from torchrl_agent.runs.film import film_policy, film_world
from torchrl_agent.runs.load import load_agent
from torchrl_agent.runs.run import train

SMALL = (
    f"world.env_name={NAME}",
    "world.num_envs=3",
    "device=cpu",
    "model.hidden_sizes=[4]",
    "algorithm={rollout_steps: 8, minibatch_size: 24, num_epochs: 1}",
    "total_frames=48",
    "evaluation={episodes: 2, every: 24}",
    "run.tensorboard=false",
)


@pytest.fixture(autouse=True)
def known():
    """The counting world by its name."""
    with registered():
        yield


def experiment(folder, *overrides):
    return Experiment.load("cartpole", *SMALL, f"run.folder={folder}", "run.name=counted", *overrides)


def test_every_world_of_a_run_is_closed(tmp_path):
    for _ in train(experiment(tmp_path, "run.film=true")):
        assert len(OPEN) == 3, "those that are trained in"
    # 3 to train in; 2 for each of two evaluations on the way and of two ways of acting in the end; those of the film,
    # with and without pictures; and TorchRL's template of each batch
    assert len(MADE) >= 3 + 2 * 4 + 2
    assert not OPEN
    configured, agent = load_agent(tmp_path / "counted", "cpu")
    evaluate(configured, agent)
    assert not OPEN


def test_a_film_shows_what_the_world_draws(tmp_path):
    configured = experiment(tmp_path)
    world = film_world(configured, 1)
    agent = configured.make_agent(world)
    path = film_policy(agent.attach(world), acting_policy(agent), tmp_path / "film.gif", steps=9, every=1)
    with Image.open(path) as film:
        assert film.n_frames == 9, "every step is another picture"
    world.close()
    assert not OPEN
