"""A decision of several heads, explained."""

import pytest
import torch
from growing import small

from torchrl_agent import keys
from torchrl_agent.explain.page import as_text
from torchrl_agent.explain.thinking import think
from torchrl_agent.models.agent import Agent, ModelConfig


def test_all_heads_are_explained_by_name_given_the_operation():
    torch.manual_seed(0)
    env = small(1, max_steps=12, min_training=2)
    agent = Agent(env, ModelConfig([8]))
    thought = think(env, agent, world=0, index=0, step=0)
    assert [len(values) for values in thought.probabilities] == [2, 6, 4, 3, 3, 4, 5, 6]
    for values in thought.probabilities:
        assert values.sum().item() == pytest.approx(1, abs=1e-5)
    operation = int(thought.action[-1])
    allowed = env.reset()[keys.HEAD_MASK][0, operation].split([2, 6, 4, 3, 3, 4, 5])
    for values, mask in zip(thought.probabilities, allowed, strict=False):
        assert (values > 0).tolist() == mask.tolist(), "what the operation leaves to each head"
    text = as_text(thought, [])
    for head, choice in zip(("blueprint", "alpha curve", "operation"), thought.action[[1, 6, 7]].tolist(), strict=True):
        assert f"{head}: {choice} with" in text
