"""Learning whose arithmetic can be done by hand: an agent whose answers are known, and frames written as numbers."""

import math

import torch
from line_world import Line
from tensordict import TensorDict

from envs import ArenaEnv
from torchrl_agent.algorithms.ppo import PPO, PPOConfig
from torchrl_agent.models.agent import Agent, ModelConfig
from torchrl_agent.optimization.compilation import AccelerationConfig
from torchrl_agent.training.collector import RolloutCollector

EAGER = AccelerationConfig(step=False, advantages=False, update=False, cudagraphs=False)


def simple_agent(num_envs=1):
    """An agent whose critic says V(x) = x for x >= 0 and whose policy is (1/4, 3/4) everywhere."""
    agent = Agent(Line(num_envs), ModelConfig([1], activation="relu", normalize_observations=False))
    with torch.no_grad():
        for parameter in agent.critic.parameters():
            parameter.fill_(1.0 if parameter.ndim == 2 else 0.0)
        head = [module for module in agent.actor.modules() if isinstance(module, torch.nn.Linear)][-1]
        head.weight.zero_()
        head.bias.copy_(torch.tensor([0.0, math.log(3.0)]))
    return agent


def make_ppo(num_envs=1, rollout_steps=1, **changes):
    """A PPO of the simple agent, in which nothing is scaled or normalized."""
    defaults = {"minibatch_size": num_envs * rollout_steps, "num_epochs": 1, "scale_rewards": False}
    config = PPOConfig(rollout_steps=rollout_steps, **{**defaults, "normalize_advantage": False, **changes})
    return PPO(simple_agent(num_envs), config, num_envs, EAGER)


def frames(**columns):
    """A tensordict [T, N] (or [B]) from nested lists, one number per frame."""
    tensors = {key: torch.as_tensor(value) for key, value in columns.items()}
    shape = next(iter(tensors.values())).shape
    flat = ("action", "action_log_prob")
    return TensorDict({k: v if k in flat else v.unsqueeze(-1) for k, v in tensors.items()}, shape)


def one_frame(action, old_probability, advantage, value=1.0, target=1.0, old_value=1.0):
    """A minibatch of one frame for PPO."""
    return frames(
        observation=[value],
        action=[action],
        action_log_prob=[math.log(old_probability)],
        advantage=[advantage],
        value_target=[target],
        state_value=[old_value],
    )


def played(num_envs=8, steps=16, make=lambda agent: agent):
    """An agent, or what ``make`` makes of it, and a rollout of the Arena [T, N], from whose policy it has moved away
    since.
    """
    torch.manual_seed(0)
    env = ArenaEnv(num_envs, desynchronize=True)
    agent = Agent(env, ModelConfig([16]))
    made = make(agent)
    rollout = RolloutCollector(env, agent, steps, EAGER).collect().clone()
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return made, rollout


def with_gradients(loss, data, agent):
    """The terms of a loss, and the gradient of their sum."""
    agent.zero_grad()
    terms = loss(data)
    sum(value for name, value in terms.items() if name.startswith("loss_")).backward()
    return terms.detach(), [parameter.grad.clone() for parameter in agent.parameters()]
