"""The small pictures, on states written by hand. World 0 is looked at unless a test says otherwise.

One pixel of the field is 1600 / 62 = 25.8 units wide; the field begins at column 1 and row 13. So the middle of pixel
(row 13 + i, column 1 + j) is at (25.8 (j + 1/2), 25.8 (i + 1/2)).
"""

from __future__ import annotations

import math

import pytest
import torch

from envs import ArenaEnv
from envs.arena import Rules
from envs.arena.pixels import BARS, DIM, ENEMY, ENEMY_SHOT, FIELD, HEALTH, NOSE, SHIP, SHOT, SPAWNER, WALL, pixels
from envs.toolkit.records import map_record

RULES = Rules()
UNIT = 1600 / 62


def center(row, column):
    """The middle of a pixel in the field's units."""
    return (column - 1 + 0.5) * UNIT, (row - 13 + 0.5) * UNIT


def place(things, slot, row, column, **values):
    things.x[slot, 0], things.y[slot, 0] = center(row, column)
    for name, value in values.items():
        getattr(things, name)[slot, 0] = value


def fly(state, row, column, rotation=0.0, **values):
    state.ship.x[0], state.ship.y[0] = center(row, column)
    state.ship.rotation[0], state.ship.health[0] = rotation, 150
    for name, value in values.items():
        getattr(state.ship, name)[0] = value


def changed(before, after):
    """(row, column) of the pixels of world 0 that differ."""
    return {tuple(place) for place in (before[0] != after[0]).any(0).nonzero().tolist()}


def on_field(color, brightness=1.0):
    """A color on the field: in every channel the brighter of the two."""
    return [max(brightness * light, ground) for light, ground in zip(color, FIELD, strict=True)]


def color_at(picture, row, column):
    return tuple(picture[0, :, row, column].tolist())


def test_an_empty_field_is_ground_within_walls(state):
    picture = pixels(state, RULES)
    assert picture.shape == (2, 3, 64, 64)
    assert picture.dtype == torch.float32
    assert picture.is_contiguous()
    for row, column in ((13, 1), (40, 30), (61, 62)):
        assert color_at(picture, row, column) == pytest.approx(FIELD, abs=1e-5)
    for row, column in ((12, 1), (12, 63), (30, 0), (30, 63)):
        assert color_at(picture, row, column) == pytest.approx(WALL, abs=1e-5)


def test_an_enemy_lights_the_pixels_around_it_and_nothing_else(state):
    before = pixels(state, RULES)
    place(state.enemies, 3, 40, 20, health=10)
    after = pixels(state, RULES)
    assert color_at(after, 40, 20) == pytest.approx(on_field(ENEMY), abs=1e-5)
    # radius 1.1 and half a pixel of softness: the four neighbors at distance 1 are lit by 0.6, those at 1.41 by 0.19
    square = {(row, column) for row in (39, 40, 41) for column in (19, 20, 21)}
    assert changed(before, after) == square
    assert after[0, 0, 40, 21].item() == pytest.approx(0.6, abs=1e-4)
    assert after[0, 0, 41, 21].item() == pytest.approx(1.6 - math.sqrt(2), abs=1e-4)
    assert torch.equal(before[1], after[1])


def test_light_follows_a_thing_between_the_pixels(state):
    place(state.shots, 0, 40, 20, life=50, vx=0, vy=0)
    lights = []
    for shift in (0.3, 0.4, 0.5):
        state.shots.x[0, 0] = center(40, 20)[0] + shift * UNIT
        lights.append(pixels(state, RULES)[0, 1, 40, 20:22])
    assert lights[0][0] > lights[1][0] > lights[2][0]
    assert lights[0][1] < lights[1][1] < lights[2][1]
    torch.testing.assert_close(lights[2][0], lights[2][1], atol=1e-4, rtol=0)


@pytest.mark.parametrize(("name", "color"), [("shots", SHOT), ("enemy_shots", ENEMY_SHOT)])
def test_a_shot_is_bright_where_it_is_and_dim_where_it_was(state, name, color):
    # 6 steps ago it was 2 pixels to the left
    place(getattr(state, name), 5, 30, 30, life=9, vx=2 * UNIT / 6, vy=0)
    picture = pixels(state, RULES)
    assert color_at(picture, 30, 30) == pytest.approx(color, abs=1e-4)
    assert color_at(picture, 30, 28) == pytest.approx(on_field(color, DIM), abs=1e-4)
    assert color_at(picture, 30, 32) == pytest.approx(FIELD, abs=1e-4)


