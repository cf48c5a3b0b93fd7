"""Batched operations of traced functions: values are those of the function, and what may not be joined stays apart."""

from collections import Counter

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from torchrl_agent.optimization.batching import batch_products


def traced(function, *inputs):
    """The function's graph, and the batched one."""
    graph = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*inputs)
    return graph, batch_products(graph, list(inputs))


def calls(graph):
    return Counter(str(node.target).removeprefix("aten.") for node in graph.graph.nodes)


def products(graph):
    found = Counter(getattr(node.target, "__name__", "") for node in graph.graph.nodes)
    return found["bmm"], sum(count for name, count in found.items() if name.split(".")[0] in ("mm", "addmm"))


def check_equal(function, *inputs):
    """Values and what is written are equal; returns the numbers of batched and of other products."""
    _, batched = traced(function, *inputs)
    copies = [value.clone() for value in inputs]
    torch.testing.assert_close(batched(*copies), function(*inputs))
    torch.testing.assert_close(copies, list(inputs))
    return products(batched)


def gradients(networks):
    def learn(values):
        with torch.enable_grad():
            total = sum((network(values) ** 2).mean() for network in networks)
            return torch.autograd.grad(total, [each for network in networks for each in network.parameters()])

    return learn


@pytest.mark.parametrize("activation", [nn.SiLU, nn.Tanh, nn.ReLU])
def test_equal_networks_are_one(activation):
    torch.manual_seed(0)
    networks = [
        nn.Sequential(nn.Linear(3, 8), activation(), nn.Linear(8, 8), activation(), nn.Linear(8, size))
        for size in (4, 1)
    ]
    graph, batched = traced(gradients(networks), torch.randn(16, 3))
    # of two layers: two forward, one backward and two for weights; of each head one of each kind
    assert products(graph) == (0, 2 * 5 + 6)
    assert products(batched) == (5, 5)  # backward through the value's head is of a column and a row, and elementwise
    values = torch.randn(16, 3)
    torch.testing.assert_close(batched(values), list(gradients(networks)(values)))
    kinds = calls(batched)
    assert sum(count for name, count in kinds.items() if name.startswith(("silu", "tanh", "relu", "threshold"))) == 4


def test_products_in_a_row_stay_apart():
    assert check_equal(lambda x, w: ((x @ w) @ w) @ w, torch.randn(4, 4), torch.randn(4, 4)) == (0, 3)


def test_chains_that_cross_are_joined_once():
    def crossed(x, a, b):  # to join the first of one chain with the second of the other, twice, would be a circle
        return (x @ a) @ b, (x.relu() @ b) @ a

    assert check_equal(crossed, *(torch.randn(4, 4) for _ in range(3))) == (2, 0)


def view_of_weights(x, y, a, b):
    first = x @ a, x @ b
    a.t().mul_(2)
    return *first, y @ a, y @ b


def several_at_once(x, y, a, b):
    first = x @ a, y @ b
    torch._foreach_mul_([a, y], 2)
    return *first, x @ a, y @ b


def part_of_an_input(x, y, a, b):
    _, part = x.split(2)
    first = x @ a
    part.mul_(3)
    return first, x @ b


def undeclared_view(x, y, a, b):
    flat, first = torch.ops.aten._unsafe_view(x, [16]), x @ a
    flat.mul_(2)
    return first, x @ b


def given_output(x, y, a, b):
    first = x @ a
    torch.mul(x, 2, out=x)
    return first, x @ b


def result_through_a_view(x, y, a, b):
    one, two, three = x @ a, x @ b, x @ y
    one.detach().mul_(2)
    return one, two, three, two.detach() + 1


def members_in_place(x, y, a, b):
    one, two = x @ a, x @ b
    return one + 1, one.relu_(), two + 1, two.relu_(), one * two


def results_between(x, y, a, b):
    one, two, three = x @ a, x @ b, x @ y
    sums = one * 2, three * 2
    one.view(-1).add_(1)
    return *sums, two, one * 3, three * 3


WRITES = [view_of_weights, several_at_once, part_of_an_input, undeclared_view, given_output, result_through_a_view]


@pytest.mark.parametrize("function", [*WRITES, members_in_place, results_between])
def test_values_before_and_after_a_write_are_those_of_their_time(function):
    check_equal(function, *(torch.randn(4, 4) for _ in range(4)))


