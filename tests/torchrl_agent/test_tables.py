"""Tables for a terminal."""

import pytest

from torchrl_agent.core.tables import aligned


def test_words_begin_and_numbers_end_below_each_other():
    rows = [["level", "module", "with"], ["L2", "memory", "74.9"], ["L10", "map", "1,114.1"]]
    assert aligned(rows, words=2) == ["level  module     with", "L2     memory     74.9", "L10    map     1,114.1"]


def test_empty_cells_take_room_except_at_the_end_of_a_line():
    rows = [["player", "seed", "return"], ["greedy", "", "100"], ["", "12", ""]]
    assert aligned(rows) == ["player  seed  return", "greedy           100", "          12"]


def test_no_rows_are_no_lines():
    assert aligned([]) == []


def test_rows_of_another_length_are_refused():
    with pytest.raises(ValueError, match="zip"):
        aligned([["a", "b"], ["c"]])
