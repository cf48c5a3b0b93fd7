"""Networks of other shapes: none between eyes, memory and belief; critics of other sizes; trunks with layers of each
head's own.
"""

from __future__ import annotations

import pytest
import torch
from line_world import Line
from tensordict import TensorDict
from torch import nn
from torchrl.data import Bounded

from envs import ArenaEnv, TownEnv
from torchrl_agent.models import Agent, ModelConfig
from torchrl_agent.models.sac_agent import LogDeviation, SACAgent
from torchrl_agent.modules.perception import SMALLEST_LOG_STD, Perception, PerceptionConfig


def sizes(network):
    return [(layer.in_features, layer.out_features) for layer in network.modules() if isinstance(layer, nn.Linear)]


def test_a_critic_has_sizes_of_its_own_and_none_are_linear():
    env = ArenaEnv(2)
    (size,) = env.observation_spec["observation"].shape[1:]
    agent = Agent(env, ModelConfig(hidden_sizes=[], critic_hidden_sizes=[6, 4]))
    assert sizes(agent.actor_head) == [(size, 5)]
    assert sizes(agent.critic_head) == [(size, 6), (6, 4), (4, 1)]
    values = SACAgent(Line(2, Bounded(-1, 1, (2, 1))), ModelConfig([8], [4])).action_values
    assert sizes(values.networks[0])[0][1] == 4


def test_the_last_layers_behind_a_trunk_are_each_heads_own():
    agent = Agent(ArenaEnv(2), ModelConfig(hidden_sizes=[9, 7, 5], shared_trunk=True, head_layers=1))
    assert [out for _, out in sizes(agent.encoder[-1])] == [9, 7]
    assert sizes(agent.actor_head) == [(7, 5), (5, 5)] and sizes(agent.critic_head) == [(7, 5), (5, 1)]
    for wrong, sentence in (
        (ModelConfig(hidden_sizes=[9], shared_trunk=True, head_layers=1), "one hidden layer more than each head"),
        (ModelConfig(shared_trunk=True, critic_hidden_sizes=[4]), "is for networks apart"),
    ):
        with pytest.raises(ValueError, match=sentence):
            Agent(ArenaEnv(2), wrong)


def test_a_plain_belief_is_what_is_seen_and_remembered():
    env = TownEnv(3, level="L3")
    shapes = {"observation": env.observation_spec["agents", "observation"].shape[-1:]}
    (size,) = shapes["observation"]
    seen = torch.randn(4, size)
    eyes = Perception(env, shapes, PerceptionConfig(plain=True, known=[]), "none", "relu")
    frames = TensorDict({"observation_normalized": seen, "observation": seen}, [4])
    belief = eyes(frames)["belief"]
    assert torch.equal(belief["mean"], seen) and (belief["log_std"] == SMALLEST_LOG_STD).all()
    assert eyes.size == size and not list(eyes.parameters())
    config = PerceptionConfig(plain=True, known=[], memory_size=6, skip_connection=False)
    memory = Perception(env, shapes, config, "lstm", "relu")
    assert memory.size == 6
    states = {key: torch.zeros(4, *spec.shape) for key, spec in memory.memory.items()}
    before = TensorDict({**frames.exclude("belief"), "is_init": torch.ones(4, 1, dtype=torch.bool), **states}, [4])
    hidden, cell = memory.recurrence.lstm(seen.unsqueeze(1))[1]
    after = memory(before)
    torch.testing.assert_close(after["belief", "mean"], hidden[0])
    torch.testing.assert_close(after["next", "cell"].squeeze(1), cell[0])
    with pytest.raises(ValueError, match="which no loss of its own trains"):
        Perception(env, shapes, PerceptionConfig(plain=True, prediction_coeff=1.0), "none", "relu")


def test_the_logarithm_of_a_deviation_has_limits():
    loc, scale = LogDeviation()(torch.tensor([[1.0, 2.0, 0.0, 50.0], [3.0, 4.0, -50.0, -1.0]]))
    assert loc.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    torch.testing.assert_close(scale, torch.tensor([[0.0, 2.0], [-20.0, -1.0]]).exp())