@pytest.mark.parametrize(
    ("rotation", "down", "right"), [(0, 0, 1), (math.pi / 2, 1, 0), (math.pi, 0, -1), (-math.pi / 2, -1, 0)]
)
def test_the_nose_shows_where_the_ship_points(state, rotation, down, right):
    fly(state, 40, 30, rotation)
    picture = pixels(state, RULES)
    assert color_at(picture, 40 + 3 * down, 30 + 3 * right) == pytest.approx(NOSE, abs=1e-4)
    assert color_at(picture, 40 - 3 * down, 30 - 3 * right) == pytest.approx(FIELD, abs=1e-4)
    assert picture[0, 2, 40, 30].item() == pytest.approx(SHIP[2])


def test_a_ship_in_motion_leaves_a_wake_and_a_dead_one_nothing(state):
    dead = pixels(state, RULES)
    fly(state, 40, 30)
    still = pixels(state, RULES)
    state.ship.vx[0] = 3 * UNIT / 6
    moving = pixels(state, RULES)
    assert (40, 27) in changed(still, moving)
    state.ship.health[0] = 0
    assert torch.equal(pixels(state, RULES), dead)


def test_a_spawner_carries_a_bar_as_long_as_its_health(state):
    lengths = []
    for health in (100, 60, 20):
        place(state.spawners, 1, 40, 20, health=health)
        picture = pixels(state, RULES)
        assert color_at(picture, 40, 20) == pytest.approx(SPAWNER, abs=1e-4)
        bar = (picture[0, 2, 37, :] - FIELD[2]).clamp_min(0) / (HEALTH[2] - FIELD[2])
        lengths.append(bar[17:24].sum().item())
    # five pixels when whole: columns 18 to 22
    assert lengths == pytest.approx([5, 3, 1], abs=1e-3)


def test_the_bars_show_health_readiness_phase_and_time(state):
    state.ship.health[0], state.ship.cooldown[0] = 75, 7
    state.progress.phase[0], state.progress.step[0] = 1, 750
    picture = pixels(state, RULES)
    shares = (0.5, 0.3, 0.4, 0.75)
    for bar, (share, color) in enumerate(zip(shares, BARS, strict=True)):
        for row in (3 * bar, 3 * bar + 1):
            lit = picture[0, :, row].sum(1) / torch.tensor(color)
            assert lit.tolist() == pytest.approx([62 * share] * 3, abs=1e-3)
        assert not picture[0, :, 3 * bar + 2].any()


def test_things_that_are_not_alive_are_not_drawn_wherever_their_slots_say(state):
    before = pixels(state, RULES)
    for things in (state.enemies, state.spawners, state.shots, state.enemy_shots):
        things.x.uniform_(0, 1600)
        things.y.uniform_(0, 1280)
    assert torch.equal(before, pixels(state, RULES))


def test_a_thing_in_a_corner_lights_that_corner_only(state):
    before = pixels(state, RULES)
    state.enemies.x[0, 0], state.enemies.y[0, 0], state.enemies.health[0, 0] = 1588, 1268, 10
    lit = changed(before, pixels(state, RULES))
    assert lit
    assert all(row >= 60 and column >= 60 for row, column in lit)


def test_overlapping_things_do_not_depend_on_their_order(state):
    for slot in range(8):
        place(state.enemies, slot, 40 + slot % 3, 20 + slot % 2, health=10)
        state.enemies.x[slot, 0] += slot
    before = pixels(state, RULES)
    for value in (state.enemies.x, state.enemies.y):
        value.copy_(value.flip(0))
    assert torch.equal(before, pixels(state, RULES))


@pytest.mark.parametrize("rules", [Rules(), Rules(width=800, height=1600), Rules(width=3000, height=900)])
def test_light_stays_between_0_and_1_in_any_field_and_every_row_is_its_own(rules):
    env = ArenaEnv(num_envs=32, seed=5, rules=rules, observation="pixels", desynchronize=True)
    env.rollout(150)
    whole = pixels(env.state, rules)
    assert whole.min() >= 0
    assert whole.max() <= 1
    alone = pixels(map_record(lambda value: value[..., 7:8].contiguous(), env.state), rules)
    assert torch.equal(whole[7:8], alone)
