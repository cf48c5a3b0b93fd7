"""Past selves: who is kept, who goes, and who is met."""

import pytest
import torch
from torch import nn

from torchrl_agent.population.pool import FLOOR, FREE, Pool, draw_weights
from torchrl_agent.population.stack import Stack


def stack_of(*values):
    """Members that are one number each."""
    modules = [nn.Linear(1, 1, bias=False) for _ in values]
    for module, value in zip(modules, values, strict=True):
        nn.init.constant_(module.weight, value)
    return Stack(modules)


def test_a_snapshot_stays_what_the_member_was():
    stack = stack_of(1.0, 2.0)
    pool = Pool(stack, 3)
    assert pool.add(1, 10, torch.zeros(2, 3)) == 0
    with torch.no_grad():
        stack.flat.fill_(7.0)
    assert pool.snapshots.flat[0].item() == 2.0
    assert pool.add(0, 20, torch.zeros(2, 3)) == 1
    assert pool.snapshots.flat[:2].flatten().tolist() == [2.0, 7.0]
    assert pool.owner.tolist() == [1, 0, FREE]
    assert pool.used.tolist() == [0, 1]


def test_of_two_that_fare_alike_one_goes_but_never_an_owners_first_or_newest():
    pool = Pool(stack_of(1.0), 5)
    for frames in range(5):
        pool.add(0, frames, torch.zeros(1, 5))
    # against two players; the first two fare alike, and so do the last two, less: the first and the newest stay
    shares = torch.tensor([[0.1, 0.1, 0.5, 0.9, 0.91], [0.1, 0.1, 0.5, 0.9, 0.9]])
    assert pool.add(0, 5, shares) == 1
    shares = torch.tensor([[0.1, 0.3, 0.5, 0.9, 0.91], [0.1, 0.3, 0.5, 0.9, 0.9]])
    assert pool.frames.tolist() == [0, 5, 2, 3, 4]
    assert pool.add(0, 6, shares) == 3  # with the one of 4 frames it is alike; that of 5 is the newest
    assert pool.frames.tolist() == [0, 5, 2, 6, 4]
    shares = torch.tensor([[0.1, 0.3, 0.5, 0.9, 0.9]])
    assert pool.add(0, 7, shares) == 4  # with that of 6 frames, the newest, it is alike


def test_a_pool_of_nothing_but_first_and_newest_gives_one_away_nevertheless():
    pool = Pool(stack_of(1.0, 2.0), 2)
    for member in range(2):
        pool.add(member, 0, torch.zeros(1, 2))
    assert pool.add(0, 1, torch.zeros(1, 2)) in (0, 1)


@pytest.mark.parametrize(("choose", "weights"), [("hard", [1.0, 0.25, 0.0]), ("even", [0.0, 0.25, 0.0])])
def test_weights_of_opponents_by_hand(choose, weights):
    found = draw_weights(torch.tensor([0.0, 0.5, 1.0]), choose)
    assert found.tolist() == pytest.approx([FLOOR + weight for weight in weights])


def test_uniform_weights_are_alike():
    assert draw_weights(torch.tensor([0.0, 0.5]), "uniform").tolist() == [1, 1]


def test_rows_of_one_stack_are_put_into_another():
    stack = stack_of(1.0, 2.0, 3.0)
    taken = stack.take(torch.tensor([2, 0]))
    assert taken.flat.flatten().tolist() == [3, 1]
    assert not taken.flat.requires_grad
    taken.put(torch.tensor([1]), stack, torch.tensor([1]))
    assert taken.flat.flatten().tolist() == [3, 2]
    assert stack.flat.flatten().tolist() == [1, 2, 3]
    answers = taken.call(lambda td: {"y": td["x"] * 1.0}, {"x": torch.ones(2, 4)}, 1)
    assert answers["y"].shape == (2, 4)
