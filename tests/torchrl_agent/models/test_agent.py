"""Actor and critic: initialization, sharing, what they read and write, and what they refuse."""

import math

import pytest
import torch
from line_world import Cabinet
from tensordict import TensorDict
from torch import nn
from torchrl.data import Bounded, Categorical, Composite, OneHot, Unbounded
from torchrl.envs.utils import ExplorationType, set_exploration_type

from envs import ArenaEnv
from torchrl_agent.models.agent import Agent, ModelConfig
from torchrl_agent.modules.manager import ManagerConfig
from torchrl_agent.modules.specs import action_heads, observation_shapes


def vector(size, num_envs=3):
    return Bounded(-1, 1, (num_envs, size))


def linear_layers(module):
    return [layer for layer in module.modules() if isinstance(layer, nn.Linear)]


def gains(layer):
    """Singular values: an orthogonal matrix times a gain has that gain alone."""
    return torch.linalg.svdvals(layer.weight.detach())


@pytest.mark.parametrize(("part", "last_gain"), [("actor", 0.01), ("critic", 1.0)])
def test_weights_are_orthogonal_with_the_usual_gains_and_biases_zero(part, last_gain):
    agent = Agent(ArenaEnv(2), ModelConfig(hidden_sizes=[24, 16]))
    layers = linear_layers(getattr(agent, part))
    assert [tuple(layer.weight.shape) for layer in layers[:2]] == [(24, 32), (16, 24)]
    for layer, gain in zip(layers, (math.sqrt(2), math.sqrt(2), last_gain), strict=True):
        torch.testing.assert_close(gains(layer), torch.full_like(gains(layer), gain))
        assert layer.bias.abs().max() == 0


def test_the_first_policy_is_almost_uniform():
    agent = Agent(ArenaEnv(16), ModelConfig(hidden_sizes=[64, 64]))
    logits = agent.actor(ArenaEnv(16).reset())["logits"]
    torch.testing.assert_close(logits.softmax(-1), torch.full((16, 5), 0.2), atol=0.01, rtol=0)


def test_separate_networks_share_nothing_and_have_the_parameters_counted_by_hand():
    agent = Agent(ArenaEnv(2), ModelConfig(hidden_sizes=[24, 16]))
    actor = 32 * 24 + 24 + 24 * 16 + 16 + 16 * 5 + 5
    critic = 32 * 24 + 24 + 24 * 16 + 16 + 16 * 1 + 1
    assert sum(p.numel() for p in agent.parameters()) == actor + critic
    mine = {id(p) for p in agent.actor.parameters()}
    assert not mine & {id(p) for p in agent.critic.parameters()}


@pytest.mark.parametrize("shared", [False, True])
def test_layer_norm_standardizes_what_every_hidden_activation_reads(shared):
    agent = Agent(ArenaEnv(8), ModelConfig(hidden_sizes=[24, 16], layer_norm=True, shared_trunk=shared))
    plain = Agent(ArenaEnv(8), ModelConfig(hidden_sizes=[24, 16], shared_trunk=shared))
    networks = 1 if shared else 2
    more = networks * 2 * (24 + 16)  # a scale and a shift of every hidden unit
    assert sum(p.numel() for p in agent.parameters()) == sum(p.numel() for p in plain.parameters()) + more
    read = []
    for activation in [each for each in agent.modules() if isinstance(each, nn.SiLU)]:
        activation.register_forward_pre_hook(lambda _, given: read.append(given[0]))
    agent.critic_head(agent.actor(ArenaEnv(8, seed=1).reset()))
    assert len(read) == 2 * networks
    for each in read:
        torch.testing.assert_close(each.mean(-1), torch.zeros(8), rtol=0, atol=1e-5)
        torch.testing.assert_close(each.var(-1, correction=0), torch.ones(8), rtol=0, atol=0.01)


def test_a_shared_trunk_is_counted_once_and_learns_from_both_heads():
    agent = Agent(ArenaEnv(2), ModelConfig(hidden_sizes=[24, 16], shared_trunk=True))
    trunk = 32 * 24 + 24 + 24 * 16 + 16
    assert sum(p.numel() for p in agent.parameters()) == trunk + (16 * 5 + 5) + (16 * 1 + 1)
    shared = {id(p) for p in agent.actor.parameters()} & {id(p) for p in agent.critic.parameters()}
    assert len(shared) == 4
    for layer in [p for p in agent.parameters() if id(p) in shared]:
        layer.grad = None
    agent.critic(ArenaEnv(2).reset())["state_value"].sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in agent.parameters() if id(p) in shared and p.ndim == 2)


def test_trunk_and_heads_have_the_usual_gains():
    agent = Agent(ArenaEnv(2), ModelConfig(hidden_sizes=[24, 16], shared_trunk=True))
    expected = {"actor": (math.sqrt(2), math.sqrt(2), 0.01), "critic": (math.sqrt(2), math.sqrt(2), 1.0)}
    for part, wanted in expected.items():
        found = [gains(layer).mean().item() for layer in linear_layers(getattr(agent, part))]
        assert found == pytest.approx(wanted, rel=1e-4)


