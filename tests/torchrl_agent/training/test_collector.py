"""What lands in the rollout buffers is what was played."""

import copy
import time

import pytest
import torch
from tensordict import TensorDict
from torchrl.data import Bounded, Categorical, Composite, Unbounded
from torchrl.envs import EnvBase, FrameSkipTransform, check_env_specs
from torchrl.envs.utils import ExplorationType, set_exploration_type

from envs import ArenaEnv, BranchlessTransformedEnv
from torchrl_agent.experiment import Experiment
from torchrl_agent.experiment.build import instantiate_world
from torchrl_agent.models.agent import Agent, ModelConfig
from torchrl_agent.modules.manager import ManagerConfig
from torchrl_agent.modules.perception import PerceptionConfig
from torchrl_agent.optimization.compilation import AccelerationConfig
from torchrl_agent.training.collector import (
    RolloutCollector,
    agent_rows,
    episode_entries,
    truncation_limit,
)
from torchrl_agent.training.collector import play as play_steps

EAGER = AccelerationConfig(step=False, advantages=False, update=False, cudagraphs=False)


class Counting(EnvBase):
    """World i counts its steps, gives reward 1 per step and terminates after i + 2 of them; nothing is traced."""

    def __init__(self, num_envs):
        super().__init__(batch_size=[num_envs], device="cpu")
        statistics = {name: Unbounded((num_envs, 1)) for name in ("return", "length")}
        self.observation_spec = Composite(
            observation=Unbounded((num_envs, 1)), episode=Composite(**statistics, shape=(num_envs,)), shape=(num_envs,)
        )
        self.action_spec = Categorical(2, shape=(num_envs,))
        self.reward_spec = Unbounded((num_envs, 1))
        self.count = torch.zeros(num_envs, 1)
        self.last = torch.arange(num_envs).unsqueeze(-1) + 2.0

    def _report(self):
        statistics = TensorDict({"return": self.count.clone(), "length": self.count.clone()}, self.batch_size)
        return TensorDict({"observation": self.count.clone(), "episode": statistics}, self.batch_size)

    def _reset(self, tensordict=None):
        rows = torch.ones_like(self.count, dtype=torch.bool) if tensordict is None else tensordict.get("_reset", None)
        self.count = torch.where(torch.ones_like(self.count, dtype=torch.bool) if rows is None else rows, 0, self.count)
        return self._report()

    def _step(self, tensordict):
        self.count = self.count + 1
        done = self.count >= self.last
        return self._report().update({"reward": torch.ones_like(self.count), "done": done, "terminated": done.clone()})

    def _set_seed(self, seed):
        pass


def test_long_rollouts_are_made_at_once():
    env = Counting(1)
    collector = RolloutCollector(env, Agent(env, ModelConfig([1])), 1_000_000, EAGER)
    collector._step = StopAfterOne(collector._step)
    begin = time.process_time()
    with pytest.raises(StopIteration):
        collector.collect()
    assert time.process_time() - begin < 5
    assert {value.shape[0] for value in collector._buffers.values(True, True)} == {1_000_000}


