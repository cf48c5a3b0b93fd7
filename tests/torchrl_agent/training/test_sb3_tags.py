"""Tags of Stable-Baselines3 hold its quantities: by hand, and by its own formulas on the same minibatch."""

import math

import pytest
import torch
import torch.nn.functional as F
from by_hand import EAGER, make_ppo, one_frame
from torchrl.envs import GymEnv

from torchrl_agent import keys
from torchrl_agent.algorithms.ppo import PPO, PPOConfig
from torchrl_agent.experiment import Experiment
from torchrl_agent.loop import learn
from torchrl_agent.models.agent import Agent, ModelConfig
from torchrl_agent.training.collector import RolloutCollector, agent_rows
from torchrl_agent.training.metrics import train_metrics

SMALL = ("device=cpu", "world.num_envs=4", "algorithm.rollout_steps=8", "algorithm.minibatch_size=32")
SMALL += ("algorithm.num_epochs=1", "total_frames=32", "model.hidden_sizes=[8]", "acceleration.step=false")
SMALL += ("acceleration.advantages=false", "acceleration.update=false")


def test_entropy_and_value_loss_are_without_their_weights_by_hand():
    losses = make_ppo(entropy_coeff=0.1, critic_coeff=0.25).loss(one_frame(1, 0.75, 0.0, value=3.0, target=7.0))
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    tags = train_metrics({name: value.item() for name, value in losses.items()})
    assert tags["train/entropy_loss"] == pytest.approx(-entropy, rel=1e-5)
    assert tags["train/scaled_value_loss"] == pytest.approx(16.0, rel=1e-5)
    assert tags["train/loss_critic"] == pytest.approx(4.0, rel=1e-5)  # what is minimized
    assert tags["train/loss_entropy"] == pytest.approx(-0.1 * entropy, rel=1e-5)
    assert tags["train/clip_range"] == pytest.approx(0.2)
    assert "train/std" not in tags  # of discrete actions


def test_a_weight_of_0_leaves_the_critic_as_it_is():
    ppo = make_ppo(entropy_coeff=0.0, critic_coeff=0.0)
    losses = ppo.loss(one_frame(1, 0.75, 0.0, value=3.0, target=7.0))
    assert losses["loss_critic"] == 0
    assert losses["scaled_value_loss"].item() == pytest.approx(16.0, rel=1e-5)
    (iteration,) = learn(Experiment.load("smoke", *SMALL, "algorithm.critic_coeff=0"))
    assert iteration.metrics["train/updates"] == 1
    assert iteration.metrics["train/value_loss"] > 0


def sb3_metrics(agent, data, config):
    """What ``stable_baselines3/ppo/ppo.py`` logs of a minibatch, in its own words."""
    policy = agent.actor_head.get_dist(agent.encoder(data.copy()))
    values = agent.critic(data.copy())[keys.VALUE].flatten()
    log_prob, entropy, advantages = policy.log_prob(data[keys.ACTION]), policy.entropy(), data[keys.ADVANTAGE].flatten()
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    ratio = torch.exp(log_prob - data[keys.LOG_PROB])
    clipped = torch.clamp(ratio, 1 - config.clip_epsilon, 1 + config.clip_epsilon)
    policy_loss = -torch.min(advantages * ratio, advantages * clipped).mean()
    value_loss, entropy_loss = F.mse_loss(data[keys.VALUE_TARGET].flatten(), values), -torch.mean(entropy)
    log_ratio = log_prob - data[keys.LOG_PROB]
    return {
        "train/policy_gradient_loss": policy_loss,
        "train/value_loss": value_loss,
        "train/entropy_loss": entropy_loss,
        "train/approx_kl": torch.mean((torch.exp(log_ratio) - 1) - log_ratio),
        "train/clip_fraction": torch.mean((torch.abs(ratio - 1) > config.clip_epsilon).float()),
        "train/loss": policy_loss + config.entropy_coeff * entropy_loss + config.critic_coeff * value_loss,
    }


@pytest.mark.parametrize("world", ["CartPole-v1", "Pendulum-v1"])
def test_metrics_of_an_update_equal_those_of_stable_baselines3(world):
    torch.manual_seed(0)
    env = GymEnv(world, num_envs=4, categorical_action_encoding=True)
    env.set_seed(0)
    agent = Agent(env, ModelConfig([8], initial_std=0.5), 0.99)
    config = PPOConfig(rollout_steps=16, minibatch_size=64, num_epochs=1, scale_rewards=False)
    ppo = PPO(agent, config, 4, EAGER)
    data, _ = ppo.advantages(RolloutCollector(agent.attach(env), agent, 16, EAGER).collect())
    data[keys.LOG_PROB] += 0.2 * torch.randn_like(data[keys.LOG_PROB])
    with torch.no_grad():
        expected = {name: value.item() for name, value in sb3_metrics(agent, data, config).items()}
    if world == "Pendulum-v1":
        expected["train/std"] = 1.0  # half of the range of +-2, in the world's unit
    history = ppo.updater.update(data)
    tags = train_metrics({**{name: value.item() for name, value in history.items()}})
    tags["train/value_loss"] = tags["train/scaled_value_loss"] * ppo.scaler.unit.square().item()
    assert expected["train/clip_fraction"] > 0.05
    assert {name: tags[name] for name in expected} == pytest.approx(expected, rel=1e-4, abs=1e-6)
    env.close()


@pytest.mark.parametrize("overrides", [[], ["population.members=2"]])
def test_the_value_loss_is_in_the_unit_of_the_worlds_rewards(overrides):
    (iteration,) = learn(Experiment.load("smoke", *SMALL, *overrides))
    learner = Experiment.load("smoke", *SMALL).make_learner()
    (alone,) = learn(Experiment.load("smoke", *SMALL)) if overrides else (iteration,)
    metrics = alone.metrics
    unit = metrics["train/value_loss"] / metrics["train/scaled_value_loss"]
    rollout = agent_rows(learner.collector.collect(), learner.agent.group)
    learner.algorithm.advantages(rollout)
    deviation = learner.algorithm.scaler.running.var.item() ** 0.5
    assert unit == pytest.approx(deviation**2, rel=1e-4)
    assert {"train/loss", "train/clip_range", "train/entropy_loss", "train/value_loss"} <= set(iteration.metrics)
