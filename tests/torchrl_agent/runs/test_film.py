"""Films of policies."""

from __future__ import annotations

import pytest
from PIL import Image

from envs import ArenaEnv
from torchrl_agent.runs.film import film_policy


@pytest.mark.parametrize(("repeat", "pictures"), [(1, 8), (2, 12), (4, 6), (5, 5)])
def test_a_film_is_as_long_however_many_steps_of_the_game_a_decision_takes(tmp_path, repeat, pictures):
    env = ArenaEnv(1, action_repeat=repeat)
    path = film_policy(env, env.players()["random"], tmp_path / "film.gif", steps=24, every=3)
    with Image.open(path) as film:
        assert film.n_frames == pictures
