"""Worlds of strangers with anything wrong in them: refused in one sentence before training, or learned from."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict
from torchrl.data import Bounded, Categorical, Composite, MultiCategorical, OneHot, Unbounded
from torchrl.envs import Compose, EnvBase, RewardSum, StepCounter, TransformedEnv

from torchrl_agent import check_world
from torchrl_agent.algorithms.ppo import PPO, PPOConfig
from torchrl_agent.models.agent import Agent, ModelConfig
from torchrl_agent.optimization.compilation import AccelerationConfig
from torchrl_agent.training.collector import RolloutCollector, episode_entries

EAGER = AccelerationConfig(step=False, advantages=False, update=False, cudagraphs=False)
N, STEPS = 3, 4
ERRORS = [
    None,
    ValueError("line one\nline two"),
    KeyError("x"),
    RuntimeError("shapes"),
    AttributeError("y"),
    IndexError(0),
]
SHAPES = [(N, 1), (N,), (1,), (N, 2), (N, 1, 1), (1, N), ()]
TYPES = [torch.float32, torch.float64, torch.int64, torch.bool, torch.float16]
VALUES = [1.0, 0.0, math.nan, math.inf, -math.inf, 1e38, -1e30]
ACTIONS = [
    lambda: Categorical(2, shape=(N,)),
    lambda: MultiCategorical([2, 3], shape=(N, 2)),
    lambda: Bounded(-1, 1, (N, 2)),
    lambda: Unbounded((N, 1)),
    lambda: OneHot(3, shape=(N, 3)),
    lambda: Categorical(1, shape=(N,)),
    lambda: Unbounded((N, 2, 2)),
]


class Strange(EnvBase):
    """A world of which every part can be given; what is ``declared`` in the specs and what is ``given`` may differ."""

    def __init__(self, declared, given, action, statistics, fails, error, length):
        super().__init__(batch_size=[N], device="cpu")
        self.given, self.fails, self.error, self.length, self.age = given, fails, error, length, 0
        self.statistics = statistics
        seen = Unbounded(declared["observation"][0], dtype=declared["observation"][1])
        self.observation_spec = Composite(observation=seen, shape=(N,))
        if statistics:
            self.observation_spec["episode"] = Composite({name: Unbounded((N, 1)) for name in statistics}, shape=(N,))
        self.action_spec = action()
        self.reward_spec = Unbounded(declared["reward"][0], dtype=declared["reward"][1])

    def _shown(self):
        shown = {"observation": self._made("observation")}
        if self.statistics:
            shown["episode"] = TensorDict({name: torch.full((N, 1), float(self.age)) for name in self.statistics}, [N])
        return shown

    def _made(self, name):
        shape, dtype, value = self.given[name]
        return (
            torch.full(shape, value).nan_to_num().to(dtype)
            if not dtype.is_floating_point
            else torch.full(shape, value, dtype=dtype)
        )

    def _fail(self, function):
        if self.error is not None and self.fails == function:
            raise self.error

    def _reset(self, tensordict=None, **_):
        self._fail("reset")
        self.age = 0
        return TensorDict(self._shown(), [N])

    def _step(self, tensordict):
        self._fail("step")
        self.age += 1
        done = torch.full((N, 1), self.age >= self.length)
        return TensorDict(
            {**self._shown(), "reward": self._made("reward"), "done": done, "terminated": done.clone()}, [N]
        )

    def _set_seed(self, seed):
        pass


def mostly(usual, *others):
    """The usual one, more often than not."""
    return st.integers(0, 9).flatmap(lambda number: st.just(usual) if number < 8 else st.sampled_from(others))


@st.composite
def worlds(draw):
    declared, given = {}, {}
    for name, shape in (("observation", (N, 4)), ("reward", (N, 1))):
        declared[name] = draw(mostly(shape, *SHAPES)), draw(mostly(torch.float32, *TYPES))
        given[name] = (
            draw(mostly(declared[name][0], *SHAPES)),
            draw(mostly(declared[name][1], *TYPES)),
            draw(mostly(1.0, *VALUES)),
        )
    action, error = draw(mostly(ACTIONS[0], *ACTIONS)), draw(mostly(None, *ERRORS))
    statistics = draw(
        mostly(("return", "length"), (), ("return",), ("length",), ("luck",), ("return", "length", "luck"))
    )
    return declared, given, action, statistics, draw(st.sampled_from(["reset", "step"])), error, draw(st.integers(1, 6))


@given(worlds())
def test_a_strange_world_is_refused_in_a_sentence_or_learned_from(outcome, parts):
    with outcome() as checked:
        try:
            env = Strange(*parts)
            env = env if episode_entries(env) else TransformedEnv(env, Compose(RewardSum(), StepCounter()))
        except Exception:  # TorchRL's own specs refuse it: no world to speak of
            return
        check_world(env)
        agent = Agent(env, ModelConfig([4]))
    if checked.sentence is None:  # from here on everything works
        config = PPOConfig(rollout_steps=STEPS, minibatch_size=STEPS * N, num_epochs=1)
        ppo, collector = PPO(agent, config, N, EAGER), RolloutCollector(env, agent, STEPS, EAGER)
        rollout = collector.collect()
        ppo.learn(rollout, 1e-3)
        collector.finished(rollout)
