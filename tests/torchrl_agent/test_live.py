"""Watching an agent play in a window."""

import gymnasium
import pytest
from strange_worlds import Reporter
from torchrl.envs import PendulumEnv, SerialEnv

from torchrl_agent import Experiment, cli, train
from torchrl_agent.models.planned_policy import acting_policy
from torchrl_agent.runs import live

SMALL = ("total_frames=32", "world.num_envs=2", "algorithm.rollout_steps=16", "threads=1", "device=cpu")
QUIET = ("run.film=false", "run.tensorboard=false", "run.final_evaluation=false")


class Windowed(Reporter):
    """Opens a window of its own: ``opened`` counts them."""

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 30}  # noqa: RUF012
    opened = 0

    def __init__(self, render_mode=None):
        super().__init__(length=6, render_mode=render_mode)
        if render_mode == "human":
            type(self).opened += 1


def test_a_world_opens_its_own_window_once_more_for_being_tried():
    experiment = Experiment.load(Windowed, *SMALL)
    agent = experiment.make_learner().agent
    Windowed.opened = 0
    world = live.live_world(experiment)
    assert world.batch_size == (1,) and Windowed.opened == 2  # one to see what it shows, and the one that is played
    assert live.play_live(world, acting_policy(agent), 100) == 6  # an episode


def test_the_command_plays_cart_pole_in_pygames_window(tmp_path, capsys, monkeypatch):
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")  # a display that nobody sees
    list(train(Experiment.load("gym:CartPole-v1", *SMALL, *QUIET, f"run.folder={tmp_path}", "run.name=pole")))
    assert cli.main(["film", str(tmp_path / "pole"), "--live", "--steps", "5"]) == 0
    assert capsys.readouterr().out.strip() == "5 steps played"
    assert not list((tmp_path / "pole").glob("film*"))


def test_what_draws_itself_gets_a_window_of_ours(monkeypatch):
    shown = []

    class Fake:
        def __init__(self, title):
            assert title == "ArenaEnv"

        def show(self, picture, seconds):
            shown.append((picture.shape, round(1 / seconds)))
            return len(shown) < 4  # then somebody closes it

    monkeypatch.setattr(live, "Window", Fake)
    experiment = Experiment.load("smoke", "world.num_envs=2", "device=cpu")
    agent = experiment.make_learner().agent
    assert live.play_live(live.live_world(experiment), acting_policy(agent), 9) == 4
    assert len(shown) == 4 and shown[0][0][-1] == 3 and shown[0][1] == 60


def test_without_a_display_the_sentence_says_what_to_do():
    with pytest.raises(ValueError, match="no display to open a window on: make a film instead"):
        live.Window("a title")


def test_a_world_without_a_display_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="can be neither drawn nor opened in a window"):
        live.play_live(SerialEnv(1, PendulumEnv), lambda frame: frame, 3)


def test_a_world_that_has_no_window_says_so():
    class Blind(gymnasium.Env):
        observation_space, action_space = Reporter.observation_space, Reporter.action_space
        metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

        def __init__(self, render_mode=None):
            if render_mode == "human":
                raise ValueError("it has no window")

        def reset(self, *, seed=None, options=None):
            return self.observation_space.sample(), {}

        def step(self, action):
            return self.observation_space.sample(), 0.0, False, True, {}

    with pytest.raises(ValueError, match="it has no window"):
        live.live_world(Experiment.load(Blind, *SMALL))