def test_inputs_that_share_memory_are_written_together():
    both = torch.randn(2, 4, 4)

    def write(x, first, second):
        before = x @ first
        second.mul_(2)
        return before, x @ first

    graph = make_fx(write, tracing_mode="fake")(torch.randn(4, 4), both[0], both[0])
    batched = batch_products(graph, [torch.randn(4, 4), both[0], both[0]])
    assert products(batched) == (0, 2)
    x = torch.randn(4, 4)
    torch.testing.assert_close(batched(x, both[0], both[0]), (x @ both[0] / 2, x @ both[0]))


def test_values_of_other_kinds_are_not_stacked():
    def mixed(x, v, w, y):
        one, two = x @ v, x @ w
        scaled = one * y[0], two * y[1], torch.add(one, y, alpha=2), torch.add(two, y, alpha=3), one.exp(), two.sin()
        return *scaled, x.double() @ v.double()

    assert check_equal(mixed, *(torch.randn(4, 4) for _ in range(4))) == (1, 1)


def test_random_numbers_are_drawn_in_their_order():
    def noisy(x, v, w):
        first = torch.bernoulli((x @ v).sigmoid())
        second = torch.bernoulli((first @ w).sigmoid())
        third = torch.bernoulli((x @ w).sigmoid())
        return [first, second, third, torch.bernoulli((third @ v).sigmoid())]

    inputs = [torch.randn(4, 4) for _ in range(3)]
    _, batched = traced(noisy, *inputs)
    torch.manual_seed(1)
    expected = noisy(*inputs)
    torch.manual_seed(1)
    torch.testing.assert_close(batched(*inputs), expected)


def test_what_depends_on_places_in_memory_stays_as_it_is():
    def corner(x, v, w):
        return (x @ v).as_strided((2, 2), (4, 1), 0), (x @ w).as_strided((2, 2), (4, 1), 0)

    assert check_equal(corner, *(torch.randn(4, 4) for _ in range(3))) == (0, 2)


def test_long_chains_are_searched_fast():
    def chain(x, *weights):
        for weight in weights:
            x = (x @ weight).tanh()
        return x

    assert check_equal(chain, *(torch.randn(4, 4) for _ in range(100))) == (0, 99)


def test_a_write_between_others_keeps_its_place():
    def write(x, v, w):
        scale = x.new_ones(4, 4)
        first = (x @ v) * scale
        scale.add_(1)
        return first, (x @ w) * scale

    assert check_equal(write, *(torch.randn(4, 4) for _ in range(3))) == (1, 0)


def test_sums_by_rows_follow_and_sums_of_all_do_not():
    def sums(x, v, w):
        return [(x @ each).sum(dims) for each in (v, w) for dims in (0, -1)] + [(x @ each).sum() for each in (v, w)]

    _, batched = traced(sums, *(torch.randn(4, 4) for _ in range(3)))
    of_all = [node for node in batched.graph.nodes if "sum.default" in str(node.target)]
    assert (len(batched.graph.find_nodes(op="call_method", target="sum")), len(of_all)) == (2, 2)
    assert check_equal(sums, *(torch.randn(4, 4) for _ in range(3))) == (1, 0)


def test_three_are_one_and_two_of_them_are_stacked_anew():
    def three(x, a, b, c):
        one, two, three = (x @ each for each in (a, b, c))
        return one.relu(), three.relu(), two

    assert check_equal(three, *(torch.randn(4, 4) for _ in range(4))) == (1, 0)


def test_products_of_other_terms_stay_as_they_are():
    def other(x, v, w):
        return (
            torch.addmm(x[0], x, v, alpha=2),
            torch.addmm(x[0], x, w, alpha=2),
            torch.addmm(x, v, w),
            torch.addmm(x, w, v),
            torch.addmm(x[0], x, x),
            torch.addmm(x[1], v, v),
        )

    assert check_equal(other, *(torch.randn(4, 4) for _ in range(3))) == (1, 4)


def test_what_is_no_matrix_any_more_is_taken_apart():
    def vectors(x, v, w):
        return [(x @ each).sum(0).t().exp() for each in (v, w)] + [torch.sum(x @ each, dim=[]) for each in (v, w)]

    assert check_equal(vectors, *(torch.randn(4, 4) for _ in range(3))) == (1, 0)  # of four
