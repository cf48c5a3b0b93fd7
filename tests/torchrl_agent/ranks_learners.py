"""Every learner, of two ranks and of one process: both learn the same in as many frames; run by two processes."""

import torch
from launching import QUICK, learned_by_hand

from torchrl_agent import Experiment
from torchrl_agent.core import ranks
from torchrl_agent.loop import learn
from torchrl_agent.optimization.sharding import whole_state
from torchrl_agent.runs.run import train

SMOKE = ("smoke", *QUICK, "algorithm.rollout_steps=8", "model.hidden_sizes=[16]", "total_frames=256")
PPO = (*SMOKE, "algorithm.minibatch_size=128", "algorithm.num_epochs=1")
TOWN = (
    "town",
    *QUICK,
    "world={num_envs: 4, num_agents: 4, level: L6}",
    "model.hidden_sizes=[16]",
    "algorithm={rollout_steps: 8, minibatch_size: 128}",
    "acceleration={step: false, advantages: false, update: false}",
    "total_frames=64",
)
LEARNERS = {
    "ppo": (*PPO, "model.memory=gru", "governor.enabled=true"),
    "a2c": (*SMOKE, "algorithm=a2c"),
    "sharded": (*PPO, "model.hidden_sizes=[256,128]", "run.shard=true"),
    "population": (*PPO, "population.members=2", "world.num_envs=8", "algorithm.minibatch_size=64", "total_frames=128"),
    "spread agents": (*TOWN, "run.spread_agents=true"),
}
"""Two iterations each."""
REFUSED = {
    "algorithm dqn cannot be trained by 2 processes": ("cartpole", *QUICK, "algorithm=dqn"),
    "algorithm sac cannot be trained by 2 processes": ("cartpole", *QUICK, "algorithm=sac"),
    "a league cannot be trained by 2 processes": ("duel_league", *QUICK),
}


def last(iterations):
    """Frames and weights after the last iteration, where there is one."""
    return [(each.frames, whole_state(each.agent.state_dict())) for each in iterations][-1:]


def assert_alike(name, found, expected):
    (frames, weights), (expected_frames, expected_weights) = found, expected
    assert frames == expected_frames, f"{name}: {frames} frames, not {expected_frames}"
    for key, value in expected_weights.items():
        torch.testing.assert_close(weights[key], value, rtol=1e-3, atol=1e-5, msg=f"{name}: {key}")


with ranks.started(60):
    assert ranks.size() == 2
    for name, words in LEARNERS.items():
        experiment = Experiment.load(*words)
        (found,) = last(learn(experiment))
        with ranks.alone():
            (expected,) = last(learn(experiment))
        assert found[0] == experiment.total_frames
        assert_alike(name, found, expected)

    impala = Experiment.load(*SMOKE, "algorithm=impala", "run.name=impala")
    found = last(train(impala))  # the second rank plays for the first, which alone has iterations
    assert len(found) == (ranks.rank() == 0)
    with ranks.alone():
        for result in found:
            assert_alike("impala", result, (256, learned_by_hand(impala, 2)))

    for sentence, words in REFUSED.items():
        try:
            Experiment.load(*words).make_learner()
        except ValueError as error:
            assert sentence in str(error), error
        else:
            raise AssertionError(f"not said: {sentence}")
