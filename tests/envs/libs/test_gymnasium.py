"""Gymnasium's worlds for us: actions, pictures, closing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from counting_world import NAME, OPEN, registered
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from envs.libs.gymnasium import VectorGymEnv
from torchrl_agent.world_check import check_world


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


@pytest.mark.parametrize("space", [Dict(a=Discrete(2), b=Box(-1, 1, (2,))), Tuple((Discrete(2), Discrete(3)))])
def test_actions_of_several_kinds_are_refused_in_one_sentence(space):
    with pytest.raises(ValueError, match=rf"actions of {NAME} are {space.__class__.__name__}.*takes one of several"):
        VectorGymEnv(NAME, 2, action_space=space)
    assert not OPEN


def test_every_world_that_is_made_is_closed():
    env = VectorGymEnv(NAME, 3)
    assert len(OPEN) == 3, "TorchRL's template is closed"
    env.close()
    assert not OPEN


def test_a_world_is_drawn_by_its_own_render():
    env = VectorGymEnv(NAME, 2, device="cpu", **VectorGymEnv.film_arguments)
    assert env.metadata["render_fps"] == 15
    root = env.reset()
    for step in range(3):
        picture = env.draw(1)
        assert picture.dtype == np.uint8 and picture.shape == (4, 6, 3) and (picture == 20 * step).all()
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
