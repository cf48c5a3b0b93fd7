import math

import numpy as np
import pytest
import torch

from envs import ArenaEnv
from envs.arena import picture
from envs.arena.picture import sketch, viewport
from envs.arena.rules import Rules
from envs.toolkit.records import map_record

RULES = Rules()
SIZE = (960, 768)
EPISODE = ArenaEnv(2, seed=0).episode


@pytest.fixture
def state():
    """One world: the ship in the middle facing right at half health, a hurt spawner, an enemy, a shot of each side."""
    state = ArenaEnv(2, seed=0).state
    state.ship.health[0] = 75
    state.spawners.x[0], state.spawners.y[0], state.spawners.health[0] = 500, 300, 50
    state.enemies.x[0], state.enemies.y[0], state.enemies.health[0] = 1100, 300, 10
    for shots, x in ((state.shots, 500), (state.enemy_shots, 1100)):
        shots.x[0], shots.y[0], shots.vy[0], shots.life[0] = x, 900, 8, 50
    return state


def pixel(frame, x, y):
    (left, top), scale = viewport(RULES, SIZE)
    return tuple(frame[int(top + scale * y), int(left + scale * x)].tolist())


def test_shape_and_type(state):
    frame = sketch(state, EPISODE, 0, RULES).picture()
    assert frame.shape == (512, 640, 3)
    assert frame.dtype == np.uint8
    frame[:] = 0  # its own memory, and writable


def test_the_field_fills_the_picture_below_the_header():
    for size in (SIZE, (480, 384), (300, 600), (600, 200)):
        (left, top), scale = viewport(RULES, size)
        assert left > 0 and left + scale * RULES.width < size[0]
        assert size[1] / 16 < top and top + scale * RULES.height < size[1]


def test_things_have_their_colors_where_they_are(state):
    frame = sketch(state, EPISODE, 0, RULES, SIZE).picture()
    assert pixel(frame, 300, 1100) == picture.FIELD
    assert tuple(frame[1, 1]) == picture.GROUND
    assert pixel(frame, 800, 640) == picture.SHIP
    assert pixel(frame, 500, 300) == picture.SPAWNER
    assert pixel(frame, 1100 + 0.7 * RULES.enemy_radius, 300) == picture.ENEMY
    assert pixel(frame, 500, 900) == picture.SHOT
    assert pixel(frame, 1100, 900) == picture.ENEMY_SHOT


def test_the_ship_points_where_it_faces(state):
    nose = 1.4 * RULES.ship_radius
    for rotation in (0, math.pi / 2, math.pi, 3 * math.pi / 2):
        state.ship.rotation[0] = rotation
        frame = sketch(state, EPISODE, 0, RULES, SIZE).picture()
        x, y = nose * math.cos(rotation), nose * math.sin(rotation)
        assert pixel(frame, 800 + x, 640 + y) == picture.SHIP
        assert pixel(frame, 800 - x, 640 - y) != picture.SHIP


def test_health_bars_are_as_full_as_the_health(state):
    frame = sketch(state, EPISODE, 0, RULES, SIZE).picture()
    below, above = 640 + 2.8 * RULES.ship_radius, 300 - 1.9 * RULES.spawner_radius
    assert pixel(frame, 790, below) == picture.HEALTH and pixel(frame, 810, below) == picture.EMPTY
    assert pixel(frame, 490, above) == picture.SPAWNER and pixel(frame, 510, above) == picture.EMPTY
    state.ship.health[0] = 30
    assert pixel(sketch(state, EPISODE, 0, RULES, SIZE).picture(), 775, below) == picture.DANGER


def test_dead_things_and_other_worlds_are_not_drawn(state):
    other = sketch(state, EPISODE, 1, RULES, SIZE).picture()
    state.enemies.health[0] = state.shots.life[0] = state.enemy_shots.life[0] = state.spawners.health[0] = 0
    frame = sketch(state, EPISODE, 0, RULES, SIZE).picture()
    for x, y in ((1100 + 0.7 * RULES.enemy_radius, 300), (500, 900), (1100, 900), (500, 300)):
        assert pixel(frame, x, y) == picture.FIELD
    assert not np.array_equal(frame, other)


def test_the_header_tells_phase_step_health_and_return(state):
    header = slice(0, int(viewport(RULES, SIZE)[0][1]) - 2)
    episode = map_record(torch.clone, EPISODE)
    seen = [sketch(state, episode, 0, RULES, SIZE).picture()[header]]
    changes = ((state.progress.phase, 4), (state.progress.phase, 5), (state.progress.step, 77), (state.ship.health, 9))
    for value, new in (*changes, (episode.total_reward, -3.5)):
        value[0] = new
        seen.append(sketch(state, episode, 0, RULES, SIZE).picture()[header])
    assert len({frame.tobytes() for frame in seen}) == len(seen)


def test_errors_say_what_to_give(state):
    with pytest.raises(ValueError, match="no world 2: use 0 to 1"):
        sketch(state, EPISODE, 2, RULES).picture()
    with pytest.raises(ValueError, match="at least 32 x 32"):
        sketch(state, EPISODE, 0, RULES, (16, 16)).picture()
