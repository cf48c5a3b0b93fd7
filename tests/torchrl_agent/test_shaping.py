"""Potential-based shaping: by hand, and never with another discount than the learner's."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from envs import BranchlessTransformedEnv, TownEnv
from torchrl_agent.experiment import Experiment
from torchrl_agent.loop import learn
from torchrl_agent.transforms import PotentialShaping, check_shaping

REWARD, POTENTIAL = ("agents", "reward"), ("agents", "potential")
SMALL = [
    "world={num_envs: 4, potential: true}",
    "algorithm={rollout_steps: 16, minibatch_size: 64}",
    "total_frames=64",
    "threads=1",
    "acceleration={step: false, advantages: false, update: false}",
]


def test_shaping_by_hand():
    shaping = PotentialShaping("potential", "reward", gamma=0.5, scale=2.0)
    now = TensorDict({"potential": torch.tensor([[0.4], [0.4]])}, [2])
    after = TensorDict(
        {
            "potential": torch.tensor([[0.6], [0.6]]),
            "reward": torch.ones(2, 1),
            "terminated": torch.tensor([[False], [True]]),
        },
        [2],
    )
    shaped = shaping._step(now, after)["reward"].flatten().tolist()
    assert shaped == pytest.approx([1 + 2 * (0.5 * 0.6 - 0.4), 1 - 2 * 0.4])


def test_the_shaped_return_differs_by_the_potential_of_the_start_alone():
    plain = TownEnv(4, level="L2", seed=1, potential=True)
    shaped = BranchlessTransformedEnv(
        TownEnv(4, level="L2", seed=1, potential=True), PotentialShaping(POTENTIAL, REWARD, 1.0)
    )
    first, second = plain.reset(), shaped.reset()
    start, difference = first[POTENTIAL].clone(), torch.zeros(4, 1, 1)
    torch.manual_seed(0)
    for _ in range(40):
        action = torch.randint(0, 8, (4, 1))
        one, first = plain.step_and_maybe_reset(first.set(("agents", "action"), action))
        two, second = shaped.step_and_maybe_reset(second.set(("agents", "action"), action))
        difference += two["next"][REWARD] - one["next"][REWARD]
    torch.testing.assert_close(difference, one["next"][POTENTIAL] - start)


def test_another_discount_is_refused():
    env = BranchlessTransformedEnv(TownEnv(2, potential=True), PotentialShaping(POTENTIAL, REWARD, 0.9))
    check_shaping(env, 0.9)
    with pytest.raises(ValueError, match=r"gamma 0\.9 but the learner has 0\.99"):
        check_shaping(env, 0.99)
    with pytest.raises(ValueError, match="gamma"):
        Experiment.load("town", *SMALL, "shaping.scale=1", "shaping.gamma=0.5").make_learner()


def test_a_world_without_a_potential_is_refused():
    with pytest.raises(ValueError, match=r"world\.potential=true"):
        Experiment.load("town", *SMALL, "world.potential=false", "shaping.scale=1").make_world()


def test_training_with_shaping_saves_and_restores_its_world():
    experiment = Experiment.load("town", *SMALL, "shaping.scale=1")
    (iteration,) = learn(experiment)
    saved = iteration.learner.state_dict()
    other = experiment.make_learner()
    other.load_state_dict(saved)
    assert torch.equal(other.env.base_env.state.meters, iteration.learner.env.base_env.state.meters)
