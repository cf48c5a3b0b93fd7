"""Rollouts that are stepped as arrays are those of TorchRL's own step."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from torchrl_agent import Experiment
from torchrl_agent.optimization import tracing
from torchrl_agent.training import collector


class Counter(gymnasium.Env):
    """Counts to its number of steps; shows two parts, masks its actions, and puts a figure into ``info``."""

    observation_space = spaces.Dict(
        {
            "place": spaces.Box(-1, 1, (2,), np.float64),
            "kind": spaces.Discrete(3),
            "action_mask": spaces.Box(0, 1, (4,), np.int8),
        }
    )
    action_space = spaces.Discrete(4, start=1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.end = 0, int(self.np_random.integers(3, 9))
        return self.seen(), {}

    def step(self, action):
        self.steps += 1
        info = {"energy": self.steps / 2}
        return self.seen(), float(action), self.steps == self.end, self.steps == 6, info

    def seen(self):
        mask = np.array([1, 1, self.steps % 2, 0], np.int8)
        return {"place": self.np_random.uniform(-1, 1, 2), "kind": self.steps % 3, "action_mask": mask}


WORLDS = {"counter": Counter, "cartpole": "gym:CartPole-v1", "pendulum": "gym:Pendulum-v1"}


def make_learner(world, *overrides):
    sizes = ["world.num_envs=3", "algorithm.rollout_steps=24", "model.hidden_sizes=[8]", "seed=5", "threads=1"]
    torch.manual_seed(0)
    plain = [f"acceleration.{part}=false" for part in ("step", "update")]
    return Experiment.load(WORLDS[world], *sizes, *plain, *overrides).make_learner()


def rollouts(learner, count=4):
    for number in range(count):
        torch.manual_seed(number)
        yield learner.collector.collect().clone()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("world", WORLDS)
def test_rollouts_are_those_of_torchrls_step(world, compiled, monkeypatch):
    monkeypatch.setattr(tracing, "generate", lambda traced, inputs: traced)
    with monkeypatch.context() as patch:
        patch.setattr(collector, "plays_arrays", lambda env, agent: False)
        plain = make_learner(world)
    played = make_learner(world, f"acceleration.step={'true' if compiled else 'false'}")
    assert played.collector._host is not None and plain.collector._host is None
    for one, other in zip(rollouts(plain), rollouts(played), strict=True):
        assert set(one.keys(True, True)) == set(other.keys(True, True))
        for key, value in one.items(True, True):
            torch.testing.assert_close(other[key], value, rtol=1e-6, atol=1e-6, msg=str(key))
        assert one["next", "done"].any() or world == "pendulum"
    assert torch.equal(played.collector.root["done"], plain.collector.root["done"])


@pytest.mark.parametrize("override", ["model.memory=gru", "+world.transforms=[{SignTransform: {in_keys: [reward]}}]"])
def test_agents_with_memory_and_transforms_use_torchrls_step(override):
    learner = make_learner("cartpole", override)
    assert learner.collector._host is None
    learner.collector.collect()


def test_a_run_that_is_resumed_plays_on(monkeypatch):
    learner = make_learner("cartpole")
    for rollout in rollouts(learner, 2):
        learner.improve(rollout, 1e-3)
    again = make_learner("cartpole")
    again.load_state_dict(learner.state_dict())
    for rollout in rollouts(again, 2):
        assert rollout["next", "observation"].isfinite().all()
        goes_on = ~rollout["next", "done"][:-1, :, 0]
        assert torch.equal(rollout["observation"][1:][goes_on], rollout["next", "observation"][:-1][goes_on])
