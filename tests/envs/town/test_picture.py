"""The drawing of a town."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from envs import TownEnv
from envs.toolkit.records import map_record
from envs.town import panel
from envs.town.picture import FIELD, has_panel, sketch, viewport

SIZE = (960, 768)
"""Large, so that a pixel's color is its own."""


def frame(town, size=SIZE):
    return sketch(town.state, town.env.episode, 0, town.rules, size).picture()


def cell(town, picture, x, y):
    """The pixels of a cell."""
    (left, top), scale = viewport(town.rules.width, town.rules.height, SIZE)
    across, down = int(left + scale * x), int(top + scale * y)
    return picture[down + 2 : int(down + scale) - 2, across + 2 : int(across + scale) - 2]


def single(town):
    return map_record(lambda value: value[..., 0].tolist(), town.state)


def has(pixels, color):
    return bool((pixels == np.array(color)).all(-1).any())


def test_shape_type_and_repetition(scene):
    town = scene("L3")
    picture = town.env.draw()
    assert picture.shape == (512, 640, 3)
    assert picture.dtype == np.uint8
    assert np.array_equal(picture, sketch(town.state, town.env.episode, 0, town.rules).picture())
    assert sketch(town.state, town.env.episode, 0, town.rules, (200, 100)).picture().shape == (100, 200, 3)
    picture[:] = 0  # its own memory, and writable


@pytest.mark.parametrize(
    ("width", "height", "agents", "size"),
    [(3, 3, 1, (480, 384)), (50, 50, 64, (480, 384)), (5, 40, 3, (300, 600)), (40, 5, 20, (32, 32)), (8, 8, 2, SIZE)],
)
def test_every_town_fits_into_every_size(width, height, agents, size):
    kinds = ["Bed"] if width == 3 else "all"
    rules = {"width": width, "height": height, "affordances": kinds, "view": 2}
    env = TownEnv(1, level="L7" if agents % 2 == 0 else "L3", num_agents=agents, rules=rules)
    assert sketch(env.state, env.episode, 0, env.rules, size).picture().shape == (size[1], size[0], 3)
    (left, top), scale = viewport(width, height, size)
    edge = size[0] * (0.75 if has_panel(size) else 1)
    assert left > 0 and left + scale * width < edge
    assert size[1] / 16 < top and top + scale * height < size[1]


def test_an_agent_is_drawn_where_it_stands(scene):
    town = scene("L3")
    before = frame(town)
    assert has(cell(town, before, 0, 0), panel.LIVING)
    town.put(x=5, y=2)
    after = frame(town)
    assert has(cell(town, after, 5, 2), panel.LIVING)
    assert not has(cell(town, after, 0, 0), panel.LIVING)


def test_agents_in_one_cell_stand_side_by_side(scene):
    town = scene("L6", num_agents=4)
    alone = scene("L6", num_agents=4)
    alone.put(slice(1, None), x=7, y=7)
    shared, single = (cell(each, frame(each), 0, 0) for each in (town, alone))
    assert not np.array_equal(shared, single)
    halves = shared[:, : shared.shape[1] // 2], shared[:, shared.shape[1] // 2 :]
    assert all(has(half, panel.LIVING) for half in halves)


def test_the_dead_are_gray_crosses(scene):
    town = scene("L3")
    town.put(alive=False)
    pixels = cell(town, frame(town), 0, 0)
    assert has(pixels, panel.FAINT)
    assert not has(pixels, panel.LIVING)


def test_families_are_the_color_of_the_rim(scene):
    town = scene("L7", num_agents=4)
    for agent in range(4):
        town.put(agent, x=2 * agent, y=3, cues=0)
    picture = frame(town)
    seen = [[has(cell(town, picture, 2 * agent, 3), panel.PALETTE[family]) for family in (0, 1)] for agent in range(4)]
    assert seen == [[True, False], [True, False], [False, True], [False, True]]


def test_places_have_the_color_of_the_meter_that_they_raise_and_their_own_shape(scene):
    town = scene("L3")
    town.put(x=7, y=7)
    for x, kind in enumerate(("Bed", "LuxuryBed", "Job")):
        town.place(kind, x, 0)
    picture = frame(town)
    bed, luxury, job = (cell(town, picture, x, 0) for x in range(3))
    assert has(bed, panel.meter_color(0)) and has(luxury, panel.meter_color(0)) and has(job, panel.meter_color(3))
    corner = slice(4, 10)
    assert not np.array_equal(bed[corner, corner], luxury[corner, corner])


@pytest.mark.parametrize(("level", "opens"), [("L5", [False, True, True, True, True, False]), ("L3", [True] * 6)])
def test_closed_places_are_gray_where_there_is_a_clock(scene, level, opens):
    """The bar closes after midnight."""
    town, seen = scene(level), []
    town.place("Bar", 5, 5)
    for hour in (17, 18, 23, 24, 27, 28):
        town.at_hour(hour)
        seen.append(has(cell(town, frame(town), 5, 5), panel.meter_color(5)))
    assert seen == opens


def test_in_fog_the_window_of_agent_0_is_lit(scene):
    town = scene("L4")
    town.put(x=4, y=4)
    picture = frame(town)
    assert has(cell(town, picture, 0, 0), FIELD)
    assert not has(cell(town, picture, 2, 2), FIELD)
    assert has(cell(town, frame(scene("L3")), 2, 2), FIELD)


def test_meters_are_bars_as_full_as_they_are(scene):
    for level, agents in (("L3", 1), ("L6", 4)):
        town = scene(level, num_agents=agents)
        right, counts = slice(int(0.75 * SIZE[0]), None), []
        for energy in (1.0, 0.5, 0.0):
            town.set(energy=energy)
            yellow = (frame(town)[:, right] == np.array(panel.meter_color(0))).all(-1)
            counts.append(int(yellow.sum()))
        assert counts[1] - counts[2] == pytest.approx((counts[0] - counts[2]) / 2, rel=0.1)
        assert counts[0] - counts[2] > 500


def test_cues_are_dots_on_the_map_and_words_in_the_panel(scene):
    town = scene("L7", num_agents=4)
    town.put(cues=0)
    before = frame(town)
    town.put(2, cues=1 << 3)
    difference = (frame(town) != before).any(-1)
    edge = int(0.75 * SIZE[0])
    assert difference[:, :edge].any() and difference[:, edge:].any()
    assert panel.shown_cues(single(town), town.rules, 2) == [(3, "tired")]


def test_other_worlds_are_other_pictures():
    env = TownEnv(2, level="L3", seed=1)
    assert not np.array_equal(env.draw(0), env.draw(1))
    assert not torch.equal(env.state.layout.x[:, 0], env.state.layout.x[:, 1])


def test_labels_are_two_letters_and_all_different():
    kinds = TownEnv(1, level="L3").rules.kinds
    assert panel.labels(("Bed", "HomeMeal", "FastFood")) == ["Be", "HM", "FF"]
    assert panel.labels(("money", "mood")) == ["Mo", "Md"]
    assert len(set(panel.labels(kinds))) == len(kinds)


@pytest.mark.parametrize("world", [-1, 2])
def test_there_is_no_other_world(scene, world):
    town = scene("L3", num_envs=2)
    with pytest.raises(ValueError, match=f"no world {world}: use 0 to 1"):
        town.env.draw(world)
    with pytest.raises(ValueError, match="at least 32 x 32"):
        sketch(town.state, town.env.episode, 0, town.rules, (16, 16)).picture()
