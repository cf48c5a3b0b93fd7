"""Planted faults change what they should, and the table counts who is blamed."""

from __future__ import annotations

import random

import pytest

from benchmarks.diagnosis import MODULES, NOTHING, blamed, cases, draw, judge, rows
from torchrl_agent.labs.faults import FAULTS


def test_the_module_that_is_named_most_is_blamed():
    assert blamed({NOTHING: 9, "policy": 1, "perception": 2}) == "perception"
    assert blamed({NOTHING: 9}) == "nothing"


def test_the_table_counts_right_blames_and_false_alarms():
    found = {
        "a healthy 1": {"thoughts": 10, "first": {"policy": 4, NOTHING: 6}},
        "b healthy 1": {"thoughts": 10, "first": {NOTHING: 10}},
        "a blind 5": {"thoughts": 10, "first": {"perception": 3, NOTHING: 7}},
        "b blind 6": {"thoughts": 10, "first": {"policy": 3, NOTHING: 7}},
    }
    lines = {line[0]: line for line in rows(found)}
    assert lines["blind"] == ["blind", "2", "1", "policy 1"]
    assert lines["healthy"] == ["healthy", "20 thoughts", "4 alarms", "policy 4"]


def test_faults_are_drawn_by_a_seed_in_agents_that_have_the_module():
    with pytest.raises(ValueError, match="no agent has the module that physics breaks"):
        cases(["shipped:tonight"], [], 3, 0)
    assert cases(["shipped:tonight"], ["shipped:tonight"], 0, 2) == ["shipped:tonight healthy 2"]


def test_a_planted_fault_is_judged_again_alike():
    (found, again) = (judge("shipped:tonight", "mirrored", 3, 40) for _ in range(2))
    assert found == again and found["thoughts"] == 10 == sum(found["first"].values())
    assert blamed(found["first"]) == "perception"


def test_faults_are_drawn_among_what_is_frequent():
    often = {"actions": [4, 5], "others_need": [0, 2], "others_action": [3], "goals": [1]}
    drawn = {kind: draw(kind, often, random.Random(3)) for kind in MODULES}
    assert drawn["misread"] in ("others_need 0 2", "others_need 2 0")
    assert drawn["physics"] in ("actions 4 5", "actions 5 4")
    assert drawn["mirrored"] in ("mirrored x", "mirrored y")
    assert drawn["stuck"] == "goal 1 20" and drawn["blind"] == "blind" and drawn["deaf"] == "deaf"
    for kind, fault in drawn.items():
        assert FAULTS[fault.split()[0]].module == MODULES[kind]
