"""Intervals and rank correlation, by hand."""

import math

import pytest

from benchmarks.league import rank_correlation
from torchrl_agent.core.tables import interval


def test_an_interval_by_hand():
    assert interval([1.0, 2.0, 3.0]) == (2.0, pytest.approx(4.303 / math.sqrt(3)))
    assert interval([5.0]) == (5.0, math.inf)
    assert interval([5.0, math.inf]) == (math.inf, math.inf)
    middle, half = interval([-math.inf, math.inf])
    assert math.isnan(middle) and half == math.inf, "nothing is said, and nothing raised"


@pytest.mark.parametrize(
    ("second", "tau"),
    [
        ([1, 2, 3, 4], 1.0),
        ([4, 3, 2, 1], -1.0),
        ([1, 2, 4, 3], 4 / 6),  # five pairs agree, one does not
        ([1, 1, 2, 3], 5 / 6),  # the tie counts for neither
        ([7, 7, 7, 7], 0.0),
    ],
)
def test_rank_correlation_counts_pairs(second, tau):
    assert rank_correlation([10, 20, 30, 40], second) == pytest.approx(tau)
    assert rank_correlation(second, [10, 20, 30, 40]) == pytest.approx(tau)


@pytest.mark.parametrize(("first", "second"), [([1], [1]), ([], []), ([1, 2], [1, 2, 3])])
def test_one_value_has_no_order(first, second):
    with pytest.raises(ValueError, match="give two or more each"):
        rank_correlation(first, second)
