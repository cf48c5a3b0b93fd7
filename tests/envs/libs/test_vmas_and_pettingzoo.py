"""VMAS's and PettingZoo's worlds in TorchRL's hands, and what is learned from them."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from torchrl.envs import check_env_specs

from envs.libs.pettingzoo import VectorPettingZooEnv
from envs.libs.vmas import VectorVmasEnv
from torchrl_agent.experiment import Experiment
from torchrl_agent.loop import learn
from torchrl_agent.modules.specs import agent_group, observation_shapes
from torchrl_agent.training.collector import agent_rows

pettingzoo = pytest.importorskip("pettingzoo")
TINY = ["device=cpu", "threads=1", "algorithm.num_epochs=1", "algorithm.rollout_steps=20", "model.hidden_sizes=[16]"]


class Countdown(pettingzoo.ParallelEnv):
    """Agents a, b, c see who they are and the step; b dies in step 2, all are truncated in step ``steps``. Everybody is
    paid its action.
    """

    def __init__(self, steps=4, sees=2, continuous=False):
        self.metadata, self.possible_agents = {"name": "countdown"}, ["a", "b", "c"]
        self.steps, self.sees, self.continuous = steps, sees, continuous

    def observation_space(self, agent):
        return gymnasium.spaces.Box(-9, 99, (self.sees if agent == "a" else 2,), np.float32)

    def action_space(self, agent):
        return gymnasium.spaces.Box(0, 2, (1,), np.float32) if self.continuous else gymnasium.spaces.Discrete(3)

    def _observe(self):
        return {agent: np.array([self.possible_agents.index(agent), self.step_number]) for agent in self.agents}

    def state(self):
        return np.array([self.seed, self.step_number])

    def reset(self, seed=None, options=None):
        self.seed, self.step_number, self.agents = -1 if seed is None else seed, 0, list(self.possible_agents)
        return self._observe(), {agent: {} for agent in self.agents}

    def step(self, actions):
        assert sorted(actions) == sorted(self.agents)  # the dead are not asked
        self.step_number += 1
        seen = self._observe()
        died = {agent: agent == "b" and self.step_number == 2 for agent in self.agents}
        late = dict.fromkeys(self.agents, self.step_number == self.steps)
        rewards = {agent: float(np.asarray(action).item()) for agent, action in actions.items()}
        infos = {agent: {} for agent in self.agents}
        self.agents = [agent for agent in self.agents if not died[agent] and not late[agent]]
        return seen, rewards, died, late, infos


@pytest.fixture(autouse=True)
def module(monkeypatch):
    """The countdown as a module that can be imported."""
    monkeypatch.setitem(sys.modules, "countdown", SimpleNamespace(parallel_env=Countdown))


# --- PettingZoo


@pytest.mark.parametrize("continuous", [False, True])
def test_a_pettingzoo_world_keeps_its_specs(continuous):
    env = VectorPettingZooEnv("countdown", 3, show_state=True, continuous=continuous)
    check_env_specs(env)
    assert agent_group(env) == "agents"
    assert observation_shapes(env) == {"observation": torch.Size([2])}
    assert env.full_action_spec["agents", "action"].shape == ((3, 3, 1) if continuous else (3, 3))


def test_rewards_deaths_and_the_end_of_time_go_to_whom_they_belong():
    env = VectorPettingZooEnv("countdown", 2, steps=4)
    root, frames = env.reset(), []
    for _ in range(5):
        root.set(("agents", "action"), torch.tensor([[0, 1, 2], [2, 1, 0]]))
        played, root = env.step_and_maybe_reset(root)
        frames.append(played.clone())
    rewards = torch.stack([frame["next", "agents", "reward"][0, :, 0] for frame in frames])
    assert rewards.tolist() == [[0, 1, 2], [0, 1, 2], [0, 0, 2], [0, 0, 2], [0, 1, 2]]  # b died in step 2
    alive = torch.stack([frame["agents", "alive"][1] for frame in frames])
    assert alive[:, 1].tolist() == [True, True, False, False, True]
    assert alive[:, [0, 2]].all()
    ends = {name: [frame["next", name][0].item() for frame in frames] for name in ("done", "terminated", "truncated")}
    assert ends["done"] == ends["truncated"] == [False, False, False, True, False]
    assert not any(ends["terminated"])
    assert frames[3]["next", "agents", "alive"][0].tolist() == [True, False, True]  # truncated is not dead
    assert frames[3]["next", "agents", "observation"][0].tolist() == [[0, 4], [0, 0], [2, 4]]
    assert root["agents", "observation"][0, :, 1].tolist() == [1, 1, 1]


def test_actions_from_any_start_pictures_and_closing(monkeypatch):
    class Shifted(Countdown):
        """Its actions are 5, 6 and 7; it draws the step."""

        closed = 0

        def __init__(self, render_mode=None, **options):
            super().__init__(**options)
            self.render_mode = render_mode

        def action_space(self, agent):
            return gymnasium.spaces.Discrete(3, start=5)

        def render(self):
            return np.full((2, 3, 3), self.step_number, np.uint8)

        def close(self):
            Shifted.closed += 1

    monkeypatch.setitem(sys.modules, "countdown", SimpleNamespace(parallel_env=Shifted))
    assert not hasattr(VectorPettingZooEnv("countdown", 2), "draw")
    env = VectorPettingZooEnv("countdown", 2, **VectorPettingZooEnv.film_arguments)
    assert repr(env) == "VectorPettingZooEnv(module=countdown, num_envs=2, device=cpu)"
    root = env.reset().set(("agents", "action"), torch.tensor([[0, 1, 2], [2, 1, 0]]))
    assert env.step(root)["next", "agents", "reward"][0, :, 0].tolist() == [5, 6, 7]
    assert (env.draw(1) == 1).all()
    env.close()
    assert Shifted.closed == 2


class Leaving(Countdown):
    """c is truncated alone in step 1."""

    def step(self, actions):
        seen, rewards, died, late, infos = super().step(actions)
        late = {agent: value or agent == "c" for agent, value in late.items()}
        self.agents = [agent for agent in self.agents if agent != "c"]
        return seen, rewards, died, late, infos


def test_who_leaves_a_world_that_goes_on_plays_no_more_but_is_not_dead(monkeypatch):
    monkeypatch.setitem(sys.modules, "countdown", SimpleNamespace(parallel_env=Leaving))
    env = VectorPettingZooEnv("countdown", 1, steps=9)
    rollout = env.rollout(3, break_when_any_done=False)
    following = rollout["next"]
    assert following["agents", "alive"][0].tolist() == [[True, True, False], [True, False, False], [True, False, False]]
    assert following["agents", "truncated"][0].tolist() == [[False, False, True], [False] * 3, [False] * 3]
    assert not following["done"].any()
    rows = agent_rows(rollout.transpose(0, 1), "agents")["next"]
    assert rows["done"].squeeze(-1).tolist() == [[False, False, True], [False, True, True], [False, True, True]]
    assert rows["terminated"].squeeze(-1)[:2].tolist() == [[False, False, False], [False, True, True]]


def test_the_return_of_who_left_alone_bootstraps_from_what_was_seen_last(monkeypatch):
    monkeypatch.setitem(sys.modules, "countdown", SimpleNamespace(parallel_env=Leaving))
    world = ["world._target_=envs.libs.pettingzoo.VectorPettingZooEnv", "+world.module=countdown", "+world.steps=9"]
    rules = [*TINY, "algorithm.gamma=0.5", "algorithm.lmbda=0", "algorithm.scale_rewards=false", "world.num_envs=1"]
    experiment = Experiment.load("known/mpe_spread", *world, *rules, "algorithm.minibatch_size=60", trust=True)
    learner = experiment.make_learner()
    rows = agent_rows(learner.collector.collect(), "agents")
    with torch.no_grad():
        data, _ = learner.algorithm.advantages(rows)
        last = learner.agent.critic(rows["next"][0].clone())["state_value"]
    expected = rows["next", "reward"][0] + 0.5 * last  # in the first step, when c leaves and nobody dies
    torch.testing.assert_close(data["value_target"].reshape(*rows.shape, 1)[0], expected)


def test_a_world_whose_agents_stay_when_all_is_over_ends(monkeypatch):
    class Staying(Countdown):
        def step(self, actions):
            everybody = list(self.agents)
            result = super().step(actions)
            self.agents = everybody  # against PettingZoo's rules
            return result

    monkeypatch.setitem(sys.modules, "countdown", SimpleNamespace(parallel_env=Staying))
    following = VectorPettingZooEnv("countdown", 1, steps=4).rollout(9, break_when_any_done=False)["next"]
    assert following["done"].flatten().nonzero().flatten().tolist() == [3, 7]


def test_worlds_are_reset_one_by_one():
    env = VectorPettingZooEnv("countdown", 2, steps=9)
    root = env.rand_step(env.reset())["next"]
    root.set("_reset", torch.tensor([[True], [False]]))
    assert env.reset(root)["agents", "observation"][:, 0, 1].tolist() == [0, 1]


def test_each_world_has_a_seed_of_its_own():
    env = VectorPettingZooEnv("countdown", 3, show_state=True)
    env.set_seed(5)
    assert env.reset()["state"][:, 0].tolist() == [5, 6, 7]
    assert env.reset()["state"][:, 0].tolist() == [-1, -1, -1]  # the worlds go on with their own chance


def test_nothing_returned_changes_with_the_next_step():
    env = VectorPettingZooEnv("countdown", 2, show_state=True)
    first = env.rand_step(env.reset())
    kept = first.clone()
    env.rand_step(first["next"].clone())
    assert (first == kept).all()


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        ({"module": "countdown", "sees": 3}, "differ"),
        ({"module": "no_such_module"}, "parallel_env"),
        ({"module": "math"}, "parallel_env"),
        ({"module": "countdown", "color": "red"}, "color"),
    ],
)
def test_worlds_that_cannot_be_are_refused_in_one_sentence(arguments, culprit):
    with pytest.raises(ValueError, match=culprit) as caught:
        VectorPettingZooEnv(**arguments)
    assert "\n" not in str(caught.value)


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'torchrl-agent\[multiagent\]'"):
        VectorPettingZooEnv("countdown")
    with pytest.raises(ValueError, match=r"pip install 'torchrl-agent\[vmas\]'"):
        VectorVmasEnv("balance")


# --- others -----------------------------------------------------------------------------------------------------------


def test_everybody_sees_what_each_other_one_did_last():
    env = VectorPettingZooEnv("countdown", 2, show_others=True, steps=3)
    check_env_specs(env)
    root = env.reset()
    assert not root["agents", "others"].any(), "nobody has done anything yet"
    assert root["agents", "others_number"][1].tolist() == [[1, 2], [0, 2], [0, 1]]
    chosen = torch.tensor([[0, 1, 2], [2, 2, 1]])
    played, root = env.step_and_maybe_reset(root.set(("agents", "action"), chosen))
    codes = played["next", "agents", "others"].unflatten(-1, (2, 3))
    assert codes.sum(-1).eq(1).all()
    assert codes.argmax(-1)[0].tolist() == [[1, 2], [0, 2], [0, 1]]
    assert codes.argmax(-1)[1].tolist() == [[2, 1], [2, 1], [2, 2]]
    assert torch.equal(played["next", "agents", "privileged", "others_action"], codes.argmax(-1))
    for _ in range(2):
        played, root = env.step_and_maybe_reset(root.set(("agents", "action"), chosen))
    assert played["next", "done"].all() and played["next", "agents", "others"].any()
    assert not root["agents", "others"].any(), "a new episode begins"


def test_worlds_forget_what_was_done_one_by_one():
    env = VectorPettingZooEnv("countdown", 2, show_others=True, steps=9)
    root = env.step(env.reset().set(("agents", "action"), torch.ones(2, 3, dtype=torch.int64)))["next"]
    root = env.reset(root.exclude("reward").set("_reset", torch.tensor([[True], [False]])))
    assert root["agents", "others"].flatten(1).any(1).tolist() == [False, True]


def test_others_need_one_discrete_action():
    with pytest.raises(ValueError, match=r"show_others .* at least 2 agents with one discrete action"):
        VectorPettingZooEnv("countdown", 1, show_others=True, continuous=True)


def test_a_social_model_learns_in_worlds_of_other_libraries():
    world = ["world.module=countdown", "+world.show_others=true", "world.num_envs=2", "+world.steps=20"]
    social = ["model.memory=gru", "model.social_model={enabled: true, context: true}", "algorithm.minibatch_size=120"]
    last = last_iteration("known/mpe_spread", *world, *social, "total_frames=120")
    assert last.agent.social_model.agents == 3
    assert 0 <= last.metrics["train/social_action_accuracy"] <= 1
    assert last.metrics["train/loss_social_action"] > 0
    assert last.metrics["train/loss_social_goal"] == 0, "there is one need for all"


def last_iteration(*overrides):
    *_, last = learn(Experiment.load(*overrides, *TINY))
    return last


@pytest.mark.parametrize("continuous", ["false", "true"])
def test_learning_in_a_pettingzoo_world_given_in_yaml(continuous):
    world = ["world.module=countdown", f"+world.continuous={continuous}", "world.num_envs=2", "+world.steps=4"]
    last = last_iteration("known/mpe_spread", *world, "total_frames=80", "algorithm.minibatch_size=60")
    assert last.frames == 80
    assert last.metrics["rollout/episodes"] == 20
    assert last.metrics["rollout/ep_len_mean"] == 4
    # a and c play four steps, b two; each is paid 0..2 a step
    assert 0 < last.metrics["rollout/ep_rew_mean"] < (8 + 4 + 8) / 3
    assert last.agent.critic.in_keys == ["observation", "state"]


def test_learning_in_mpe():
    pytest.importorskip("mpe2")
    last = last_iteration("known/mpe_spread", "world.num_envs=2", "total_frames=80", "algorithm.minibatch_size=60")
    assert last.metrics["rollout/ep_len_mean"] == 25
    assert -100 < last.metrics["rollout/ep_rew_mean"] < 0


# --- VMAS


@pytest.fixture(scope="module")
def balance():
    """Two small worlds of three agents, ten steps long."""
    pytest.importorskip("vmas")
    return VectorVmasEnv("balance", 2, max_steps=10, show_state=True, n_agents=3)


def test_a_vmas_world_keeps_its_specs(balance):
    check_env_specs(balance)
    assert agent_group(balance) == "agents"
    assert balance.full_action_spec["agents", "action"].shape == (2, 3, 2)


def test_others_are_shown_in_vmas_where_actions_are_discrete():
    pytest.importorskip("vmas")
    env = VectorVmasEnv("balance", 2, max_steps=10, n_agents=3, continuous_actions=False, show_others=True)
    check_env_specs(env)
    played = env.rand_step(env.reset())
    labels = played["next", "agents", "privileged", "others_action"]
    assert torch.equal(labels[:, 0], played["agents", "action"][:, 1:])
    with pytest.raises(ValueError, match="continuous_actions=false"):
        VectorVmasEnv("balance", 2, n_agents=3, show_others=True)


def test_the_end_of_time_is_no_death_in_vmas(balance):
    balance.set_seed(0)
    frames = balance.rollout(30, break_when_any_done=False)
    done, terminated, truncated = (frames["next", name][..., 0] for name in ("done", "terminated", "truncated"))
    assert torch.equal(done, terminated | truncated)
    assert truncated.any()
    lengths = (frames["next", "done"][..., 0].cumsum(1) == 0).sum(1) + 1
    assert (lengths <= 10).all()
    full = lengths == 10
    assert full.any()
    assert (truncated[full, 9] & ~terminated[full, 9]).all()


def test_the_state_is_what_all_agents_see_and_is_memory_of_its_own(balance):
    root = balance.reset()
    assert torch.equal(root["state"], root["agents", "observation"].flatten(1))
    assert root["state"].data_ptr() != root["agents", "observation"].data_ptr()


def test_a_misspelled_scenario_is_refused_with_the_nearest():
    pytest.importorskip("vmas")
    with pytest.raises(ValueError, match=r"no scenario 'navigtion' \(did you mean navigation\?\): use one of balance,"):
        VectorVmasEnv("navigtion")


def test_a_scenario_of_ones_own_is_played():
    scenarios = pytest.importorskip("vmas.scenarios.balance")
    for scenario in ("balance.py", scenarios.Scenario()):
        assert VectorVmasEnv(scenario, 2).reset().batch_size == (2,)


def test_vmas_worlds_repeat_by_seed(balance):
    starts = []
    for seed in (1, 1, 2):
        balance.set_seed(seed)
        starts.append(balance.reset()["state"])
    assert torch.equal(starts[0], starts[1])
    assert not torch.equal(starts[0], starts[2])


@pytest.mark.parametrize("target", ["envs.libs.vmas.VectorVmasEnv", "torchrl.envs.VmasEnv"])
@pytest.mark.parametrize("continuous", ["true", "false"])
def test_learning_in_vmas_by_each_agent_for_itself(target, continuous):
    pytest.importorskip("vmas")
    world = [f"world._target_={target}", f"world.continuous_actions={continuous}", "world.num_envs=4"]
    last = last_iteration(
        "known/vmas_balance", *world, "world.max_steps=5", "total_frames=160", "algorithm.minibatch_size=60"
    )
    assert last.frames == 160
    assert last.metrics["rollout/episodes"] >= 32
    assert abs(last.metrics["rollout/ep_rew_mean"]) < 1000
    assert last.agent.critic.in_keys == ["observation"]


def test_learning_in_vmas_with_a_critic_that_sees_everybody():
    pytest.importorskip("vmas")
    central = ["+world.show_state=true", "model.centralized_critic=true", "world.num_envs=4"]
    last = last_iteration("known/vmas_balance", *central, "total_frames=80", "algorithm.minibatch_size=60")
    assert last.agent.critic.in_keys == ["observation", "state"]
    assert last.metrics["train/skipped"] == 0


def test_agents_that_differ_are_refused():
    pytest.importorskip("vmas")
    with pytest.raises(ValueError, match="differ"):
        VectorVmasEnv("simple_tag", 2)
