"""A decision of several heads, explained."""

import pytest
import torch
from growing import small

from envs.growth.rules import OPERATIONS
from torchrl_agent import keys
from torchrl_agent.explain.page import COLUMNS, UNLIKELY, as_text, sections
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
    assert max(map(len, text.splitlines())) <= COLUMNS < len(sections(thought, [])[0].body[0])
    rows = {line.strip().split("  ")[0]: line for line in text.splitlines() if line.strip()}
    chosen = (
        ("blueprint", 1, env.rules.blueprints),
        ("alpha speed", 5, ("0", "3", "5", "8")),
        ("operation", 7, OPERATIONS),
    )
    for head, index, words in chosen:
        first, _, others = rows[head].strip().removeprefix(head).strip().partition("  ")
        choice, values = int(thought.action[index]), thought.probabilities[index].tolist()
        assert first == f"{words[choice]} {values[choice]:.1%}"
        likely = [word for place, word in enumerate(words) if place != choice and values[place] >= UNLIKELY]
        assert sorted(each.rpartition(" ")[0] for each in others.strip().split(", ") if each != "-") == sorted(likely)
