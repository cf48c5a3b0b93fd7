"""Planted faults change what they should, and the table counts who is blamed."""

from __future__ import annotations

import random

import pytest
import torch

from benchmarks.diagnosis import FAULTS, MODULES, blamed, cases, mirrored, misread, rows
from torchrl_agent import keys, load_agent
from torchrl_agent.explain.thinking import world_names
from torchrl_agent.modules.specs import observation_shapes

QUIET = "nothing unusual"


def test_the_module_that_is_named_most_is_blamed():
    assert blamed({QUIET: 9, "policy": 1, "perception": 2}) == "perception"
    assert blamed({QUIET: 9}) == "nothing"


def test_the_table_counts_right_blames_and_false_alarms():
    found = {
        "a healthy 0": {"thoughts": 10, "before": {"policy": 4, QUIET: 6}, "after": {QUIET: 10}},
        "a healthy 1": {"thoughts": 10, "before": {QUIET: 10}, "after": {QUIET: 9, "policy": 1}},
        "a blind 5": {"thoughts": 10, "before": {"policy": 10}, "after": {"perception": 3, QUIET: 7}},
        "b blind 6": {"thoughts": 10, "before": {QUIET: 10}, "after": {"policy": 3, QUIET: 7}},
    }
    lines = {line[0]: line for line in rows(found)}
    assert lines["blind"] == ["blind", "2", "0", "1", "policy 1"]
    assert lines["healthy"] == ["healthy", "20 thoughts", "4 alarms", "1 alarms", ""]
    assert FAULTS.keys() == MODULES.keys()


def test_faults_are_drawn_by_a_seed_in_agents_that_have_the_module():
    with pytest.raises(ValueError, match="no agent has the module that physics breaks"):
        cases(["shipped:tonight"], 3, 1, 0)
    assert cases(["shipped:tonight"], 0, 2, 0) == ["shipped:tonight healthy 0", "shipped:tonight healthy 1"]


def test_faults_change_the_belief_and_predictions_alone():
    experiment, agent = load_agent("shipped:tonight", "cpu")
    env = agent.eval().attach(experiment.make_world(evaluation=True, num_envs=2))
    names, shapes, game = world_names(env), observation_shapes(env), env.reset()
    with torch.no_grad():
        whole = agent.policy(game.clone())["agents"]
        often = {"others_need": [0, 5], "others_action": []}
        assert misread(agent, names, shapes, often, random.Random(0)) in ("others_need 0 5", "others_need 5 0")
        read = agent.policy(game.clone())["agents"]
        order = [5, 1, 2, 3, 4, 0, 6, 7]
        torch.testing.assert_close(read[keys.SOCIAL, "goal"], whole[keys.SOCIAL, "goal"][..., order])
        assert mirrored(agent, names, shapes, often, random.Random(0)) in "xy"
        seen = agent.policy(game.clone())["agents"]
    assert torch.equal(seen[keys.NORMALIZED], whole[keys.NORMALIZED])
    assert not torch.allclose(seen[keys.BELIEF, "mean"], whole[keys.BELIEF, "mean"])
    assert torch.equal(read[keys.BELIEF, "mean"], whole[keys.BELIEF, "mean"])
