"""Worlds of several agents, learned from as rows: who died teaches nothing, and every agent is judged alone."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from envs import TownEnv
from torchrl_agent import keys
from torchrl_agent.experiment import Experiment
from torchrl_agent.loop import learn
from torchrl_agent.models.agent import Agent, ModelConfig
from torchrl_agent.modules.distributions import MaskedCategorical, MaskedMultiCategorical
from torchrl_agent.modules.perception import PerceptionConfig
from torchrl_agent.modules.specs import observation_shapes
from torchrl_agent.training.collector import agent_rows
from torchrl_agent.transforms import RewardScaler


def test_agents_never_see_masks_lives_potentials_labels_or_the_global_state():
    env = TownEnv(2, level="L6", observation="groups", privileged=True, potential=True, drives=True)
    shapes = observation_shapes(env)
    assert set(shapes) <= {
        "meters",
        "position",
        "standing_on",
        "progress",
        "time",
        "previous_action",
        "window",
        "others",
    }
    agent = Agent(env, ModelConfig([8], perception=PerceptionConfig(enabled=True)))
    seen = {key for key in agent.policy.in_keys if key[-1] != "action_mask"}
    assert seen == {("agents", name) for name in (*shapes, "others_number")}


def test_agents_share_one_policy_that_acts_for_each_alone():
    env = TownEnv(3, level="L6")
    agent = Agent(env, ModelConfig([16]))
    root = agent.policy(env.reset())
    logits = agent.actor(root["agents"].clone())["logits"]
    assert logits.shape == (3, 4, 8)
    alone = agent.actor(root["agents"][:, 2].clone())["logits"]
    torch.testing.assert_close(alone, logits[:, 2])
    legal = root["agents", "action_mask"].gather(-1, root["agents", "action"].unsqueeze(-1))
    assert legal.all()


def world_of_two(reward, alive, next_alive, done, terminated):
    """A rollout [T, 1 world, 2 agents] from lists over time."""
    steps = len(reward)

    def agents(values):
        return torch.tensor(values).reshape(steps, 1, 2)

    following = TensorDict(
        {
            "agents": TensorDict({"reward": agents(reward).unsqueeze(-1), "alive": agents(next_alive)}, [steps, 1, 2]),
            "done": torch.tensor(done).reshape(steps, 1, 1),
            "terminated": torch.tensor(terminated).reshape(steps, 1, 1),
        },
        [steps, 1],
    )
    mine = TensorDict({"alive": agents(alive)}, [steps, 1, 2])
    return TensorDict({"agents": mine, "next": following}, [steps, 1])


def test_death_ends_an_agents_episode_and_time_ends_everybodys():
    rollout = world_of_two(
        reward=[[1.0, 2.0], [3.0, 4.0], [5.0, 0.0]],
        alive=[[True, True], [True, True], [True, False]],
        next_alive=[[True, True], [True, False], [True, False]],
        done=[False, False, True],
        terminated=[False, False, False],
    )
    rows = agent_rows(rollout, "agents")
    assert rows.shape == (3, 2)
    assert rows["next", "done"].squeeze(-1).tolist() == [[False, False], [False, True], [True, True]]
    assert rows["next", "terminated"].squeeze(-1).tolist() == [[False, False], [False, True], [False, True]]
    assert rows["next", "reward"].squeeze(-1).tolist() == [[1, 2], [3, 4], [5, 0]]
    assert rows["alive"].tolist() == [[True, True], [True, True], [True, False]]
    assert "alive" not in rows["next"].keys()
    assert ("next", "agents", "alive") in rollout.keys(True), "the rollout itself is left as it was"


def test_rewards_of_the_dead_do_not_count():
    counted, plain = RewardScaler(2), RewardScaler(1)
    reward = torch.tensor([[1.0, 0.0], [2.0, 0.0], [4.0, 0.0]]).unsqueeze(-1)
    done = torch.tensor([[False, True], [False, True], [True, True]]).unsqueeze(-1)
    alive = torch.tensor([[True, False]] * 3)
    for _ in range(2):
        counted.update(reward, done, alive)
        plain.update(reward[:, :1], done[:, :1])
    assert counted.running.count == plain.running.count == 6
    torch.testing.assert_close(counted.running.mean, plain.running.mean)
    torch.testing.assert_close(counted.running.var, plain.running.var)


def test_two_choices_at_once():
    logits = torch.randn(5, 5)
    mask = torch.tensor([True, False, True, True, True]).expand(5, 5)
    both = MaskedMultiCategorical(logits, mask, sizes=[3, 2])
    first, second = MaskedCategorical(logits[:, :3], mask[:, :3]), MaskedCategorical(logits[:, 3:], mask[:, 3:])
    action = both.sample()
    assert action.shape == (5, 2)
    assert (action[:, 0] != 1).all()
    torch.testing.assert_close(both.log_prob(action), first.log_prob(action[:, 0]) + second.log_prob(action[:, 1]))
    torch.testing.assert_close(both.entropy(), first.entropy() + second.entropy())
    assert both.deterministic_sample.tolist() == [
        [a, b] for a, b in zip(first.deterministic_sample.tolist(), second.deterministic_sample.tolist(), strict=True)
    ]


SMALL = [
    "world.num_envs=4",
    "algorithm.rollout_steps=16",
    "threads=1",
    "model.hidden_sizes=[16]",
    "acceleration={step: false, advantages: false, update: false}",
]


@pytest.mark.parametrize(
    "options", [["world.level=L2"], pytest.param(["world.level=L6"], marks=pytest.mark.slow), ["world.level=L8"]]
)
def test_every_kind_of_town_is_learned_from(options):
    experiment = Experiment.load("town", *SMALL, *options, "algorithm.minibatch_size=64", "total_frames=256")
    last = list(learn(experiment))[-1]
    assert last.frames == 256
    assert last.metrics["train/updates"] > 0
    agents = last.learner.env.num_agents
    assert last.rollout["agents"].shape == (16, 4, agents)
    assert last.metrics["train/updates"] == 4 * 16 * 4 * agents / 64


def test_frames_of_the_dead_never_reach_an_update():
    rules = {"meters": {"energy": {"initial": 0.03}}}  # some die of moving while others still rest
    experiment = Experiment.load("town", *SMALL, "world.level=L6", "algorithm.minibatch_size=64", "total_frames=256")
    experiment.world["rules"] = rules
    for iteration in learn(experiment):
        rows = agent_rows(iteration.rollout, "agents")
        data, _ = iteration.learner.algorithm.advantages(rows)
        frames = {tuple(frame) for frame in rows["observation"][rows["alive"]].tolist()}
        kept = data["observation"][data[keys.VALID]].tolist()
        assert len(kept) == int(rows["alive"].sum())
        assert all(tuple(frame) in frames for frame in kept)
        if not rows["alive"].all():
            return
    raise AssertionError("nobody died before the others: the test shows nothing")
