"""Games of worlds that are given seeds: no two trainings, evaluations or parts of a training share one."""

import sys
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch

from torchrl_agent import Experiment, evaluate
from torchrl_agent.core import ranks
from torchrl_agent.core.abilities import own_seed, world_seed
from torchrl_agent.experiment.judging import PeriodicEvaluator
from torchrl_agent.loop import iterate, make_learner

games: list[int] = []
"""What the episodes begun so far are decided by, in their order."""
STEPS = 2


class Recorded(gymnasium.Env):
    """An episode of two steps, whose every number comes from one that is drawn when it begins."""

    observation_space, action_space = gymnasium.spaces.Box(0, 1, (1,), np.float32), gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.game = self.left = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.game, self.left = int(self.np_random.integers(2**62)), STEPS
        games.append(self.game)
        return self._observe(), {}

    def step(self, action):
        self.left -= 1
        return self._observe(), 0.0, self.left == 0, False, {}

    def _observe(self):
        return np.array([self.game % 97 / 97], np.float32)


class RecordedPair:
    """The same for two agents, as PettingZoo has it."""

    def __init__(self):
        self.possible_agents, self.metadata, self.one = ["a", "b"], {"name": "recorded"}, Recorded()

    def observation_space(self, agent):
        return Recorded.observation_space

    def action_space(self, agent):
        return Recorded.action_space

    def close(self):
        self.one.close()

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return self._all(self.one.reset(seed=seed)[0]), self._all({})

    def step(self, actions):
        seen, reward, ended, cut, _ = self.one.step(0)
        batched = [self._all(value) for value in (seen, reward, ended, cut, {})]
        self.agents = [] if ended else self.agents
        return tuple(batched)

    def _all(self, value):
        return dict.fromkeys(self.possible_agents, value)


WORLDS = {
    "gymnasium": {"_target_": "envs.libs.gymnasium.VectorGymEnv", "env_name": "Recorded-v0"},
    "pettingzoo": {"_target_": "envs.libs.pettingzoo.VectorPettingZooEnv", "module": "recorded"},
}


@pytest.fixture(params=WORLDS)
def world(request, monkeypatch):
    if request.param == "pettingzoo":
        pytest.importorskip("pettingzoo")
    monkeypatch.setitem(gymnasium.registry, "Recorded-v0", gymnasium.envs.registration.EnvSpec("Recorded-v0", Recorded))
    monkeypatch.setitem(sys.modules, "recorded", SimpleNamespace(parallel_env=RecordedPair))
    return {**WORLDS[request.param], "num_envs": 8}


def recorded(world, seed=0):
    rows = 8 if "env_name" in world else 16
    words = ("algorithm.rollout_steps=4", f"algorithm.minibatch_size={4 * rows}", "model.hidden_sizes=[4]")
    experiment = Experiment.load("smoke", "device=cpu", *words, f"seed={seed}", "total_frames=64")
    experiment.world, experiment.evaluation.world = dict(world), {}
    return experiment


def begun(count, function):
    """The last so many games that a function begins: what comes before is a world being made and checked."""
    games.clear()
    function()
    assert len(games) >= count
    return games[-count:]


def train(learner):
    frames = [iteration.frames for iteration in iterate(learner)]
    assert len(frames) == 2


TRAINED, JUDGED = 8 * 5, 8 * 3
"""Games of eight worlds: the first ones, and another after every second of eight steps, or of five."""


def test_no_game_is_played_by_two_trainings_or_evaluations(world):
    learners = []

    def training(seed):
        learners.append(recorded(world, seed).make_learner())
        train(learners[-1])

    first, again, other = (begun(TRAINED, lambda seed=seed: training(seed)) for seed in (0, 0, 1))
    assert first == again
    judge = PeriodicEvaluator(learners[0].experiment, learners[0].agent)
    on_the_way = begun(JUDGED, judge)
    final = begun(JUDGED, lambda: evaluate(learners[0].experiment, learners[0].agent))
    sets = [{*each} for each in (first, other, on_the_way, final)]
    assert len(set.union(*sets)) == 2 * TRAINED + 2 * JUDGED, "a game is played twice"


def test_a_training_that_goes_on_plays_new_games_and_the_same_each_time(world):
    learner = recorded(world).make_learner()
    before = begun(TRAINED - 8, lambda: train(learner))
    state, later = learner.state_dict(), recorded(world)
    assert state["world"] is None
    later.total_frames = 128
    after, once_more = (begun(TRAINED, lambda: train(make_learner(later, state))) for _ in range(2))
    assert after == once_more
    assert not {*before} & {*after}


def test_a_row_of_a_rank_is_the_row_of_the_whole_set():
    env = SimpleNamespace(batch_size=torch.Size([4]))
    with ranks.among(3, 2):
        assert own_seed(env, 5) == world_seed(env, 5) + 8
        assert own_seed(SimpleNamespace(branchless=True, take_shard=print), 5) == 5  # knows its rows itself


def test_seeds_leave_room_for_rows_and_know_when_a_training_goes_on():
    foreign, ours = SimpleNamespace(), SimpleNamespace(branchless=True)
    seeds = {world_seed(foreign, seed, *at) for seed in range(50) for at in ((), (512,), (1024,))}
    assert len(seeds) == 150
    assert all(0 <= seed < 2**30 for seed in seeds)
    assert world_seed(ours, 7) == 7
    assert world_seed(ours, 7, 512) not in (7, world_seed(ours, 7, 1024))