class StopAfterOne:
    """Play a single step."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, *arguments):
        self.calls += 1
        if self.calls > 1:
            raise StopIteration
        return self.function(*arguments)


def test_the_buffers_hold_what_stepping_by_hand_gives():
    collector_env, env = (ArenaEnv(5, seed=4, desynchronize=True) for _ in range(2))
    torch.manual_seed(1)
    agent = Agent(env, ModelConfig([16]))
    torch.manual_seed(2)
    collector = RolloutCollector(collector_env, agent, 7, EAGER)
    played = [collector.collect().clone() for _ in range(2)]
    torch.manual_seed(2)
    root = env.reset()
    for rollout in played:  # the second rollout goes on where the first one ended
        assert rollout.shape == (7, 5)
        for step in range(7):
            with torch.no_grad():
                root = agent.actor(root)
            before, after = root["observation"].clone(), env.step(root)["next"]
            assert torch.equal(rollout["observation"][step], before)
            assert torch.equal(rollout["action"][step], root["action"])
            assert torch.equal(rollout["action_log_prob"][step], root["action_log_prob"])
            for key in ("observation", "reward", "done", "terminated", ("episode", "return"), ("episode", "length")):
                assert torch.equal(rollout["next"][key][step], after[key]), key
            root = env.maybe_reset(after.exclude("reward"))
    assert played[0]["action"].unique().numel() > 1


def test_the_rows_of_the_buffers_do_not_share_memory_with_the_world():
    torch.manual_seed(0)
    env = ArenaEnv(4)
    collector = RolloutCollector(env, Agent(env, ModelConfig([8])), 6, EAGER)
    rollout = collector.collect()
    rows = rollout["next", "observation"]
    assert all(not torch.equal(rows[step], rows[step + 1]) for step in range(5))
    kept = rows.clone()
    env.rollout(3)
    assert torch.equal(rollout["next", "observation"], kept)


def test_next_holds_the_true_last_observation_and_the_next_frame_the_first_of_a_new_episode():
    env = Counting(2)
    collector = RolloutCollector(env, Agent(env, ModelConfig([8])), 6, EAGER)
    rollout = collector.collect()
    # world 0 ends every 2 steps, world 1 every 3
    assert rollout["observation"].squeeze(-1).T.tolist() == [[0, 1, 0, 1, 0, 1], [0, 1, 2, 0, 1, 2]]
    assert rollout["next", "observation"].squeeze(-1).T.tolist() == [[1, 2, 1, 2, 1, 2], [1, 2, 3, 1, 2, 3]]
    done = [[False, True] * 3, [False, False, True] * 2]
    assert rollout["next", "done"].squeeze(-1).T.tolist() == done
    assert rollout["next", "terminated"].squeeze(-1).T.tolist() == done


def test_finished_episodes_by_hand_in_the_order_of_time():
    env = Counting(2)
    collector = RolloutCollector(env, Agent(env, ModelConfig([8])), 5, EAGER)
    assert collector.statistics == {"return": ("episode", "return"), "length": ("episode", "length")}
    first = collector.finished(collector.collect())
    # steps 1 to 5: world 0 ends at 2 and 4, world 1 at 3
    assert first["return"].tolist() == [2.0, 3.0, 2.0]
    assert first["length"].tolist() == [2.0, 3.0, 2.0]
    second = collector.finished(collector.collect())
    # steps 6 to 10: both end at 6, world 0 at 8 and 10, world 1 at 9
    assert second["return"].tolist() == [2.0, 3.0, 2.0, 3.0, 2.0]


def test_episodes_that_were_cut_off_are_finished_too():
    flags = torch.tensor([[False, True], [True, False]]).unsqueeze(-1)
    returns = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).unsqueeze(-1)
    following = TensorDict({"done": flags, "terminated": torch.zeros_like(flags), "episode_reward": returns}, [2, 2])
    env = Counting(2)
    collector = RolloutCollector(env, Agent(env, ModelConfig([8])), 2, EAGER)
    collector.statistics = {"return": "episode_reward"}
    found = collector.finished(TensorDict({"next": following}, [2, 2]))
    assert found["return"].tolist() == [2.0, 3.0]


def test_agents_become_rows_world_after_world():
    value = torch.tensor([[[0.0, 1.0, 2.0], [10.0, 11.0, 12.0]]]).unsqueeze(-1)  # [T=1, N=2, A=3, 1]
    group = TensorDict({"observation": value}, [1, 2, 3])
    flags = torch.tensor([[False, True]]).unsqueeze(-1)
    following = TensorDict({"agents": group + 100, "done": flags, "terminated": flags}, [1, 2])
    rows = agent_rows(TensorDict({"agents": group, "next": following}, [1, 2]), "agents")
    assert rows["observation"].flatten().tolist() == [0, 1, 2, 10, 11, 12]
    assert rows["next", "observation"].flatten().tolist() == [100, 101, 102, 110, 111, 112]
    assert rows["next", "done"].flatten().tolist() == [False] * 3 + [True] * 3


def test_a_rollout_in_which_nothing_ends_has_no_finished_episodes():
    env = Counting(2)
    collector = RolloutCollector(env, Agent(env, ModelConfig([8])), 1, EAGER)
    finished = collector.finished(collector.collect())
    assert {name: value.tolist() for name, value in finished.items()} == {"return": [], "length": []}


def test_buffers_are_used_again_and_do_not_grow():
    env = ArenaEnv(3)
    collector = RolloutCollector(env, Agent(env, ModelConfig([8])), 4, EAGER)
    first = collector.collect()
    address, kept = first["observation"].data_ptr(), first["observation"].clone()
    second = collector.collect()
    assert second["observation"].data_ptr() == address
    assert not torch.equal(second["observation"], kept)


def test_the_arena_reports_its_statistics_under_episode():
    entries = episode_entries(ArenaEnv(1))
    assert entries["win"] == ("episode", "win")
    assert {"return", "length", "complete", "stage", "spawners_destroyed"} <= set(entries)


def make_cartpole(target, seed=0, **arguments):
    world = {"_target_": target, "env_name": "CartPole-v1", **arguments}
    return instantiate_world(world, torch.device("cpu"), seed)


@pytest.fixture
def cartpole():
    env = make_cartpole("envs.libs.gymnasium.VectorGymEnv", num_envs=3)
    yield env
    env.close()


def play(env, steps):
    torch.manual_seed(0)
    collector = RolloutCollector(env, Agent(env, ModelConfig([8])), steps, EAGER)
    return collector, collector.collect()


def test_torchrls_gymnasium_worlds_are_played_through_make_world():
    env = make_cartpole("torchrl.envs.GymEnv", num_envs=2, categorical_action_encoding=True)
    try:
        collector, rollout = play(env, 60)
        assert rollout.shape == (60, 2)
        assert collector.statistics == {"return": "episode_reward", "length": "step_count"}
        assert collector.agent.input_keys == ["observation"]
        assert rollout["action"].unique().tolist() == [0, 1]
        assert rollout["next", "done"].any()
    finally:
        env.close()


def test_gymnasium_worlds_give_true_last_observations_and_begin_anew(cartpole):
    _, rollout = play(cartpole, 60)
    done = rollout["next", "done"].squeeze(-1)
    last, fresh = rollout["next", "observation"][done], rollout["observation"][1:][done[:-1]]
    position, angle = last[:, 0].abs(), last[:, 2].abs()
    assert ((position > 2.4) | (angle > 0.2095)).all()  # where CartPole ends
    assert (fresh.abs() <= 0.05).all()  # where it begins
    going = ~done[:-1]
    assert torch.equal(rollout["next", "observation"][:-1][going], rollout["observation"][1:][going])


def test_gymnasium_episodes_are_as_long_as_their_return(cartpole):
    collector, rollout = play(cartpole, 60)
    finished = collector.finished(rollout)
    assert len(finished["return"]) > 2
    assert finished["length"].tolist() == finished["return"].tolist()  # CartPole gives reward 1 per step


def test_gymnasium_time_limits_are_truncations():
    env = make_cartpole("envs.libs.gymnasium.VectorGymEnv", num_envs=2, max_episode_steps=5)
    _, rollout = play(env, 11)
    done = rollout["next", "done"].squeeze(-1)
    assert done.T.tolist() == [[step in (4, 9) for step in range(11)]] * 2
    assert not rollout["next", "terminated"].any()
    assert (rollout["next", "observation"][done].abs().sum(-1) > 0).all()
    env.close()


def test_gymnasium_worlds_may_hide_numbers():
    env, whole = (
        make_cartpole("envs.libs.gymnasium.VectorGymEnv", num_envs=2, **more) for more in ({"shown": [0, 2]}, {})
    )
    check_env_specs(env)
    for one in (env, whole):
        one.set_seed(3)
    root, other = env.reset(), whole.reset()
    for _ in range(3):
        assert torch.equal(root["observation"], other["observation"][:, [0, 2]])
        action = torch.tensor([0, 1])
        root, other = (one.step(now.set("action", action))["next"] for one, now in ((env, root), (whole, other)))
    with pytest.raises(ValueError, match="shown"):
        make_cartpole("envs.libs.gymnasium.VectorGymEnv", num_envs=2, shown=[4])
    env.close(), whole.close()


def test_gymnasium_worlds_of_whole_numbers_show_one_hot_codes():
    world = {"_target_": "envs.libs.gymnasium.VectorGymEnv", "env_name": "Blackjack-v1", "num_envs": 2}
    # a sum of 32, a card of 11, and whether an ace may count 11
    env = instantiate_world(world, torch.device("cpu"), seed=0)
    check_env_specs(env)
    root = env.reset()
    for number, size in enumerate((32, 11, 2)):
        part = root[f"observation_{number}"]
        assert part.shape == (2, size) and part.sum(-1).tolist() == [1.0, 1.0]
    env.close()


def test_gymnasium_worlds_are_seeded():
    make = "envs.libs.gymnasium.VectorGymEnv"
    first, second, other = (play(make_cartpole(make, seed, num_envs=2), 30)[1] for seed in (3, 3, 4))
    assert torch.equal(first["observation"], second["observation"])
    assert not torch.equal(first["observation"], other["observation"])


# --- pictures that are kept once --------------------------------------------------------------------------------------

PICTURES = [
    "policy=cnn",
    "world={observation: pixels, num_envs: 6}",
    "algorithm.rollout_steps=8",
    "tuned.ppo.minibatch_size=48",
]
SHORT = [
    "algorithm.rollout_steps=8",
    "tuned.ppo.minibatch_size=48",
    "world.desynchronize=true",
    "model.perception.embedding_size=16",
    "device=cpu",
]
UNCOMPILED = [
    "acceleration={step: false, advantages: false, update: false, cudagraphs: false}",
    "seed=3",
    "model.perception.channels=2",
]


def picture_learner(replays, *overrides, max_steps=8):
    """A learner of pictures in short episodes; with ``replays`` its collector keeps everything twice."""
    rules = f"world.rules={{max_steps: {max_steps}}}"
    learner = Experiment.load("smoke", *PICTURES, *SHORT, *UNCOMPILED, rules, *overrides).make_learner()
    if replays:
        old, algorithm = learner.collector, learner.algorithm
        learner.env.set_seed(3)
        autocast = algorithm.updater.autocast
        learner.collector = RolloutCollector(old.env, old.agent, old.steps, EAGER, autocast, replays=True, values=True)
    return learner


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_a_picture_is_kept_once_and_teaches_the_same(memory):
    results = []
    for replays in (False, True):
        learner = picture_learner(replays, f"model.memory={memory}", "model.perception.enabled=true")
        torch.manual_seed(5)
        rollouts = []
        for _ in range(3):
            rollout = learner.collector.collect()
            data, _ = learner.algorithm.advantages(rollout)
            rollouts.append((rollout.clone(), data.clone()))
        results.append(rollouts)
    truncations = 0
    for (once, learned), (twice, expected) in zip(*results, strict=True):
        truncated = (once["next", "done"] & ~once["next", "terminated"]).squeeze(-1)
        truncations += int(truncated.sum())
        going = ~once["next", "done"].squeeze(-1)
        assert torch.equal(once["pixels"], twice["pixels"])
        assert torch.equal(once["next", "pixels"][going], twice["next", "pixels"][going])
        assert torch.equal(once["next", "final", "pixels"][truncated], twice["next", "pixels"][truncated])
        torch.testing.assert_close(learned["advantage"], expected["advantage"], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(learned["value_target"], expected["value_target"], atol=1e-5, rtol=1e-5)
    assert truncations >= 12, "every world, more than once"


class Timed(ArenaEnv):
    """Shows the share of time that is left as a meter, beside the picture."""

    def _observation_spec(self):
        specs = super()._observation_spec()
        specs["meters"] = Bounded(0.0, 1.0, (self.num_envs, 1), device=self.device)
        return specs

    def observe(self, state):
        left = 1.0 - state.progress.step / self.rules.max_steps
        return {**super().observe(state), "meters": left.unsqueeze(-1)}


def test_beside_pictures_meters_are_kept_as_an_episode_left_them():
    """What the controller is paid for a step that ends an episode must not be what the next one begins with."""
    rollouts = []
    for replays in (False, True):
        env = Timed(4, observation="pixels", rules={"max_steps": 8})
        torch.manual_seed(1)
        goals = {"early": {"left": 1.0}, "late": {"left": 0.5}}
        manager = ManagerConfig(enabled=True, meter_names=["left"], goals=goals, intrinsic_coeff=1.0)
        agent = Agent(env, ModelConfig([8], memory="gru", manager=manager))
        rollout = RolloutCollector(agent.attach(env), agent, 8, EAGER, replays=replays).collect()
        assert rollout["next", "done"].any()
        rollouts.append((rollout["next", "meters"], agent.manager.intrinsic_reward(rollout)))
        assert ("final" in rollout["next"].keys()) is not replays
    for once, twice in zip(*rollouts, strict=True):
        assert torch.equal(once, twice)


class Mortal(ArenaEnv):
    """Every game is lost in its second step, except those that are midway at first: these are truncated."""

    def outcome(self, state):
        reward, terminated, truncated = super().outcome(state)
        lost = state.progress.step == 2
        return reward, terminated | lost, truncated & ~lost


def test_what_a_truncated_episode_showed_last_outlasts_the_next_ones_end():
    rollouts = []
    for replays in (False, True):
        env = Mortal(16, observation="pixels", rules={"max_steps": 8}, desynchronize=True)
        torch.manual_seed(1)
        agent = Agent(env, ModelConfig([8], perception=PerceptionConfig(enabled=True, embedding_size=8, channels=2)))
        rollouts.append(RolloutCollector(env, agent, 8, EAGER, replays=replays).collect())
    once, twice = rollouts
    truncated = (once["next", "done"] & ~once["next", "terminated"]).squeeze(-1)
    lost_later = (once["next", "terminated"].squeeze(-1).flip(0).cumsum(0).flip(0) > 0) & truncated
    assert lost_later.sum() >= 3
    assert torch.equal(once["next", "final", "pixels"][truncated], twice["next", "pixels"][truncated])


def test_a_picture_that_is_kept_once_takes_half_the_memory():
    def storage(learner):
        values = learner.collector.collect().values(True, True)
        return sum({value.untyped_storage().data_ptr(): value.untyped_storage().nbytes() for value in values}.values())

    once, twice = (storage(picture_learner(replays)) for replays in (False, True))
    picture = 6 * 3 * 64 * 64
    assert twice - once == (8 - 2) * picture, "twice eight, or eight with the last root's and the truncated ones'"


@pytest.mark.parametrize("overrides", [["algorithm=dqn"], ["world.observation=classic", "policy=mlp"]])
def test_what_is_replayed_or_small_is_kept_with_what_followed(overrides):
    learner = picture_learner(False, *overrides)
    assert ("next", "final") not in learner.collector.collect().keys(True)


def test_a_rollout_longer_than_an_episode_keeps_all_pictures():
    learner = picture_learner(False, max_steps=7)
    rollout = learner.collector.collect()
    assert ("next", "final") not in rollout.keys(True)
    assert ("next", "pixels") in rollout.keys(True)


def test_a_transform_that_moves_ends_keeps_all_pictures():
    env = ArenaEnv(2, observation="pixels", rules={"max_steps": 8})
    assert truncation_limit(env) == 8
    assert truncation_limit(BranchlessTransformedEnv(env, FrameSkipTransform(2))) is None


@pytest.mark.parametrize(
    "overrides",
    [
        ["smoke", "world.rules={max_steps: 8}", "world.desynchronize=true"],
        ["smoke", "world.rules={max_steps: 8}", "world.desynchronize=true", "model.memory=gru"],
        ["town_agent", "world={level: L5, num_agents: 3, rules: {max_steps: 8}, observation: groups}"],
    ],
)
def test_fewer_last_values_are_the_same_advantages(overrides):
    config, *changes = overrides
    sizes = ["world.num_envs=16", "algorithm.rollout_steps=8", "algorithm.minibatch_size=64", "device=cpu"]
    learner = Experiment.load(config, *changes, *sizes, *UNCOMPILED[:1]).make_learner()
    algorithm, truncations = learner.algorithm, 0
    assert algorithm.truncates_once
    for _ in range(3):
        rows = agent_rows(learner.collector.collect(), learner.agent.group)
        truncations += int((rows["next", "done"] & ~rows["next", "terminated"]).sum())
        found, before = [], copy.deepcopy(algorithm.scaler.state_dict())
        for algorithm.truncates_once in (True, False):
            algorithm.scaler.load_state_dict(copy.deepcopy(before))
            found.append(algorithm.advantages(rows)[0].clone())
        algorithm.truncates_once = True
        for key in ("advantage", "value_target"):
            torch.testing.assert_close(found[0][key], found[1][key], atol=1e-6, rtol=1e-6)
    assert truncations >= 16


def test_rollouts_that_may_be_truncated_twice_are_reported():
    short = Experiment.load(
        "smoke", "world.rules={max_steps: 7}", "algorithm.rollout_steps=8", "device=cpu", *UNCOMPILED[:1]
    )
    assert not short.make_learner().algorithm.truncates_once
    pole = Experiment.load("cartpole", "device=cpu", *UNCOMPILED[:1])
    assert not pole.make_learner().algorithm.truncates_once


def test_play_yields_what_the_policy_did_and_what_followed_and_goes_on_after_ends():
    env, twin = (ArenaEnv(3, seed=2, rules={"max_steps": 4}) for _ in range(2))
    root, expected = twin.reset(), []
    for _ in range(6):
        played, root = twin.step_and_maybe_reset(root.set("action", twin.action_spec.zero()))
        expected.append(played)
    found = list(play_steps(env, lambda root: root.set("action", env.action_spec.zero()), env.reset(), 6))
    assert (torch.stack(found) == torch.stack(expected)).all()
    assert [step["next", "done"].all().item() for step in found] == [False] * 3 + [True] + [False] * 2


def test_actions_are_sampled_whatever_exploration_type_was_left_behind():
    def actions(left_behind):
        torch.manual_seed(0)
        env = ArenaEnv(8, seed=1)
        agent = Agent(env, ModelConfig([16]))
        collector = RolloutCollector(agent.attach(env), agent, 6, EAGER)
        with set_exploration_type(left_behind):
            return collector.collect()["action"].clone()

    sampled = actions(None)
    assert torch.equal(actions(ExplorationType.DETERMINISTIC), sampled)
    assert len(sampled.unique(dim=0)) > 1
