"""The PettingZoo view of a world of several agents."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor
from torchrl.data import Bounded, Categorical, Composite, Unbounded

from envs import ArenaEnv, TownEnv, World

pytest.importorskip("pettingzoo")
from pettingzoo.test import parallel_api_test, parallel_seed_test

from envs.adapters.pettingzoo import WorldParallelEnv

LEVELS = ["L3", "L6", "L8"]


def make(level="L6", **options):
    return WorldParallelEnv(TownEnv(1, level=level, seed=1, **options))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("level", LEVELS)
def test_pettingzoo_accepts_it(level):
    parallel_api_test(make(level, rules={"depletion": 3.0}), num_cycles=60)  # several episodes


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("level", LEVELS)
def test_a_seed_decides_the_game(level):
    parallel_seed_test(lambda: make(level), num_cycles=50)


def waiting(env):
    heads = env.action_space("agent_0").shape
    return {agent: np.full(heads, 5) if heads else 5 for agent in env.agents}


def test_it_plays_the_same_game_as_the_world_itself():
    env, world = make(), TownEnv(1, level="L6", seed=1)
    env.reset(seed=3)
    world.set_seed(3)
    root = world.reset()
    for step in range(30):
        action = step % 8
        seen, rewards, *_ = env.step(dict.fromkeys(env.agents, action))
        played, root = world.step_and_maybe_reset(root.set(("agents", "action"), torch.full((1, 4), action)))
        for index, agent in enumerate(env.agents):
            assert torch.equal(torch.from_numpy(seen[agent]), played["next", "agents", "observation"][0, index])
            assert rewards[agent] == played["next", "agents", "reward"][0, index].item()
    assert np.array_equal(env.state(), root["state"][0].numpy())


def test_who_dies_is_terminated_and_leaves_and_the_last_infos_tell_the_episode():
    env = make()
    env.reset()
    env.world.state.meters[0, 1] = 0.001
    _, _, terminations, truncations, infos = env.step(waiting(env))
    assert terminations == {"agent_0": False, "agent_1": True, "agent_2": False, "agent_3": False}
    assert not any(truncations.values())
    assert env.agents == ["agent_0", "agent_2", "agent_3"]
    assert "episode" not in infos["agent_1"]
    env.world.state.step.fill_(499)
    _, rewards, terminations, truncations, infos = env.step(waiting(env))
    assert set(rewards) == {"agent_0", "agent_2", "agent_3"}
    assert all(truncations.values())
    assert not any(terminations.values())
    assert env.agents == []
    assert infos["agent_0"]["episode"]["win"] == 0.75
    with pytest.raises(ValueError, match="call reset"):
        env.step({})


def test_who_dies_in_the_last_step_is_terminated_and_not_truncated():
    env = make()
    env.reset()
    env.world.state.meters[0, 1] = 0.001
    env.world.state.step.fill_(499)
    _, _, terminations, truncations, _ = env.step(waiting(env))
    assert [agent for agent, dead in terminations.items() if dead] == ["agent_1"]
    assert [agent for agent, late in truncations.items() if late] == ["agent_0", "agent_2", "agent_3"]


def test_after_a_death_actions_still_go_to_whom_they_belong():
    env = make()
    env.reset()
    env.world.state.meters[0, 1] = 0.001
    env.step(waiting(env))
    agents = env.world.state.agents
    agents.x[2, 0] = agents.y[2, 0] = 2
    before = agents.y[:, 0].tolist()
    env.step({**waiting(env), "agent_2": 0})  # up
    assert env.world.state.agents.y[:, 0].tolist() == [*before[:2], 1, before[3]]


@pytest.mark.parametrize("level", LEVELS)
def test_actions_drawn_by_the_mask_are_legal(level):
    env = make(level)
    _, infos = env.reset(seed=2)
    for _ in range(40):
        if not env.agents:
            break
        actions = {agent: env.action_space(agent).sample(infos[agent]["action_mask"]) for agent in env.agents}
        *_, infos = env.step(actions)
    assert not env.world.state.tally.illegal.any()


@pytest.mark.parametrize("action", [1.7, True, None, "up", [1, 2], -1])
def test_what_is_no_action_is_refused(action):
    env = make()
    env.reset()
    with pytest.raises(ValueError, match="agent_0 cannot do"):
        env.step({**waiting(env), "agent_0": action})


@pytest.mark.parametrize("seed", [-1, 1.5, True])
def test_seeds_are_whole_numbers(seed):
    with pytest.raises(ValueError, match="seed is"):
        make().reset(seed=seed)


def test_bad_use_is_refused_by_name():
    with pytest.raises(ValueError, match="3 worlds"):
        WorldParallelEnv(TownEnv(3, level="L6"))
    with pytest.raises(ValueError, match="one agent"):
        WorldParallelEnv(ArenaEnv(1))
    env = make()
    env.reset()
    with pytest.raises(ValueError, match="agent_3"):
        env.step({"agent_0": 1})
    with pytest.raises(ValueError, match="give one for"):
        env.step([5, 5, 5, 5])
    with pytest.raises(ValueError, match="agent_0 cannot do 99"):
        env.step({**waiting(env), "agent_0": 99})
    with pytest.raises(ValueError, match="agent_9"):
        env.action_space("agent_9")


class Steps(NamedTuple):
    step: Tensor


class Pair(World):
    """Two agents who see the time and nothing else, and of whom nobody says who lives, what is legal or what the whole
    is.
    """

    def __init__(self, continuous=False):
        super().__init__(1)
        self.num_agents = 2
        seen = Composite(clock=Unbounded((1, 2, 1)), shape=(1, 2))
        action = Bounded(-1, 1, (1, 2, 1)) if continuous else Categorical(3, shape=(1, 2))
        self._build(Composite(agents=seen, shape=(1,)), action, midway=False)

    def settings(self):
        return Steps(torch.zeros(1))

    def spawn(self, settings, chance, midway):
        return Steps(torch.zeros(1))

    def advance(self, state, action, chance):
        return Steps(state.step + 1)

    def observe(self, state):
        return {"agents": {"clock": state.step.reshape(1, 1, 1).repeat(1, 2, 1)}}

    def outcome(self, state):
        return state.step.repeat(2, 1), state.step >= 4, state.step >= 9


@pytest.mark.filterwarnings("ignore")
def test_a_world_of_ones_own_with_several_agents_is_shown():
    parallel_api_test(WorldParallelEnv(Pair()), num_cycles=40)
    env = WorldParallelEnv(Pair())
    seen, infos = env.reset()
    assert infos == {"agent_0": {}, "agent_1": {}}
    assert env.observation_space("agent_0").high == np.inf
    for step in range(1, 5):
        assert env.agents == ["agent_0", "agent_1"]
        seen, rewards, terminations, truncations, infos = env.step({"agent_0": 2, "agent_1": 0})
        assert seen["agent_1"].tolist() == [step]
        assert rewards == {"agent_0": step, "agent_1": step}
    assert env.agents == []
    assert terminations == {"agent_0": True, "agent_1": True}
    assert truncations == {"agent_0": False, "agent_1": False}
    assert infos["agent_0"]["episode"] == {"return": 10, "length": 4, "complete": 1, "stage": 0}
    assert env.world.group_map == {"agents": ["agent_0", "agent_1"]}
    with pytest.raises(ValueError, match="no state"):
        env.state()
    with pytest.raises(ValueError, match="discrete"):
        WorldParallelEnv(Pair(continuous=True))


@pytest.mark.filterwarnings("ignore")
def test_agents_who_see_several_things_get_them_by_name():
    parallel_api_test(make(observation="groups"), num_cycles=100)
    env = make(observation="groups")
    seen, _ = env.reset(seed=1)
    assert seen["agent_0"] in env.observation_space("agent_0")
    assert {"meters", "window"} <= set(seen["agent_0"])
    assert "alive" not in seen["agent_0"]


def test_the_last_picture_and_state_are_those_of_the_end():
    env = make(rules={"max_steps": 2})
    with pytest.raises(ValueError, match="call reset"):
        env.state()
    env.reset(seed=1)
    env.render()
    env.step(waiting(env))
    env.step(waiting(env))
    picture, state = env.render(), env.state()
    assert env.agents == [] and state[-1] == 1.0, "share of time"
    assert np.array_equal(env.render(), picture)
    env.reset()
    assert not np.array_equal(env.render(), picture)
    assert not np.array_equal(env.state(), state)
