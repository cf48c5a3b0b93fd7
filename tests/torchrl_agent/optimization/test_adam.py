"""Adam's step on all parameters at once, beside PyTorch's optimizer on each of them."""

import copy

import pytest
import torch
from torch import nn

from torchrl_agent.optimization.adam import FlatAdam, FusedAdam, is_plain_adam, make_adam

SHAPES = [(3, 2), (4,), (), (2, 1)]
NAMES = ["critic", "actor", "actor", "critic"]
LIMITS = 0.3


def make(weight_decay=0.0):
    """Four parameters of two modules in two parts, and their optimizer."""
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.randn(shape)) for shape in SHAPES]
    parts = [[parameters[3], parameters[1]], [parameters[0], parameters[2]]]
    return parameters, parts, make_adam(parameters, 0.1, 1e-5, weight_decay)


def gradients(step):
    generator = torch.Generator().manual_seed(step)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def by_pytorch(parameters, parts, optimizer, given):
    """Clip each part and step; a gradient that is None leaves its parameter alone."""
    for parameter, gradient in zip(parameters, given, strict=True):
        parameter.grad = None if gradient is None else gradient.clone()
    for part in parts:
        nn.utils.clip_grad_norm_([each for each in part if each.grad is not None], LIMITS)
    optimizer.step()


def at_once(adam, parameters, given, wanted=True):
    by_parameter = dict(zip(parameters, given, strict=True))
    with torch.no_grad():
        return adam.step([by_parameter[each] for each in adam.parameters], torch.tensor(wanted))


def assert_same(one, other):
    for mine, theirs in zip(one, other, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def names(parameters):
    return dict(zip(parameters, NAMES, strict=True))


@pytest.mark.parametrize("without", [(), (0, 2)])
def test_steps_are_those_of_pytorch_with_each_part_clipped(without):
    """In the steps ``without`` it the second parameter has no gradient and keeps its value, moments and count."""
    parameters, parts, optimizer = make()
    mine, my_parts, my_optimizer = make()
    flat = FlatAdam(my_optimizer, my_parts, names(mine), LIMITS)
    for step in range(4):
        given = gradients(step)
        given[1] = None if step in without else given[1]
        by_pytorch(parameters, parts, optimizer, given)
        norms, made = at_once(flat, mine, given)
        assert made
    assert_same(mine, parameters)
    for parameter, other in zip(mine, parameters, strict=True):
        state, expected = my_optimizer.state[parameter], optimizer.state[other]
        assert_same([state[name] for name in expected], expected.values())
    assert [my_optimizer.state[mine[number]]["step"] for number in (0, 1)] == [4, 4 - len(without)]
    assert norms["grad_norm/actor"] == pytest.approx((given[1].square().sum() + given[2].square()).sqrt().item())
    whole = sum(each.square().sum() for each in given).sqrt().item()
    assert norms["grad_norm"] == pytest.approx(whole)


@pytest.mark.parametrize("traced", [False, True])
def test_weight_decay_is_that_of_adamw(traced):
    parameters, parts, _ = make()
    mine, my_parts, my_optimizer = make(weight_decay=0.3)
    reference = torch.optim.AdamW(parameters, lr=0.1, eps=1e-5, weight_decay=0.3)
    assert is_plain_adam(my_optimizer)
    flat = FlatAdam(my_optimizer, my_parts, names(mine), LIMITS) if traced else None
    for step in range(4):
        given = gradients(step)
        given[1] = None if step == 2 else given[1]  # a parameter without a gradient does not decay
        by_pytorch(parameters, parts, reference, given)
        at_once(flat, mine, given) if traced else by_pytorch(mine, my_parts, my_optimizer, given)
    assert_same(mine, parameters)
    without, their_parts, plain = make()
    for step in range(4):
        by_pytorch(without, their_parts, plain, gradients(step))
    assert (without[0] - mine[0]).abs().max() > 0.01


def test_the_operator_makes_the_steps_of_pytorch_bit_by_bit():
    """In the second step one parameter has no gradient, and the third is not made."""
    (parameters, _, optimizer), (mine, _, my_optimizer) = make(weight_decay=0.3), make(weight_decay=0.3)
    adam = FusedAdam(my_optimizer, lambda given: {"grad_norm": torch.tensor(1.0)})  # nothing to clip
    for step in range(4):
        given = gradients(step)
        given[1] = None if step == 1 else given[1]
        if step != 2:
            by_pytorch(parameters, [], optimizer, given)
        at_once(adam, mine, given, wanted=step != 2)
    for parameter, other in zip(mine, parameters, strict=True):
        assert torch.equal(parameter, other)
        assert all(
            torch.equal(my_optimizer.state[parameter][name], value) for name, value in optimizer.state[other].items()
        )


def test_moments_are_laid_out_as_their_parameters_in_memory_of_their_own():
    parameter, held = nn.Parameter(torch.zeros(2, 3)), torch.arange(6.0).view(3, 2)
    optimizer = make_adam([parameter], 0.1, 1e-5)
    optimizer.state[parameter] = {"step": torch.tensor(4.0), "exp_avg": held.t(), "exp_avg_sq": held.t()}
    FusedAdam(optimizer, clip=dict)
    state = optimizer.state[parameter]
    held.zero_()
    assert state["exp_avg"].is_contiguous() and state["step"] == 4
    assert state["exp_avg"].tolist() == state["exp_avg_sq"].tolist() == [[0.0, 2.0, 4.0], [1.0, 3.0, 5.0]]


@pytest.mark.parametrize("reason", ["unwanted", "infinite"])
def test_a_step_that_is_skipped_changes_nothing(reason):
    parameters, parts, optimizer = make()
    flat = FlatAdam(optimizer, parts, names(parameters), LIMITS)
    at_once(flat, parameters, gradients(0))
    before = copy.deepcopy([parameters, flat.mean, flat.square, flat.steps])
    given = gradients(1)
    if reason == "infinite":
        given[0][0, 0] = torch.inf
    _, made = at_once(flat, parameters, given, wanted=reason != "unwanted")
    assert not made
    for old, new in zip(before[0], parameters, strict=True):
        assert torch.equal(old, new)
    assert all(torch.equal(old, new) for old, new in zip(before[1:], [flat.mean, flat.square, flat.steps], strict=True))


def test_the_optimizer_goes_on_alone_and_its_state_is_taken_over():
    parameters, parts, optimizer = make()
    mine, my_parts, my_optimizer = make()
    by_pytorch(mine, my_parts, my_optimizer, gradients(0))
    flat = FlatAdam(my_optimizer, my_parts, names(mine), LIMITS)  # with moments from before
    at_once(flat, mine, gradients(1))
    by_pytorch(mine, my_parts, my_optimizer, gradients(2))
    for step in range(3):
        by_pytorch(parameters, parts, optimizer, gradients(step))
    assert_same(mine, parameters)


def test_other_optimizers_are_not_plain_adam():
    parameters = make()[0]
    assert is_plain_adam(make_adam(parameters, 0.1, 1e-5))
    others = [
        torch.optim.AdamW(parameters, lr=torch.tensor(0.1)),
        torch.optim.Adam(parameters, lr=torch.tensor(0.1), weight_decay=0.1),
        torch.optim.Adam(parameters, lr=torch.tensor(0.1), betas=(0.8, 0.999)),
        torch.optim.Adam(parameters, lr=0.1),
    ]
    assert not any(is_plain_adam(other) for other in others)
