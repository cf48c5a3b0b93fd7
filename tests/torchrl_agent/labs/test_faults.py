"""Planted faults change what they should and nothing else, and those that can be undone are undone."""

from __future__ import annotations

import pytest
import torch

from torchrl_agent import keys, load_agent
from torchrl_agent.labs.faults import FAULTS, plant

THOUGHTS = {
    "perception": [(keys.BELIEF, "mean")],
    "social model": [(keys.SOCIAL, "goal"), (keys.SOCIAL, "next_action")],
    "world model": [(keys.FUTURES, "rewards")],
    "policy": [(keys.GOAL, "type")],
}
"""Keys that each module writes."""
VILLAGE, TONIGHT = "shipped:village", "shipped:tonight"  # four modules; another one is always in sight
TWICE = {
    "mirrored x": VILLAGE,
    "mirrored y": VILLAGE,
    "cues x y": TONIGHT,
    "others_need social fitness": TONIGHT,
    "others_action left right": TONIGHT,
    "actions up 1": VILLAGE,
}
FAULTY = {**TWICE, "blind": VILLAGE, "deaf": TONIGHT, "goal money 20": VILLAGE}


def opened(run):
    """The agent, its world, and a function that returns what it thinks in a fixed state."""
    experiment, agent = load_agent(run, "cpu")
    env = agent.eval().attach(experiment.make_world(evaluation=True, num_envs=4))
    game = env.reset()

    def think():
        torch.manual_seed(0)  # goals are sampled
        with torch.no_grad():
            return agent.policy(game.clone())["agents"]

    return agent, env, think


def same(one, other, key):
    return torch.allclose(one[key].float(), other[key].float(), atol=1e-5)


@pytest.mark.parametrize("fault", FAULTY)
def test_a_fault_is_in_its_module_and_an_exchange_undoes_itself(fault):
    agent, env, think = opened(FAULTY[fault])
    whole, module = think(), FAULTS[fault.split()[0]].module
    plant(agent, env, fault)
    faulty = think()
    assert torch.equal(faulty[keys.NORMALIZED], whole[keys.NORMALIZED])
    assert not all(same(faulty, whole, key) for key in THOUGHTS[module])
    if module != "perception":
        assert same(faulty, whole, (keys.BELIEF, "mean"))
    if fault in TWICE:
        plant(agent, env, fault)
        assert all(same(think(), whole, key) for key in (*THOUGHTS[module], keys.LOGITS))


def test_exchanged_needs_are_exchanged():
    agent, env, think = opened(TONIGHT)
    whole = think()
    plant(agent, env, "others_need energy 5")
    order = [5, 1, 2, 3, 4, 0, 6, 7]
    torch.testing.assert_close(think()[keys.SOCIAL, "goal"], whole[keys.SOCIAL, "goal"][..., order])


def test_a_preferred_goal_is_always_chosen_and_can_be_taken_back():
    agent, env, think = opened(VILLAGE)
    before = agent.manager.choose[-1].bias.clone()
    plant(agent, env, "goal money 20")
    with torch.no_grad():
        chances = agent.manager.distribution(think()).probs
    assert bool((chances.argmax(-1) == agent.manager.names.index("money")).all())
    plant(agent, env, "goal money -20")
    torch.testing.assert_close(agent.manager.choose[-1].bias, before, atol=1e-5, rtol=0)


def test_a_world_model_without_the_hour_dreams_the_same_at_any():
    experiment, agent = load_agent("shipped:payday", "cpu")
    env = agent.eval().attach(experiment.make_world(evaluation=True, num_envs=2))
    plant(agent, env, "hourless")
    model, belief = agent.world_model, torch.zeros(1, 32)
    assert model is not None
    action = torch.eye(8)[:1]
    noon, night = torch.zeros(1, model.known_size), torch.zeros(1, model.known_size)
    night[:, -3:] = 1
    assert torch.equal(model(belief, noon, action)["reward"], model(belief, night, action)["reward"])


def test_a_weak_fault_is_between_none_and_a_whole_one():
    found = []
    for strength in (0.0, 0.5, 1.0):
        agent, env, think = opened(TONIGHT)
        whole = think()[keys.SOCIAL, "goal"]
        plant(agent, env, "others_need energy 5", strength)
        found.append((think()[keys.SOCIAL, "goal"] - whole)[..., 0])
    assert not found[0].any() and found[2].any()
    torch.testing.assert_close(found[1], found[2] / 2)
