"""What is unusual in a step is said in sentences that follow from records made by hand."""

from __future__ import annotations

import dataclasses
import math

import torch

from envs import TownEnv
from torchrl_agent.explain.diagnosis import (
    NOTHING_UNUSUAL,
    diagnose,
    diagnose_belief,
    diagnose_futures,
    diagnose_goal,
    diagnose_others,
)
from torchrl_agent.explain.page import _others as others_page
from torchrl_agent.explain.thought import UNSEEN, Belief, Futures, Goal, Names, Others, Thought

NAMES = Names(("left", "right"), ("energy", "money"))


def belief(log_std):
    return Belief(torch.zeros(2), torch.full((2,), log_std), torch.tensor([0.5, 0.5]), ["energy", "money"], -1.0)


def futures(states, rewards, dones):
    """Foreseen energy 0.5, money 0.4, a reward of 0.1 and no end in both steps; what came is given."""
    one = torch.zeros(1)
    predicted = torch.tensor([[0.5, 0.4], [0.5, 0.4]])
    truth = (torch.tensor(states), torch.tensor(rewards), torch.tensor(dones))
    return Futures(*[one] * 8, predicted, torch.tensor([0.1, 0.1]), torch.tensor([0.1, 0.2]), *truth)


def others(goal=(0.9, 0.1), true_goal=0, acts=0, meters=(0.5, 0.5)):
    return Others(
        torch.tensor([2]),
        torch.tensor([goal]),
        torch.tensor([[0.8, 0.2]]),
        torch.tensor([[0.5, 0.5]]),
        torch.tensor([0.9]),
        torch.tensor([0]),
        torch.tensor([acts]),
        torch.tensor([true_goal]),
        torch.tensor([meters]),
    )


def goal(energy, kind):
    targets = torch.tensor([[0.6, 0.0], [0.0, 0.6], [0.0, 0.0]])
    meters = torch.tensor([energy, 0.5])
    names = ["survival", "money", "explore"]
    return Goal(kind, names, torch.ones(3) / 3, 0.3, targets[kind], targets, meters, ["energy", "money"], 4, True, 9)


FINE = ([[0.5, 0.4], [0.4, 0.4]], [0.1, 0.1], [0.0, 0.0])


def test_an_uncertain_belief_is_named():
    assert diagnose_belief(belief(-1.0)) == []
    assert diagnose_belief(dataclasses.replace(belief(9.0), usual=None)) == []
    sentence = "its belief is 2.1 times as uncertain as usual: look at perception first"
    assert diagnose_belief(belief(-1.0 + math.log(2.1))) == [sentence]


def test_wrong_futures_are_named():
    names = ["energy", "money"]
    assert diagnose_futures(futures(*FINE), names) == []
    states = [[0.5, 0.4], [0.5, 0.1]]
    assert diagnose_futures(futures(states, *FINE[1:]), names) == [
        "the world model predicted money 0.40 2 steps later, it became 0.10"
    ]
    assert diagnose_futures(futures(FINE[0], [0.1, -2.0], FINE[2]), names) == [
        "the world model predicted rewards of 0.20 over 2 steps, they were -1.90"
    ]
    assert diagnose_futures(futures(*FINE[:2], [0.0, 1.0]), names) == [
        "the world model gave the end 2 steps later 20%, it came"
    ]


def test_whom_it_attends_to_is_named_if_it_chooses():
    for attention, shown in ((None, False), (torch.tensor([0.75]), True)):
        table = others_page(dataclasses.replace(others(), attention=attention), NAMES)[0]
        assert ("attention" in table.header) == shown
        assert (table.rows[0][-1] == "75%") == shown
        assert len(table.rows[0]) == len(table.header)


def test_the_steps_with_most_findings_are_listed_in_their_order():
    shares = torch.tensor([[0.1, 0.004, 0.4, 0.0, 0.496]])
    *_, line = others_page(dataclasses.replace(others(), found=shares), NAMES)
    assert line == "what agent 2 did in moments like this one, found again from: step 0 10%, step 2 40%, step 4 50%"
    *_, line = others_page(dataclasses.replace(others(), found=0 * shares), NAMES)
    assert line.endswith("found again from: nothing")


def test_misread_others_are_named():
    assert diagnose_others(others(), NAMES) == []
    assert diagnose_others(others(true_goal=1), NAMES) == ["it took agent 2's need for energy, it was money"]
    assert diagnose_others(others(acts=1), NAMES) == ["it expected left of agent 2 (80%), it did right"]
    assert diagnose_others(others(meters=(0.5, 0.1)), NAMES) == ["it thought agent 2's money 0.50, it was 0.10"]
    unlabeled = dataclasses.replace(others(true_goal=1, meters=(0.0, 0.0)), true_goal=None, true_meters=None)
    assert diagnose_others(unlabeled, NAMES) == []


def test_a_guess_that_was_not_sure_was_not_wrong():
    unsure = dataclasses.replace(others(acts=1), next_action=torch.tensor([[0.45, 0.3, 0.25]]))
    assert diagnose_others(unsure, NAMES) == []


def test_what_was_not_seen_was_not_misread():
    assert len(diagnose_others(others(acts=1), NAMES)) == 1
    assert diagnose_others(others(acts=UNSEEN), NAMES) == []


def test_a_goal_beside_the_point_is_named():
    assert diagnose_goal(goal(0.12, 1), NAMES) == ["goal money while energy is 0.12"]
    assert diagnose_goal(goal(0.12, 0), NAMES) == []
    assert diagnose_goal(goal(0.3, 1), NAMES) == []


def test_a_need_that_no_place_serves_is_no_goal_missed():
    served = dataclasses.replace(NAMES, raised=("energy",))
    assert diagnose_goal(goal(0.12, 1), served) == ["goal money while energy is 0.12"]
    assert diagnose_goal(goal(0.12, 1), dataclasses.replace(NAMES, raised=("money",))) == []


def test_a_town_tells_which_needs_its_places_serve():
    assert TownEnv(1, level="L2").names()["raised"] == ("energy", "satiation", "money")


def test_the_diagnosis_keeps_the_order_of_the_modules():
    nothing = torch.zeros(1)
    thought = Thought(0, 0, 0, 9, NAMES, None, {}, {}, None, nothing, [nothing], 0.0, 0.0, 1.0)
    assert diagnose(thought) == [NOTHING_UNUSUAL]
    parts = {
        "belief": belief(0.0),
        "futures": futures([[0.5, 0.4], [0.5, 0.9]], *FINE[1:]),
        "others": others(true_goal=1),
        "goal": goal(0.12, 1),
    }
    found = [sentence.partition(":")[0] for sentence in diagnose(dataclasses.replace(thought, **parts))]
    assert found == ["perception", "world model", "social model", "policy"]
    fine = {"belief": belief(-1.0), "futures": futures(*FINE), "others": others(), "goal": goal(0.3, 1)}
    assert diagnose(dataclasses.replace(thought, **fine)) == [NOTHING_UNUSUAL]
