"""An agent without one of its modules: exactly that module says nothing, and the agent is whole again afterward."""

from __future__ import annotations

import pytest
import torch
from town_goals import town_manager

from envs import ArenaEnv, TownEnv
from torchrl_agent import keys
from torchrl_agent.evaluation.ablation import removable, without
from torchrl_agent.models.agent import Agent, ModelConfig
from torchrl_agent.modules.perception import PerceptionConfig
from torchrl_agent.modules.social_model import SocialModelConfig
from torchrl_agent.modules.world_model import WorldModelConfig

OUTPUTS = {
    "social_model": keys.SOCIAL_EMBEDDING,
    "world_model": keys.IMAGINATION_FEATURES,
    "manager": keys.GOAL_EMBEDDING,
}


def town():
    rules = {"width": 8, "height": 8, "view": 7}  # everybody sees the others
    return TownEnv(
        3, level="L6", num_agents=3, observation="groups", privileged=True, rules=rules, device="cpu", seed=0
    )


@pytest.fixture
def agent():
    torch.manual_seed(0)
    config = ModelConfig(
        [16],
        memory="gru",
        perception=PerceptionConfig(memory_size=12, belief_size=8, embedding_size=16),
        world_model=WorldModelConfig(enabled=True, hidden_size=16),
        social_model=SocialModelConfig(enabled=True, memory_size=6),
        manager=town_manager(steps=4),
    )
    return Agent(town(), config)


def test_a_forecast_is_ablated_with_the_social_model():
    model = WorldModelConfig(enabled=True, hidden_size=16, predict_others=True)
    config = ModelConfig([16], memory="gru", world_model=model, social_model=SocialModelConfig(True, memory_size=6))
    agent = Agent(town(), config)
    assert play(agent)[0].get(keys.FORECAST).any()
    with without(agent, ["social_model"]):
        assert not play(agent)[0].get(keys.FORECAST).any()


def test_a_planner_is_not_judged_without_what_it_plans_with(agent):
    agent.planner.enabled = True
    with pytest.raises(ValueError, match="leave the planner off"), without(agent, ["world_model"]):
        pass
    with without(agent, ["social_model"]):
        pass


def play(agent):
    """What was written in two steps."""
    torch.manual_seed(0)
    env = agent.attach(town())
    with torch.no_grad():
        played = agent.policy(env.reset())
        _, following = env.step_and_maybe_reset(played)
        return played.get(agent.group), agent.policy(following.clone()).get(agent.group), following.get(agent.group)


@pytest.mark.parametrize("ablated", OUTPUTS)
def test_the_outputs_of_an_ablated_module_are_0_and_those_of_others_stay(agent, ablated):
    assert set(removable(agent)) == {*OUTPUTS, "memory"}
    with without(agent, [ablated]):
        first, second, _ = play(agent)
    for name, key in OUTPUTS.items():
        for step in (first, second):
            assert bool(step.get(key).any()) is (name != ablated)
    again, *_ = play(agent)
    assert again.get(OUTPUTS[ablated]).any(), "afterward it is active again"


@pytest.mark.slow
def test_compiled_code_follows_an_ablation(agent):
    env = agent.attach(town())
    root, policy = env.reset(), torch.compile(agent.policy, backend="eager")
    with torch.no_grad():
        assert policy(root.clone()).get(agent.group).get(keys.GOAL_EMBEDDING).any()
        with without(agent, ["manager"]):
            assert not policy(root.clone()).get(agent.group).get(keys.GOAL_EMBEDDING).any()
        assert policy(root.clone()).get(agent.group).get(keys.GOAL_EMBEDDING).any()


def test_without_memory_every_step_is_the_first(agent):
    _, second, following = play(agent)
    assert following.get(keys.HIDDEN).any() and following.get(keys.OTHERS_HIDDEN).any()
    with without(agent, ["memory"]):
        _, forgetful, following = play(agent)
    assert not following.get(keys.HIDDEN).any()
    assert following.get(keys.OTHERS_HIDDEN).any(), "the memory of others is the social model's"
    assert not torch.equal(forgetful.get((keys.BELIEF, "mean")), second.get((keys.BELIEF, "mean")))


def test_what_is_not_there_cannot_be_taken_away(agent):
    refused = pytest.raises(ValueError, match="has no 'perception' to be judged without: it has social_model")
    with refused, without(agent, ["perception"]):
        pass
    plain = Agent(ArenaEnv(2, device="cpu"), ModelConfig([8]))
    refused = pytest.raises(ValueError, match="it has nothing, as it is one plain network")
    with refused, without(plain, ["memory"]):
        pass
