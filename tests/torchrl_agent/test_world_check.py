"""Worlds that break the contract, each in its own way: all of them end in one sentence before training."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from line_world import Cabinet
from tensordict import TensorDict
from torch import Tensor
from torchrl.data import Binary, Bounded, Categorical, Composite, Unbounded
from torchrl.envs import EnvBase, RewardSum, StepCounter, TransformedEnv

from envs import WORLDS, World
from torchrl_agent import Experiment, check_world
from torchrl_agent.experiment import build as assembly

N, CELLS, MAX_STEPS = 5, 6, 4


class Settings(NamedTuple):
    pass


class State(NamedTuple):
    x: Tensor
    step: Tensor


class Walk(World):
    """One agent walks on a line; right in every respect."""

    agents = None
    seen = (2,)

    def __init__(self, num_envs=N, *, device=None, seed=0):
        super().__init__(num_envs, device=device, seed=seed)
        self.num_agents = self.agents
        self.prepare()

    def prepare(self):
        self._build(*self.specs(), midway=False)

    def specs(self):
        n = self.num_envs
        if self.num_agents is None:
            return Composite(observation=Bounded(0, 1, (n, *self.seen)), shape=(n,)), Categorical(2, shape=(n,))
        rows = (n, self.num_agents)
        agents = Composite(observation=Bounded(0, 1, (*rows, *self.seen)), shape=rows)
        return Composite(agents=agents, shape=(n,)), Categorical(2, shape=rows)

    def settings(self):
        return Settings()

    def spawn(self, settings, chance, midway):
        return State(*(torch.floor(value * CELLS) for value in chance.uniform(0, 2)))._replace(
            step=torch.zeros(self.num_envs)
        )

    def advance(self, state, action, chance):
        moved = action if self.num_agents is None else action.sum(-1)
        return State((state.x + 2 * moved - 1).clamp(0, CELLS - 1), state.step + 1)

    def observe(self, state):
        seen = torch.stack([state.x / CELLS, state.step / MAX_STEPS], -1)
        if self.num_agents is None:
            return {"observation": seen}
        return {"agents": {"observation": seen.unsqueeze(1).repeat(1, self.num_agents, 1)}}

    def outcome(self, state):
        reward = state.x if self.num_agents is None else state.x.repeat(self.num_agents, 1)
        return reward, state.x == 0, state.step >= MAX_STEPS

    def statistics(self, state):
        return {"luck": state.x.clone()}


class Couple(Walk):
    """Two agents."""

    agents = 2


class Rich(NamedTuple):
    x: Tensor
    step: Tensor
    more: Tensor


def world(base=Walk, **functions):
    """A world that differs from a right one in some of its functions."""
    return type("Hostile", (base,), functions)


def statistics(change):
    return world(statistics=lambda self, state: change(Walk.statistics(self, state)))


def outcome(change, base=Walk):
    return world(base, outcome=lambda self, state: change(*base.outcome(self, state)))


def observe(change, base=Walk):
    return world(base, observe=lambda self, state: change(base.observe(self, state), state))


def advance(change):
    return world(advance=lambda self, state, action, chance: change(Walk.advance(self, state, action, chance)))


def spawn(change):
    return world(spawn=lambda self, *arguments: change(Walk.spawn(self, *arguments)))


def specs(change, base=Walk):
    return world(base, specs=lambda self: change(*base.specs(self)))


def sees(key, value):
    return lambda seen, state: {**seen, key: value(seen, state)}


def fail(*arguments):
    raise RuntimeError("the dog ate it\nand more")


HOSTILE = {
    "no statistics": (statistics(lambda s: None), "statistics gives nothing"),
    "a statistic that is a number": (statistics(lambda s: {**s, "win": 1.0}), "win is float"),
    "whole numbers as statistic": (statistics(lambda s: {**s, "win": s["luck"].long()}), "win is int64"),
    "a column as statistic": (statistics(lambda s: {**s, "win": s["luck"].unsqueeze(-1)}), "win has shape"),
    "a column as reward": (outcome(lambda r, e, t: (r.unsqueeze(-1), e, t)), "outcome: reward has shape"),
    "whole numbers as reward": (outcome(lambda r, e, t: (r.long(), e, t)), "reward is int64"),
    "double precision as reward": (outcome(lambda r, e, t: (r.double(), e, t)), "reward is float64"),
    "NaN as reward": (outcome(lambda r, e, t: (r * float("nan"), e, t)), "reward holds NaN"),
    "floats as terminated": (outcome(lambda r, e, t: (r, e.float(), t)), "terminated is float32"),
    "a column as truncated": (outcome(lambda r, e, t: (r, e, t.unsqueeze(-1))), "truncated has shape"),
    "no truncated": (outcome(lambda r, e, t: (r, e)), "outcome gives tuple of 2"),
    "nothing as truncated": (outcome(lambda r, e, t: (r, e, None)), "truncated is nothing"),
    "rewards by world, not by agent": (outcome(lambda r, e, t: (r.T, e, t), Couple), "reward has shape"),
    "one reward for two agents": (outcome(lambda r, e, t: (r[0], e, t), Couple), "reward has shape"),
    "ends by agent": (outcome(lambda r, e, t: (r, e.expand(2, -1), t), Couple), "terminated has shape"),
    "an observation of another size": (
        observe(sees("observation", lambda o, s: o["observation"][:, :1])),
        "observation has shape",
    ),
    "an observation with worlds last": (
        observe(sees("observation", lambda o, s: o["observation"].T)),
        "observation has shape",
    ),
    "an observation in double precision": (
        observe(sees("observation", lambda o, s: o["observation"].double())),
        "is float64",
    ),
    "an observation outside of its bounds": (
        observe(sees("observation", lambda o, s: o["observation"] + 7)),
        "observation has values from 7",
    ),
    "NaN in an observation": (
        observe(sees("observation", lambda o, s: o["observation"] / 0 * 0)),
        "observation holds NaN",
    ),
    "a spec without an observation": (specs(lambda o, a: (o.set("x", Unbounded((N,))) and o, a)), "observe lacks x"),
    "an observation without a spec": (observe(sees("map", lambda o, s: s.x.clone())), "observe gives map"),
    "an observation that is no dict": (observe(lambda o, s: o["observation"]), "observe gives Tensor"),
    "an observation beside the agents": (
        observe(lambda o, s: o["agents"], Couple),
        "observe (gives observation|lacks agents.observation)",
    ),
    "an error in advance": (advance(fail), r"Hostile.advance failed \(RuntimeError: the dog ate it; test_world"),
    "an error in observe": (observe(fail), "Hostile.observe failed"),
    "an error in spawn": (spawn(fail), "Hostile.spawn failed"),
    "an error in settings": (world(settings=fail), "Hostile.settings failed"),
    "tensors that cannot be added": (advance(lambda s: s._replace(x=s.x + torch.ones(3))), "Hostile.advance failed"),
    "nothing from advance": (advance(lambda s: None), "Hostile.advance is nothing"),
    "another record from advance": (advance(lambda s: Rich(*s, s.x)), "advance adds more"),
    "one world from advance": (advance(lambda s: s._replace(x=s.x[:1])), "last axis"),
    "another shape from advance": (advance(lambda s: s._replace(x=s.x.expand(2, -1))), "advance.x has shape"),
    "another type from advance": (advance(lambda s: s._replace(step=s.step.long())), "advance.step is int64"),
    "infinity from advance": (advance(lambda s: s._replace(x=s.x / 0)), "observation holds NaN or infinity"),
    "worlds first in the state": (spawn(lambda s: s._replace(x=torch.zeros(N, 3))), "the last axis counts worlds"),
    "a dict as state": (spawn(lambda s: s._asdict()), "spawn is dict"),
    "a number in the state": (spawn(lambda s: s._replace(step=0)), "spawn.step is int"),
    "no spawn": (world(spawn=World.spawn), "has no spawn"),
    "specs of one world": (
        specs(lambda o, a: (Composite(observation=Bounded(0, 1, (2,)), shape=()), a)),
        "let it begin with",
    ),
    "an action for one world": (specs(lambda o, a: (o, Categorical(2, shape=()))), "spec of action"),
    "one action for two agents": (specs(lambda o, a: (o, Categorical(2, shape=(N,))), Couple), "num_agents"),
    "agents without specs": (specs(lambda o, a: (Walk.specs(Walk())[0], a), Couple), "no specs under 'agents'"),
    "no Composite": (specs(lambda o, a: (o["observation"], a)), "give a Composite"),
    "nothing but whole numbers to see": (
        world(
            specs=lambda self: (Composite(observation=Categorical(9, shape=(N,)), shape=(N,)), Walk.specs(self)[1]),
            observe=lambda self, state: {"observation": state.x.long()},
        ),
        "no float observation",
    ),
    "worlds that were never built": (world(prepare=lambda self: None), "_build"),
}


@pytest.mark.parametrize(("make", "words"), HOSTILE.values(), ids=HOSTILE)
def test_a_breach_of_the_contract_is_one_sentence_that_names_it(make, words):
    with pytest.raises(ValueError, match=words) as found:
        check_world(make())
    sentence = str(found.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    assert ": " in sentence


class Plain(EnvBase):
    """A world that is not ours: a counter in plain TorchRL."""

    def __init__(self, reward=None, shown=None, **done):
        super().__init__(batch_size=[N])
        self.observation_spec = shown or Composite(observation=Unbounded((N, 1)), shape=(N,))
        self.action_spec = Categorical(2, shape=(N,))
        self.reward_spec = reward or Unbounded((N, 1))
        flags = {key: Categorical(2, shape=(N, 1), dtype=torch.bool) for key in ("done", "terminated", "truncated")}
        self.full_done_spec = Composite({**flags, **done}, shape=(N,))

    def _reset(self, tensordict=None, **kwargs):
        return self.observation_spec.zero().update(self.full_done_spec.zero())

    def _step(self, tensordict):
        zeros = [self.observation_spec.zero(), self.full_reward_spec.zero(), self.full_done_spec.zero()]
        return zeros[0].update(zeros[1]).update(zeros[2])

    def _set_seed(self, seed):
        pass


def plain(**functions):
    return type("Foreign", (Plain,), functions)


def with_statistics(*names):
    episode = Composite(**{name: Unbounded((N, 1)) for name in names}, shape=(N,))
    return Composite(observation=Unbounded((N, 1)), episode=episode, shape=(N,))


def answer(**entries):
    return lambda self, tensordict=None, **kwargs: Plain._step(self, tensordict).update(entries)


FOREIGN = {
    "whole numbers as reward": (lambda: Plain(reward=Unbounded((N, 1), dtype=torch.int64)), "reward of Plain"),
    "statistics without length": (lambda: Plain(shown=with_statistics("return")), "lack 'length'"),
    "statistics without return": (lambda: Plain(shown=with_statistics("length")), "lack 'return'"),
    "another size than the spec": (plain(_step=answer(observation=torch.zeros(N, 3))), "step of Foreign: observation"),
    "another type than the spec": (plain(_step=answer(observation=torch.zeros(N, 1).double())), "float64"),
    "NaN at a reset": (plain(_reset=answer(observation=torch.full((N, 1), torch.nan))), "reset of Foreign.*NaN"),
    "NaN in a step": (plain(_step=answer(reward=torch.full((N, 1), torch.nan))), "step of Foreign: reward holds NaN"),
    "an error in a step": (plain(_step=fail), "step of Foreign failed .RuntimeError"),
    "an error in a reset": (plain(_reset=fail), "reset of Foreign failed"),
    "pictures of whole numbers only": (
        lambda: Plain(shown=Composite(observation=Binary(3, shape=(N, 3)), shape=(N,))),
        "no float observation",
    ),
    "a function": (lambda: fail, "no batched TorchRL environment"),
}


@pytest.mark.parametrize(("make", "words"), FOREIGN.values(), ids=FOREIGN)
def test_worlds_that_are_not_ours_are_held_to_what_the_learner_needs(make, words):
    with pytest.raises(ValueError, match=words) as found:
        check_world(make())
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("make", [*WORLDS.values(), Walk, Couple, Plain])
def test_right_worlds_pass(make):
    check_world(make())


def test_worlds_in_transforms_pass_and_their_breaches_are_found():
    check_world(TransformedEnv(Plain(), RewardSum()))
    hostile, words = HOSTILE["no truncated"]
    with pytest.raises(ValueError, match=words):
        check_world(TransformedEnv(hostile(), StepCounter()))


def test_memory_that_the_state_keeps_is_found():
    shared = world(
        specs=lambda self: (Composite(observation=Unbounded((N, 1)), shape=(N,)), Walk.specs(self)[1]),
        observe=lambda self, state: {"observation": state.x.unsqueeze(-1)},
    )
    with pytest.raises(ValueError, match="shares its memory with the state"):
        check_world(shared())


def test_the_check_leaves_the_global_random_state_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    check_world(Walk())
    assert torch.equal(before, torch.get_rng_state())


def test_training_checks_its_world_and_begins_the_same_game_as_without():
    experiment = Experiment.load("smoke", "device=cpu", "acceleration.step=false")
    assert (experiment.make_learner().collector.root == experiment.make_world().reset()).all()


def test_training_refuses_a_world_before_it_plays(monkeypatch):
    experiment = Experiment.load("smoke", "device=cpu")
    monkeypatch.setattr(assembly, "make_world", lambda *_, **__: Plain(shown=with_statistics("return")))
    with pytest.raises(ValueError, match="'length'"):
        experiment.make_learner()


def test_an_error_in_the_middle_of_a_game_names_function_file_and_line():
    class Late(Walk):
        def advance(self, state, action, chance):
            if bool((state.step > 1).any()):
                raise KeyError("sword")
            return super().advance(state, action, chance)

    late = Late()
    root = late.reset()
    with pytest.raises(ValueError, match=r"Late.advance failed \(KeyError: 'sword'; test_world_check.py, line \d+\)"):
        for _ in range(9):
            _, root = late.step_and_maybe_reset(late.rand_action(root))


@pytest.mark.slow
def test_what_cannot_be_compiled_is_said_with_its_place():
    class Branching(Walk):
        def advance(self, state, action, chance):
            if bool((state.x > 1).any()):
                return super().advance(state, action, chance)
            return super().advance(state, 1 - action, chance)

    branching = Branching()
    branching.compile()
    with pytest.raises(ValueError, match=r"Branching cannot be compiled .*in advance") as found:
        branching.step(branching.rand_action(branching.reset()))
    assert "\n" not in str(found.value)


@pytest.mark.slow
def test_a_compiled_game_that_fails_says_so_like_an_eager_one():
    hostile, words = HOSTILE["tensors that cannot be added"]
    broken = hostile()
    broken.compile()
    with pytest.raises(ValueError, match=words):
        broken.step(broken.rand_action(broken.reset()))


class Pushed(Cabinet):
    """A world that shows what it is pushed with."""

    def __init__(self, low, high, dtype):
        ends = [torch.full((2, 1), bound, dtype=dtype) for bound in (low, high)]
        super().__init__({"observation": Unbounded((2, 1))}, Bounded(*ends, (2, 1), dtype=dtype), num_envs=2)
        self.pushes = []

    def _step(self, tensordict):
        action = tensordict["action"]
        self.pushes.append(action)
        flags = {name: torch.zeros(2, 1, dtype=torch.bool) for name in ("done", "terminated")}
        return TensorDict({"observation": action.float(), "reward": action.float(), **flags}, [2])


INF, GREATEST = float("inf"), torch.finfo(torch.float32).max


@pytest.mark.parametrize("low", [-INF, -GREATEST, -1.0, 0.5])
@pytest.mark.parametrize("high", [0.5, 7.0, GREATEST, INF])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_check_pushes_with_finite_actions_within_the_bounds(low, high, dtype):
    env = Pushed(low, high, dtype)
    check_world(env)
    pushes = torch.stack(env.pushes)
    assert pushes.isfinite().all() and (pushes >= low).all() and (pushes <= high).all()
    assert pushes.dtype == dtype
    if low < high and GREATEST not in (-low, high):
        assert pushes.unique().numel() > 1
