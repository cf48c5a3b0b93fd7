"""Which episodes an evaluation plays, and by which code."""

import copy

import pytest
import torch
from torchrl.envs.utils import ExplorationType, set_exploration_type

from envs import ArenaEnv
from torchrl_agent.experiment import Experiment
from torchrl_agent.experiment.judging import evaluate_ways, make_evaluator
from torchrl_agent.models.agent import Agent, ModelConfig
from torchrl_agent.modules.distributions import choosers
from torchrl_agent.training.evaluator import Evaluator

SHORT = ("total_frames=1024", "+world.rules={max_steps: 60}", "device=cpu")


def trained(learner):
    """All that a training goes on from."""
    return {**learner.collector.worlds(), "agent": learner.agent.state_dict(), "random": torch.get_rng_state()}


@pytest.mark.slow
def test_few_worlds_play_the_episodes_of_many():
    world = {"rules": {"max_steps": 600}, "action_repeat": 20}
    torch.manual_seed(0)
    agent = Agent(ArenaEnv(num_envs=1, **world), ModelConfig(hidden_sizes=[8]))
    many = Evaluator(agent.policy, ArenaEnv(num_envs=7, **world))(seed=5)
    few = Evaluator(agent.policy, ArenaEnv(num_envs=3, **world), episodes=7)(seed=5)
    assert many.keys() == few.keys() and many["return"].unique().numel() > 1
    for name, values in many.items():
        assert torch.equal(values, few[name]), name


def test_more_episodes_than_worlds_need_a_seed():
    agent = Agent(ArenaEnv(num_envs=1), ModelConfig(hidden_sizes=[8]))
    with pytest.raises(ValueError, match="6 episodes need a seed"):
        Evaluator(agent.policy, ArenaEnv(num_envs=3), episodes=6)()


@pytest.mark.slow
def test_of_more_worlds_than_episodes_the_first_ones_count():
    world = {"rules": {"max_steps": 600}, "action_repeat": 20}
    agent = Agent(ArenaEnv(num_envs=1, **world), ModelConfig(hidden_sizes=[8]))
    few, many = (Evaluator(agent.policy, ArenaEnv(num_envs=count, **world), episodes=3)(seed=5) for count in (3, 8))
    assert few["return"].tolist() == many["return"].tolist()


def test_the_flag_of_a_chooser_takes_the_most_likely_action_where_one_would_be_drawn():
    torch.manual_seed(0)
    env = ArenaEnv(num_envs=256)
    agent, root = Agent(env), env.reset()
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        likely = agent.policy(root.copy())["action"]
    (chooser,) = choosers(agent.to("cpu"))
    chooser.greedy = torch.tensor(False)
    with set_exploration_type(ExplorationType.RANDOM):
        assert not torch.equal(agent.policy(root.copy())["action"], likely)
        chooser.greedy.fill_(True)
        assert torch.equal(agent.policy(root.copy())["action"], likely)


def test_a_training_that_is_not_compiled_lends_no_code():
    learner = Experiment.load("smoke", *SHORT).make_learner()
    evaluator = make_evaluator(learner.experiment, learner.agent, 3, collector=learner.collector)
    assert evaluator.collector is None and evaluator.env.batch_size == (3,)


@pytest.mark.slow
def test_evaluations_run_the_code_of_rollouts():
    torch._dynamo.reset()
    learner = Experiment.load("smoke", *SHORT, "acceleration.step=true").make_learner()
    learner.collector.collect()
    with torch._dynamo.config.patch(error_on_recompile=True):
        evaluator = make_evaluator(learner.experiment, learner.agent, 20, collector=learner.collector)
        assert evaluator.collector is not None and evaluator.env.batch_size == learner.env.batch_size
        before = copy.deepcopy(trained(learner))
        lent = evaluate_ways(learner.experiment, learner.agent, 20, learner.collector)
        torch.testing.assert_close(trained(learner), before, rtol=0, atol=0)
        drawn = learner.collector.collect()["action"]
    own = evaluate_ways(learner.experiment, learner.agent, 20)
    assert lent["deterministic"] == pytest.approx(own["deterministic"], rel=1e-4)
    assert lent["stochastic"] != lent["deterministic"]
    assert drawn.unique().numel() == 5, "rollouts draw again"

    elsewhere = Experiment.load("smoke", *SHORT, "+evaluation.world.action_repeat=2")
    assert make_evaluator(elsewhere, learner.agent, 20, collector=learner.collector).collector is None
