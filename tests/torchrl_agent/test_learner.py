"""A learner put together by hand, without a configuration."""

import pytest
import torch

from envs import ArenaEnv
from torchrl_agent import Experiment
from torchrl_agent.algorithms.ppo import PPO, PPOConfig
from torchrl_agent.loop import iterate
from torchrl_agent.models.agent import Agent
from torchrl_agent.optimization.compilation import AccelerationConfig
from torchrl_agent.runs.run import save
from torchrl_agent.training.collector import RolloutCollector
from torchrl_agent.training.learner import Learner
from torchrl_agent.training.world_check import check_world

EAGER = AccelerationConfig(step=False, advantages=False, update=False, cudagraphs=False)
ITERATIONS = 3


def metrics(learner):
    """What it learns, without what the clock says."""
    found = [iteration.metrics for iteration, _ in zip(iterate(learner), range(ITERATIONS), strict=False)]
    return [{name: value for name, value in each.items() if not name.startswith("time/")} for each in found]


def by_hand(experiment, **more):
    """World, agent, algorithm and learner from their classes, with the experiment's numbers."""
    torch.manual_seed(experiment.seed)
    world = {name: value for name, value in experiment.world.items() if name != "_target_"}
    env = ArenaEnv(**world, seed=experiment.seed)
    check_world(env)
    env.set_seed(experiment.seed)
    agent = Agent(env, experiment.model, experiment.algorithm.gamma)
    algorithm = PPO(agent, experiment.algorithm, world["num_envs"], EAGER)
    return Learner(env, agent, algorithm, total_frames=experiment.total_frames, **more)


@pytest.fixture
def experiment():
    small = ["world.num_envs=4", "algorithm.rollout_steps=8", "algorithm.minibatch_size=16"]
    return Experiment.load("smoke", "device=cpu", "threads=1", "total_frames=256", *small)


def test_put_together_by_hand_it_learns_what_its_experiment_learns(experiment):
    own = metrics(by_hand(experiment))
    assert len(own) == ITERATIONS
    torch.testing.assert_close(own, metrics(experiment.make_learner()), rtol=0, atol=0, equal_nan=True)


def test_defaults_are_enough_to_learn():
    env = ArenaEnv(64)
    agent = Agent(env)
    learner = Learner(
        env, agent, PPO(agent, PPOConfig(rollout_steps=4, minibatch_size=64), 64, EAGER), total_frames=512
    )
    before = [parameter.clone() for parameter in agent.parameters()]
    iterations = list(iterate(learner))
    assert [iteration.frames for iteration in iterations] == [256, 512]
    assert any(not torch.equal(*pair) for pair in zip(agent.parameters(), before, strict=True))


def test_a_collector_of_ones_own_decides_where_and_how_long_is_played():
    env = ArenaEnv(8)
    agent = Agent(env)
    algorithm = PPO(agent, PPOConfig(rollout_steps=4, minibatch_size=16), 8, EAGER)
    collector = RolloutCollector(agent.attach(env), agent, 6, EAGER)
    learner = Learner(env, agent, algorithm, collector, total_frames=48)
    (iteration,) = iterate(learner)
    assert learner.env is collector.env
    assert iteration.rollout.shape == (6, 8)


def test_made_by_hand_it_is_no_run_that_could_be_saved(experiment, tmp_path):
    iteration = next(iterate(by_hand(experiment)))
    with pytest.raises(ValueError, match="experiment"):
        save(iteration, tmp_path)


def test_resumed_it_counts_on(experiment):
    """By the number of the iteration a league draws opponents."""
    one, other = (experiment.make_learner() for _ in range(2))
    for _ in zip(range(2), iterate(one), strict=False):
        pass
    other.load_state_dict(one.state_dict())
    assert (other.frames, other.number) == (one.frames, 2)
