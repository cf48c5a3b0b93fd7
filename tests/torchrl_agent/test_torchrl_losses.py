"""TorchRL's own losses and advantage estimators around our actors and critics, compiled too."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torchrl.modules import set_recurrent_mode
from torchrl.objectives import ClipPPOLoss, ValueEstimators
from torchrl.objectives.value import GAE

from envs import ArenaEnv, TownEnv
from envs.libs.gymnasium import VectorGymEnv
from torchrl_agent.models.agent import Agent, ModelConfig

WORLDS = {
    "discrete": (lambda: ArenaEnv(4, seed=1), {}),
    "shared": (lambda: ArenaEnv(4, seed=1), {"shared_trunk": True}),
    "masked": (lambda: TownEnv(4, level="L3", seed=1), {}),
    "continuous": (lambda: VectorGymEnv("Pendulum-v1", 4, device="cpu"), {}),
    "recurrent": (lambda: ArenaEnv(4, seed=1), {"memory": "gru"}),
}
every_kind = pytest.mark.parametrize("kind", WORLDS)
every_way = pytest.mark.parametrize("functional", [False, True])


def frames(kind):
    """An agent and what it played, [worlds, steps] of one agent each; and the context in which it learns."""
    torch.manual_seed(0)
    make, options = WORLDS[kind]
    env = make()
    agent = Agent(env, ModelConfig([16, 16], **options))
    with torch.no_grad():
        played = agent.attach(env).rollout(8, agent.policy, break_when_any_done=False)
    if agent.group is not None:  # agents are rows, who are done as their world is
        flags = {name: played["next", name].unsqueeze(-2) for name in ("done", "terminated")}
        inner = played[agent.group].clone()
        played = inner.set("next", played["next", agent.group].clone().update(flags))[:, :, 0]
    return agent, played, set_recurrent_mode(True) if agent.memory else nullcontext()


def losses(result):
    return {name: value for name, value in result.items() if name.startswith("loss_")}


@every_kind
@every_way
def test_a_loss_estimates_advantages_with_our_critic(kind, functional):
    agent, played, learning = frames(kind)
    loss = ClipPPOLoss(agent.actor, agent.critic, functional=functional)
    loss.make_value_estimator(ValueEstimators.GAE, gamma=0.9, lmbda=0.8)
    with learning:
        found = losses(loss(played.clone()))
        with torch.no_grad():
            expected = GAE(gamma=0.9, lmbda=0.8, value_network=agent.critic)(played.clone())
        given = losses(loss(expected.clone()))
    for name, value in found.items():
        torch.testing.assert_close(value, given[name])
    done, value = played["next", "done"], expected["state_value"]
    assert not done.any()
    # the last step's advantage by hand: r + gamma V' - V
    last = played["next", "reward"][:, -1] + 0.9 * expected["next", "state_value"][:, -1] - value[:, -1]
    torch.testing.assert_close(expected["advantage"][:, -1], last)
    sum(found.values()).backward()
    gradients = [weight.grad for weight in loss.parameters() if weight.grad is not None]
    assert len(gradients) >= len([*agent.actor_head.parameters()]), "what is not of the policy may be without"
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.slow
@every_kind
@every_way
def test_a_users_compiled_loss_is_one_graph_and_gives_what_eager_code_does(kind, functional):
    torch._dynamo.reset()
    agent, played, learning = frames(kind)
    with learning:
        with torch.no_grad():
            GAE(gamma=0.9, lmbda=0.8, value_network=agent.critic)(played)
        data = played if agent.memory else played.reshape(-1)
        loss = ClipPPOLoss(agent.actor, agent.critic, functional=functional)
        expected = losses(loss(data.clone()))
        found = losses(torch.compile(loss, fullgraph=True)(data.clone()))
    for name in ("loss_objective", "loss_critic"):
        torch.testing.assert_close(found[name], expected[name], atol=1e-5, rtol=1e-4)
    sum(found.values()).backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in loss.parameters())