def test_the_actor_writes_action_log_probability_and_logits_and_the_critic_a_value():
    env = ArenaEnv(6)
    agent = Agent(env, ModelConfig(hidden_sizes=[8]))
    frames = agent.critic(agent.actor(env.reset()))
    assert frames["action"].dtype == torch.int64
    assert env.action_spec.is_in(frames["action"])
    expected = frames["logits"].log_softmax(-1).gather(-1, frames["action"].unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(frames["action_log_prob"], expected)
    assert frames["state_value"].shape == (6, 1)
    assert agent.input_keys == ["observation"]


def test_deterministic_exploration_takes_the_most_likely_action():
    env = ArenaEnv(6)
    agent = Agent(env, ModelConfig(hidden_sizes=[8]))
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        frames = agent.actor(env.reset())
    assert torch.equal(frames["action"], frames["logits"].argmax(-1))


def test_an_action_mask_is_read_and_obeyed_but_is_no_observation():
    env = Cabinet({"observation": vector(2), "action_mask": Categorical(2, shape=(3, 4), dtype=torch.bool)})
    agent = Agent(env, ModelConfig(hidden_sizes=[8]))
    assert observation_shapes(env) == {"observation": (2,)}
    assert set(agent.input_keys) == {"observation", "action_mask"}
    mask = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 1], [1, 1, 1, 1]], dtype=torch.bool)
    frames = TensorDict({"observation": torch.randn(3, 2), "action_mask": mask}, [3]).expand(500, 3).clone()
    actions = agent.actor(frames)["action"]
    assert mask.expand(500, 3, 4).gather(-1, actions.unsqueeze(-1)).all()
    assert actions[:, 0].unique().tolist() == [0]
    assert actions[:, 2].unique().tolist() == [0, 1, 2, 3]
    torch.testing.assert_close(frames["action_log_prob"][:, 0], torch.zeros(500))


def test_dict_observations_are_joined_in_the_order_of_the_spec():
    env = Cabinet({"near": vector(1), "far": vector(2), "lidar": vector(3)})
    agent = Agent(env, ModelConfig(hidden_sizes=[8]))
    assert observation_shapes(env) == {"near": (1,), "far": (2,), "lidar": (3,)}
    assert set(agent.input_keys) == {"near", "far", "lidar"}
    root = TensorDict(
        {"lidar": torch.full((3, 3), 3.0), "near": torch.full((3, 1), 1.0), "far": torch.full((3, 2), 2.0)}, [3]
    )
    joined = agent.actor(root)["observation_normalized"]
    torch.testing.assert_close(joined[0], torch.tensor([1.0, 2.0, 2.0, 3.0, 3.0, 3.0]))


def test_the_arena_in_groups_works_like_any_dict_of_vectors():
    env = ArenaEnv(3, observation="dict")
    agent = Agent(env, ModelConfig(hidden_sizes=[8]))
    assert len(observation_shapes(env)) > 1
    assert sum(shape.numel() for shape in observation_shapes(env).values()) == 32
    assert agent.critic(env.reset())["state_value"].shape == (3, 1)


def test_episode_statistics_and_counters_are_no_observations():
    env = Cabinet(
        {
            "observation": vector(2),
            "episode": Composite({"return": Unbounded((3, 1))}, shape=(3,)),
            "episode_reward": Unbounded((3, 1)),
            "step_count": Unbounded((3, 1), dtype=torch.int64),
        }
    )
    assert observation_shapes(env) == {"observation": (2,)}


def test_without_normalization_observations_pass_unchanged():
    env = ArenaEnv(3)
    agent = Agent(env, ModelConfig(hidden_sizes=[8], normalize_observations=False))
    agent.normalizer.update(torch.full((5, 32), 100.0))
    frames = agent.actor(env.reset())
    assert torch.equal(frames["observation_normalized"], frames["observation"])


def test_observations_are_clipped_as_configured():
    env = Cabinet({"observation": vector(2)})
    agent = Agent(env, ModelConfig(hidden_sizes=[8], clip_observations=3.0))
    joined = agent.actor(TensorDict({"observation": torch.tensor([[50.0, -50.0]]).expand(3, 2)}, [3]))
    assert joined["observation_normalized"][0].tolist() == [3.0, -3.0]


@pytest.mark.parametrize(
    ("config", "culprit"),
    [
        ({"activation": "sine"}, "model.activation"),
        ({"hidden_sizes": [8, 0]}, "model.hidden_sizes"),
        ({"hidden_sizes": [-8]}, "model.hidden_sizes"),
        ({"hidden_sizes": [], "shared_trunk": True}, "model.hidden_sizes"),
        ({"hidden_sizes": [8, 0], "shared_trunk": True}, "model.hidden_sizes"),
        ({"activation": "sine", "shared_trunk": True}, "model.activation"),
        ({"manager": ManagerConfig(hidden_size=0)}, "model.manager.hidden_size"),
    ],
)
def test_impossible_networks_are_refused_by_name(config, culprit):
    with pytest.raises(ValueError, match=culprit) as caught:
        Agent(ArenaEnv(1), ModelConfig(**config))
    assert "\n" not in str(caught.value)


def test_worlds_that_do_not_fit_are_refused_with_a_hint():
    with pytest.raises(ValueError, match="pixels"):
        Agent(Cabinet({"pixels": Unbounded((3, 1, 4, 4))}), ModelConfig())
    with pytest.raises(ValueError, match="no float observation"):
        observation_shapes(Cabinet({"tile": Categorical(9, shape=(3,))}))
    with pytest.raises(ValueError, match="categorical_action_encoding"):
        action_heads(Cabinet({"observation": vector(2)}, OneHot(4, shape=(3, 4))))
    with pytest.raises(ValueError, match="not supported"):
        action_heads(Cabinet({"observation": vector(2)}, vector(2)))
