"""The drawing of a town."""

from __future__ import annotations

import numpy as np
import pytest

from envs import TownEnv
from envs.film import write_film
from envs.town.picture import MOST_PANELS, draw


def frame(env, **options):
    return draw(env.state, 0, env.rules, **options)


def changed(before, after):
    return (before != after).any(-1)


def test_shape_type_and_repetition(scene):
    env = scene("L3").env
    picture = frame(env)
    assert picture.shape == (400, 560, 3)
    assert picture.dtype == np.uint8
    assert np.array_equal(picture, frame(env))
    assert np.array_equal(picture, env.draw())
    assert frame(env, size=(200, 100)).shape == (100, 200, 3)


def test_an_agent_is_drawn_where_it_stands(scene):
    town = scene("L3")
    before = frame(town.env)
    town.put(x=7)
    columns = changed(before, frame(town.env)).any(0).nonzero()[0]
    edge = 0.64 * 560
    assert columns.min() < edge / 8, "gone from the first column of cells"
    assert edge * 7 / 8 - 12 < columns.max() < edge, "seen in the last one, and nothing else changed"


def test_the_dead_are_drawn_otherwise(scene):
    town = scene("L6", num_agents=4)
    before = frame(town.env)
    town.put(3, alive=False)
    assert changed(before, frame(town.env)).any()


def test_a_low_meter_is_drawn_shorter_and_in_another_colour(scene):
    town = scene("L3")
    before = frame(town.env)
    town.set(energy=0.1)
    difference = changed(before, frame(town.env))
    assert difference[:, : int(0.6 * 560)].sum() == 0, "the map stays as it was"
    assert difference.any()


def test_closed_places_are_dim(scene):
    town = scene("L5")
    town.place("Bar", 3, 3)
    town.at_hour(20)
    opened = frame(town.env)
    town.at_hour(12)
    assert frame(town.env)[150:250].mean() < opened[150:250].mean()


def test_in_fog_the_window_is_framed(scene):
    fog, clear = scene("L4"), scene("L3")
    assert changed(frame(fog.env), frame(clear.env)).any()


def test_cues_are_written_beside_the_meters(scene):
    town = scene("L7", num_agents=4)
    town.put(cues=0)
    before = frame(town.env)
    town.put(2, cues=1)
    assert changed(before, frame(town.env))[:, 380:].any()


def test_with_many_agents_the_map_takes_the_whole_picture():
    size = {"rules": {"width": 50, "height": 50}}
    few, many = (TownEnv(1, level="L6", num_agents=n, **size) for n in (MOST_PANELS, 64))
    drawn = [(frame(env) != frame(env)[200, 2]).any(-1)[40:].any(0).nonzero()[0] for env in (few, many)]
    assert drawn[0].max() > 500
    assert drawn[1].max() < 500


def test_a_film_can_be_made(tmp_path):
    env = TownEnv(1, level="L2", seed=1)
    path = write_film([env.draw(), env.draw()], tmp_path / "town.gif")
    assert path.stat().st_size > 1000


def test_impossible_pictures_are_refused(scene):
    env = scene("L3").env
    with pytest.raises(ValueError, match="no world 3"):
        draw(env.state, 3, env.rules)
    with pytest.raises(ValueError, match="too small"):
        draw(env.state, 0, env.rules, size=(10, 10))
