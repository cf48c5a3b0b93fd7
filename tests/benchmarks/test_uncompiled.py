"""What runs eagerly is counted as a GPU would run it (``benchmarks/lowering/uncompiled.py``)."""

from __future__ import annotations

import pytest
import torch

from benchmarks.lowering.uncompiled import Uncompiled, Work, count_flops
from torchrl_agent.optimization.adam import make_adam


@pytest.fixture
def count():
    """The work of a function, by stage."""

    def counted(function):
        with Uncompiled("rest") as watched:
            function(watched)
        return dict(watched.work)

    return counted


def test_a_product_and_a_view(count):
    left, right = torch.zeros(64, 32), torch.zeros(16, 32)
    work = count(lambda _: left @ right.t())
    assert work == {"rest": Work(1, 4 * (64 * 32 + 32 * 16 + 64 * 16), 2 * 64 * 32 * 16)}


def test_what_is_chosen_counts_as_much_as_comes_out(count):
    frames, order = torch.zeros(1000, 8), torch.arange(10)
    assert count(lambda _: frames[order]) == {"rest": Work(1, 10 * 8 + 2 * 4 * 10 * 8)}


def test_room_that_is_found_costs_nothing_and_what_is_overwritten_is_not_read(count):
    source = torch.ones(1).expand(100)
    assert count(lambda _: torch.empty(100).copy_(source)) == {"rest": Work(1, 4 + 400)}
    assert count(lambda _: torch.empty(100).fill_(1.0)) == {"rest": Work(1, 400)}
    several = [torch.zeros(50), torch.zeros(50)]
    assert count(lambda _: torch._foreach_copy_(several, [torch.ones(50)] * 2)) == {"rest": Work(2, 200 + 800)}
    rows = torch.zeros(2, 50)
    assert count(lambda _: torch.stack(several, out=rows)) == {"rest": Work(1, 800)}


def test_lists_of_several_types_are_copied_one_by_one(count):
    one, other = (
        (torch.zeros(50), torch.zeros(50, dtype=torch.bool)),
        (torch.ones(50), torch.ones(50, dtype=torch.bool)),
    )
    work = count(lambda _: torch._foreach_copy_(one, other))
    assert work["rest"].launches == 2


def test_a_step_of_adam_reads_four_numbers_of_a_weight_and_writes_three(count):
    weight = torch.nn.Parameter(torch.zeros(1000))
    optimizer = make_adam([weight], 1e-3, 1e-5)
    for _ in range(2):  # the first makes the moments
        weight.grad = torch.ones(1000)
        work = count(lambda _: optimizer.step())
    step, rate = 3 * 4, 4  # the number of the step is counted up, read
    assert work["rest"].bytes == pytest.approx(7 * 4 * 1000, abs=2 * (step + rate))
    assert work["rest"].launches <= 2


def test_stages_are_counted_apart_and_what_is_lowered_is_not(count):
    class Learner:
        def improve(self):
            return torch.ones(10).sin()

        def lowered(self):
            return torch.ones(10).sin()

    def iterate(watched):
        with watched.stages({(Learner, "improve"): "improve", (Learner, "lowered"): None}):
            Learner().improve()
            Learner().lowered()
        torch.zeros(5)

    assert count(iterate) == {"improve": Work(2, 40 + 80), "rest": Work(1, 20)}


def test_operations_of_a_call_and_of_its_backward_pass_by_hand():
    weight, given = torch.ones(3, 2, requires_grad=True), torch.ones(4, 3)
    assert count_flops(lambda: given @ weight) == 2 * 4 * 3 * 2
    assert count_flops(lambda: (given @ weight).sum().backward()) == 2 * (2 * 4 * 3 * 2)  # and the weight's gradient
