"""The coarse maps, on states written by hand. A cell of the classic field is 100 units wide and 80 high."""

from __future__ import annotations

import math

import pytest
import torch

from envs import ArenaEnv
from envs.arena import Rules
from envs.arena.heatmap import CHANNELS, heatmap
from envs.toolkit.records import map_record

RULES = Rules()


def channel(state, name, world=0):
    return heatmap(state, RULES)[world, CHANNELS.index(name)]


def cells(values):
    """The cells above 0: {(row, column): value}."""
    return {(row, column): values[row, column].item() for row, column in (values > 1e-6).nonzero().tolist()}


def test_an_empty_field_has_only_its_edge(state):
    maps = heatmap(state, RULES)
    assert maps.shape == (2, len(CHANNELS), 16, 16)
    assert maps.dtype == torch.float32
    edge = CHANNELS.index("edge")
    assert not maps[:, [index for index in range(len(CHANNELS)) if index != edge]].any()
    assert maps[0, edge].sum() == 4 * 15
    assert not maps[0, edge, 1:-1, 1:-1].any()


@pytest.mark.parametrize("name", ["enemies", "shots", "enemy_shots", "spawners"])
def test_a_thing_in_the_middle_of_a_cell_lights_that_cell_of_its_channel_only(state, name):
    things = getattr(state, name)
    alive = things.life if name.endswith("shots") else things.health
    things.x[2, 0], things.y[2, 0], alive[2, 0] = 350, 600, 100  # row 7: 560 to 640; column 3: 300 to 400
    maps = heatmap(state, RULES)
    assert cells(channel(state, name)) == pytest.approx({(7, 3): 1.0})
    lit = {CHANNELS[index] for index in maps[0].flatten(1).any(1).nonzero().flatten().tolist()}
    assert lit == {name, "edge"} | ({"spawner_health"} if name == "spawners" else set())
    assert not maps[1, CHANNELS.index(name)].any()


def test_a_thing_between_cells_gives_each_its_share(state):
    # a quarter of a cell right of the middle of column 3, half a cell below the middle of row 7
    state.enemies.x[0, 0], state.enemies.y[0, 0], state.enemies.health[0, 0] = 375, 640, 10
    shares = {(7, 3): 0.375, (8, 3): 0.375, (7, 4): 0.125, (8, 4): 0.125}
    assert cells(channel(state, "enemies")) == pytest.approx(shares, abs=1e-5)


def test_spawners_show_their_health_beside_their_place(state):
    state.spawners.x[0, 0], state.spawners.y[0, 0], state.spawners.health[0, 0] = 850, 200, 30
    assert cells(channel(state, "spawners")) == pytest.approx({(2, 8): 1.0})
    assert cells(channel(state, "spawner_health")) == pytest.approx({(2, 8): 0.3})


def test_the_ship_lights_its_cell_and_the_line_of_its_aim(state):
    state.ship.x[0], state.ship.y[0], state.ship.health[0] = 850, 600, 150
    state.ship.rotation[0] = 0.0
    assert cells(channel(state, "ship")) == pytest.approx({(7, 8): 1.0})
    aim = channel(state, "aim")
    assert torch.allclose(aim[7, 8:], torch.ones(8))
    assert not aim[7, :7].any()
    # one row away is 80 units, 0.8 of a cell's width
    assert aim[8, 12].item() == pytest.approx(0.2)
    state.ship.rotation[0] = -math.pi / 2
    aim = channel(state, "aim")
    assert torch.allclose(aim[:8, 8], torch.ones(8))
    assert not aim[9:].any()


def test_a_thing_at_the_wall_stays_on_the_map(state):
    state.enemies.x[0, 0], state.enemies.y[0, 0], state.enemies.health[0, 0] = 1588, 12, 10
    assert list(cells(channel(state, "enemies"))) == [(0, 15)]


def test_values_stay_between_0_and_1_and_every_row_is_its_own():
    env = ArenaEnv(num_envs=32, seed=5, observation="heatmap", desynchronize=True)
    env.rollout(150)
    whole = heatmap(env.state, RULES)
    assert whole.min() >= 0
    assert whole.max() <= 1
    alone = heatmap(map_record(lambda value: value[..., 7:8].contiguous(), env.state), RULES)
    assert torch.equal(whole[7:8], alone)
