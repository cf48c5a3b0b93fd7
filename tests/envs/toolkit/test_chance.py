"""Counter-based chance: uniform, independent, and the same wherever it is drawn."""

from __future__ import annotations

import pytest
import torch

from envs.toolkit.chance import seed_chance


def test_numbers_are_uniform():
    numbers = seed_chance(1, 4096).uniform(0, 32)
    assert numbers.dtype == torch.float32
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 0.005
    assert abs(numbers.var() - 1 / 12) < 0.001
    counts = torch.histc(numbers, 16, 0, 1) / numbers.numel()
    assert (counts - 1 / 16).abs().max() < 0.003


def test_streams_lanes_worlds_and_clocks_are_uncorrelated():
    chance = seed_chance(2, 20_000)
    series = [
        chance.uniform(0, 2)[0],
        chance.uniform(0, 2)[1],
        chance.uniform(1, 1)[0],
        chance.tick().uniform(0, 1)[0],
        seed_chance(3, 20_000).uniform(0, 1)[0],
        chance.uniform(0, 1)[0].roll(1),
    ]
    correlation = torch.corrcoef(torch.stack(series)).fill_diagonal_(0)
    assert correlation.abs().max() < 0.03


def test_a_world_draws_the_same_alone_or_in_a_crowd():
    assert torch.equal(seed_chance(5, 3).uniform(2, 4), seed_chance(5, 100).uniform(2, 4)[:, :3])


def test_a_partial_tick_moves_only_those_worlds():
    chance = seed_chance(5, 4)
    ticked = chance.tick(torch.tensor([True, False, True, False]))
    same = (chance.uniform(0, 3) == ticked.uniform(0, 3)).all(0)
    assert same.tolist() == [False, True, False, True]


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**40 + 1, 2**63 - 1, -1])
def test_all_bits_of_a_seed_count(seed):
    other = seed ^ (1 << 35)
    assert not torch.equal(seed_chance(seed, 8).uniform(0, 4), seed_chance(other, 8).uniform(0, 4))
    assert torch.equal(seed_chance(seed, 8).uniform(0, 4), seed_chance(seed, 8).uniform(0, 4))


def test_a_stream_is_not_overdrawn():
    with pytest.raises(ValueError, match="256"):
        seed_chance(0, 2).uniform(0, 257)


@pytest.mark.slow
def test_compiled_numbers_are_the_same_bit_by_bit():
    chance = seed_chance(7, 1000)
    compiled = torch.compile(lambda c: c.tick().uniform(3, 17), fullgraph=True)
    assert torch.equal(compiled(chance), chance.tick().uniform(3, 17))


def test_neighboring_seeds_share_no_world():
    keys = torch.cat([seed_chance(seed, 2048).key for seed in range(20)])
    assert keys.unique().numel() == keys.numel()


def test_the_same_place_gives_the_same_number_and_more_numbers_only_add():
    chance = seed_chance(8, 16).tick()
    assert torch.equal(chance.uniform(1, 3), chance.uniform(1, 3))
    assert torch.equal(chance.uniform(1, 3), chance.uniform(1, 9)[:3])


def test_streams_do_not_overlap():
    chance = seed_chance(9, 64)
    assert not (chance.uniform(0, 256)[-1] == chance.uniform(1, 1)[0]).any()
    assert not (chance.uniform(0, 256) == chance.uniform(1, 256)).all(0).any()


def test_one_world_over_time_is_uniform_and_uncorrelated():
    chance, series = seed_chance(10, 2), []
    for _ in range(4000):
        chance = chance.tick()
        series.append(chance.uniform(0, 1)[0])
    series = torch.stack(series)
    assert (series.mean(0) - 0.5).abs().max() < 0.02
    lagged = torch.corrcoef(torch.stack([series[:-1, 0], series[1:, 0], series[1:, 1]])).fill_diagonal_(0)
    assert lagged.abs().max() < 0.06


def test_a_tick_leaves_the_older_luck_as_it_was():
    chance = seed_chance(11, 4)
    before = chance.uniform(0, 2)
    chance.tick()
    assert torch.equal(chance.uniform(0, 2), before)
