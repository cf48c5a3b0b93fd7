"""The Town in TorchRL's hands: its collector, its multi-agent networks and losses."""

from __future__ import annotations

import pytest
import torch
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs import MarlGroupMapType, check_marl_grouping
from torchrl.modules import MaskedCategorical, MultiAgentMLP, ProbabilisticActor
from torchrl.objectives.multiagent import IPPOLoss, MAPPOLoss

from envs import TownEnv
from torchrl_agent.models.agent import Agent, ModelConfig

AGENTS, FRAMES = 4, 256


def town():
    return TownEnv(8, level="L6", seed=1, desynchronize=True)


def make_actor(env):
    size = env.observation_spec["agents", "observation"].shape[-1]
    network = MultiAgentMLP(size, 8, AGENTS, centralized=False, share_params=True, depth=1, num_cells=16)
    return ProbabilisticActor(
        TensorDictModule(network, [("agents", "observation")], [("agents", "logits")]),
        spec=env.full_action_spec_unbatched,
        in_keys={"logits": ("agents", "logits"), "mask": ("agents", "action_mask")},
        out_keys=[("agents", "action")],
        distribution_class=MaskedCategorical,
        return_log_prob=True,
        log_prob_key=("agents", "action_log_prob"),
    )


class GlobalCritic(nn.Module):
    """One value of the whole town for each of its agents."""

    def __init__(self, size):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(size, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, state):
        return self.network(state).unsqueeze(-2).expand(*state.shape[:-1], AGENTS, 1)


def make_critic(env, centralized):
    if centralized:
        return TensorDictModule(
            GlobalCritic(env.observation_spec["state"].shape[-1]), ["state"], [("agents", "state_value")]
        )
    size = env.observation_spec["agents", "observation"].shape[-1]
    network = MultiAgentMLP(size, 1, AGENTS, centralized=False, share_params=True, depth=1, num_cells=16)
    return TensorDictModule(network, [("agents", "observation")], [("agents", "state_value")])


def test_the_group_map_is_torchrls():
    env = town()
    check_marl_grouping(env.group_map, env.group_map["agents"])
    names = [f"agent_{index}" for index in range(AGENTS)]
    assert env.group_map == MarlGroupMapType.ALL_IN_ONE_GROUP.get_group_map(names)


def test_the_collector_plays_the_town_with_our_policy():
    env = town()
    agent = Agent(env, ModelConfig([16]))
    batches = list(Collector(env, agent.policy, frames_per_batch=FRAMES, total_frames=2 * FRAMES))
    assert [batch.shape for batch in batches] == [(8, FRAMES // 8)] * 2
    chosen = batches[-1]["agents", "action_mask"].gather(-1, batches[-1]["agents", "action"].unsqueeze(-1))
    assert chosen.all()


@pytest.mark.parametrize(("kind", "centralized"), [(MAPPOLoss, True), (IPPOLoss, False)])
def test_torchrls_multi_agent_losses_learn_from_the_town(kind, centralized):
    torch.manual_seed(0)
    env = town()
    actor, critic = make_actor(env), make_critic(env, centralized)
    (data,) = Collector(env, actor, frames_per_batch=FRAMES, total_frames=FRAMES)
    loss = kind(actor, critic)
    loss.set_keys(
        action=("agents", "action"),
        sample_log_prob=("agents", "action_log_prob"),
        value=("agents", "state_value"),
        reward=("agents", "reward"),
    )
    loss.make_value_estimator(gamma=0.99, lmbda=0.95)
    with torch.no_grad():
        loss.value_estimator(data)
    optimizer = torch.optim.Adam(loss.parameters(), 1e-3)
    history = []
    for _ in range(5):
        losses = loss(data.reshape(-1))
        total = sum(value for key, value in losses.items() if key.startswith("loss_"))
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        history.append(losses["loss_critic"].item())
    assert history[-1] < history[0]
    assert all(parameter.grad is not None for parameter in loss.parameters())
