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
    return graph, batch_products(graph)


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
    # of two layers: two forward, one backward and two for weights; of each head one of each kind, but that backward
    # through the value's head is of a column and a row, and elementwise
    assert products(graph) == (0, 2 * 5 + 5)
    assert products(batched) == (5, 5)
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


def test_products_before_and_after_a_write_stay_apart():
    def write(x, w):
        before = x @ w
        w.t().mul_(2)  # through a view
        return before, x @ w

    assert check_equal(write, torch.randn(4, 4), torch.randn(4, 4)) == (0, 2)


def test_a_write_between_others_keeps_its_place():
    def write(x, v, w):
        scale = x.new_ones(4, 4)
        first = (x @ v) * scale
        scale.add_(1)
        return first, (x @ w) * scale

    assert check_equal(write, *(torch.randn(4, 4) for _ in range(3))) == (1, 0)


def test_sums_by_rows_follow_and_others_do_not():
    def sums(x, v, w):
        return [(x @ each).sum(dims) for each in (v, w) for dims in (0, -1)] + [(x @ v).sum(), (x @ w).sum()]

    assert check_equal(sums, *(torch.randn(4, 4) for _ in range(3)))[0] >= 1


def test_three_are_one_and_two_of_them_are_stacked_anew():
    def three(x, a, b, c):
        one, two, three = (x @ each for each in (a, b, c))
        return one.relu(), three.relu(), two

    assert check_equal(three, *(torch.randn(4, 4) for _ in range(4))) == (1, 0)


def test_products_of_other_terms_stay_as_they_are():
    def other(x, v, w):
        return (
            torch.addmm(x, x, v, alpha=2),
            torch.addmm(x, x, w, alpha=2),
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
