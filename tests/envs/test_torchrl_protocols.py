"""What TorchRL does with any environment: it saves, loads, copies it into processes and prints it."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from tensordict.nn import TensorDictModule
from torchrl.collectors import AsyncBatchedCollector, Collector, MultiSyncCollector
from torchrl.envs import EnvCreator, GymEnv, ParallelEnv, RewardSum, SerialEnv, StepCounter, TransformedEnv

from envs import ArenaEnv, BranchlessTransformedEnv, DuelEnv, GrowthEnv, TownEnv
from envs.libs.gymnasium import VectorGymEnv
from envs.toolkit.records import named_tensors

SMALL_HOSTS = partial(GrowthEnv, rules={"width": 4, "updates": 1, "batch_size": 4, "validation_rows": 8})
GAMES = {"arena": ArenaEnv, "duel": DuelEnv, "growth": SMALL_HOSTS, "town": TownEnv}
GAMES["ladder"] = partial(ArenaEnv, curriculum="ladder")
WRAPPERS = {
    "bare": lambda env: env,
    "transformed": lambda env: TransformedEnv(env, RewardSum()),
    "branchless": lambda env: BranchlessTransformedEnv(env, StepCounter()),
}
every_game = pytest.mark.parametrize("make", GAMES.values(), ids=GAMES.keys())
every_wrapper = pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS.keys())


def tensors(env):
    """Copies of all tensors of a world."""
    return {name: value.clone() for name, value in named_tensors(env._snapshot)}


def equal(left, right):
    return left.keys() == right.keys() and all(torch.equal(value, right[name]) for name, value in left.items())


@every_game
@every_wrapper
def test_a_collectors_checkpoint_continues_in_a_fresh_collector(make, wrap):
    policy = make(4).players()["random"]
    collectors = [Collector(wrap(make(4)), policy, frames_per_batch=16, total_frames=64) for _ in range(2)]
    next(iter(collectors[0]))
    saved = copy.deepcopy(collectors[0].state_dict())
    collectors[1].load_state_dict(saved)
    assert collectors[1]._frames == 16
    assert next(iter(collectors[1])).shape == (4, 4)
    for collector in collectors:
        collector.shutdown()


@every_game
@every_wrapper
def test_worlds_from_an_env_creator_are_fresh(make, wrap):
    env = EnvCreator(lambda: wrap(make(4, seed=3)))()
    expected = make(4, seed=3)
    while isinstance(env, TransformedEnv):
        env = env.base_env
    assert equal(tensors(env), tensors(expected))


@every_game
def test_a_batch_of_environments_saves_and_loads_its_worlds(make):
    batch = SerialEnv(2, [partial(make, 4, seed=1), partial(make, 4, seed=2)])
    first = batch.rollout(3, break_when_any_done=False)
    saved = batch.state_dict()
    again = SerialEnv(2, lambda: make(4, seed=7))
    again.reset()
    again.load_state_dict(saved)
    assert first.shape == (2, 4, 3)
    for index, env in enumerate(again._envs):
        assert equal(tensors(env), tensors(batch._envs[index])), index
        assert not equal(tensors(env), tensors(make(4, seed=7)))


@every_game
def test_an_empty_state_changes_nothing(make):
    env = make(4, seed=1)
    env.rollout(3, break_when_any_done=False)
    before = tensors(env)
    env.load_state_dict({})
    assert equal(before, tensors(env))


@every_game
def test_a_state_that_need_not_be_strict_gives_what_fits(make):
    env, other = make(4, seed=1), make(4, seed=2)
    saved = other.state_dict()
    named = {"chance.clock": saved["chance.clock"] + 5, "state.wings": torch.zeros(4)}
    before = tensors(env)
    env.load_state_dict(named, strict=False)
    assert equal(tensors(env), {**before, "chance.clock": named["chance.clock"]})
    with pytest.raises(ValueError, match=r"lack .*, \.\.\. and hold state\.wings"):
        env.load_state_dict({name: value for name, value in saved.items() if name == "curriculum"} | named)
    with pytest.raises(ValueError, match="num_envs"):
        env.load_state_dict(make(3).state_dict(), strict=False)


@every_game
def test_a_state_that_is_refused_changes_nothing(make):
    env, saved = make(4, seed=1), make(4, seed=2).state_dict()
    last = [name for name, value in saved.items() if isinstance(value, torch.Tensor)][-1]
    before = tensors(env)
    for wrong in ({**saved, last: torch.zeros(3)}, {**saved, "state.wings": torch.zeros(4)}):
        with pytest.raises(ValueError, match="saved worlds"):
            env.load_state_dict(wrong)
        assert equal(before, tensors(env))


def test_another_game_is_named_by_what_differs():
    with pytest.raises(ValueError, match=r"saved worlds lack .*settings\.enemy_speed.* and hold .*settings\.worlds"):
        ArenaEnv(4).load_state_dict(DuelEnv(4).state_dict())


@pytest.mark.slow
def test_processes_play_worlds_that_a_function_makes():
    env = ParallelEnv(2, lambda: ArenaEnv(4, curriculum="ladder"))
    try:
        assert env.rollout(3, break_when_any_done=False).shape == (2, 4, 3)
        env.load_state_dict(env.state_dict())
        assert env.rollout(3, break_when_any_done=False).shape == (2, 4, 3)
    finally:
        env.close()


@pytest.mark.slow
@pytest.mark.parametrize("wrap", [WRAPPERS["bare"], WRAPPERS["branchless"]])
def test_collectors_in_processes_continue_from_their_checkpoint(wrap):
    makers = [lambda: wrap(ArenaEnv(4)), lambda: wrap(ArenaEnv(4, seed=1))]
    saved = None
    for _ in range(2):
        policy = ArenaEnv(4).players()["random"]
        collector = MultiSyncCollector(makers, policy, frames_per_batch=32, total_frames=64, cat_results=0)
        try:
            if saved is not None:
                collector.load_state_dict(saved)
            assert next(iter(collector)).numel() == 32
            saved = copy.deepcopy(collector.state_dict())
        finally:
            collector.shutdown()
    assert saved["frames"] == 64


@pytest.mark.parametrize(
    ("env", "printed"),
    [
        (ArenaEnv(64), "ArenaEnv(style=1, observation=classic, num_envs=64, device=cpu)"),
        (TownEnv(2, level="L6"), "TownEnv(level=L6, num_agents=4, num_envs=2, device=cpu)"),
        (GrowthEnv(2), "GrowthEnv(task=order, slots=3, num_envs=2, device=cpu)"),
        (DuelEnv(2, opponent="idle"), "DuelEnv(opponent=idle, num_envs=2, device=cpu)"),
        (
            VectorGymEnv("CartPole-v1", 3, device="cpu"),
            "VectorGymEnv(env=CartPole-v1, batch_size=torch.Size([3]), device=cpu)",
        ),
    ],
)
def test_what_is_printed_says_which_game_how_many_and_where(env, printed):
    assert repr(env) == printed
    assert printed in repr(TransformedEnv(env, RewardSum()))


def test_torchrls_gym_env_makes_one_world_without_a_batch():
    env = GymEnv("envs:TorchRLAgent/Arena-v0", style=2)
    assert env.batch_size == torch.Size([])
    assert env.rollout(3)["observation"].shape == (3, 32)
    env.close()


@pytest.mark.slow
def test_a_collector_that_batches_by_itself_takes_worlds_without_a_batch():
    policy = TensorDictModule(lambda seen: torch.zeros(seen.shape[:-1], dtype=torch.int64), ["observation"], ["action"])
    makers = [partial(GymEnv, "envs:TorchRLAgent/Arena-v0", categorical_action_encoding=True)] * 2
    collector = AsyncBatchedCollector(makers, policy=policy, frames_per_batch=8, total_frames=16)
    try:
        assert [batch.shape for batch in collector] == [(8,), (8,)]
    finally:
        collector.shutdown()
