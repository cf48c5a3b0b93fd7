"""The Stable-Baselines3 view of a world: as its own vector environments behave, and good to train on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from envs import ArenaEnv, TownEnv
from envs.adapters.gymnasium_single import GymnasiumEnv
from envs.arena import Rules

pytest.importorskip("stable_baselines3")

from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecCheckNan, VecNormalize

from envs.adapters.sb3 import StableBaselinesVecEnv


def make_world(num_envs=4, **arguments):
    return ArenaEnv(num_envs, **{"seed": 5, "rules": Rules(max_steps=60), **arguments})


@pytest.fixture
def worlds():
    return StableBaselinesVecEnv(make_world(desynchronize=True))


def play(worlds, steps):
    """Results of ``steps`` steps with actions that are the same every time."""
    chance = np.random.default_rng(0)
    return [worlds.step(chance.integers(worlds.action_space.n, size=worlds.num_envs)) for _ in range(steps)]


def test_a_seed_decides_the_games_and_types_are_stable_baselines(worlds):
    worlds.seed(9)
    observation = worlds.reset()
    twin = make_world(desynchronize=True)
    twin.set_seed(9)
    torch.testing.assert_close(torch.as_tensor(observation), twin.reset()["observation"], rtol=0, atol=0)
    first = play(worlds, 5)
    worlds.seed(9)
    worlds.reset()
    again = play(worlds, 5)
    for before, after in zip(first, again, strict=True):
        assert np.array_equal(before[0], after[0]) and np.array_equal(before[1], after[1])
    observation, reward, done, infos = again[-1]
    assert observation.shape == (4, 32) and observation.dtype == np.float32
    assert reward.shape == (4,) and reward.dtype == np.float32
    assert done.shape == (4,) and done.dtype == bool
    assert len(infos) == 4
    unseeded = worlds.reset()
    worlds.seed(9)
    assert not np.array_equal(unseeded, worlds.reset())


def test_ended_worlds_report_their_last_observation_and_their_episode(worlds):
    worlds.seed(9)
    worlds.reset()
    ended = 0
    for observation, _, done, infos in play(worlds, 200):
        assert [bool(info) for info in infos] == done.tolist()
        for row in done.nonzero()[0]:
            episode = infos[row]["episode"]
            assert episode["r"] == episode["return"] and episode["l"] == episode["length"] > 0
            assert all(type(value) is float for value in episode.values())
            assert "spawners_destroyed" in episode and "episode" not in episode
            assert (infos[row]["terminal_observation"] != observation[row]).any()
            ended += 1
    assert ended >= 8


def test_an_episode_is_what_stable_baselines_own_vector_and_monitor_say():
    ours = StableBaselinesVecEnv(make_world(1))
    theirs = DummyVecEnv([lambda: Monitor(GymnasiumEnv(make_world(1)))])
    assert ours.observation_space == theirs.observation_space and ours.action_space == theirs.action_space
    for worlds in (ours, theirs):
        worlds.seed(3)
    assert np.array_equal(ours.reset(), theirs.reset())
    for mine, other in zip(play(ours, 60), play(theirs, 60), strict=True):
        assert np.array_equal(mine[1], other[1]) and np.array_equal(mine[2], other[2])
        if mine[2][0]:
            break
        assert np.array_equal(mine[0], other[0])
    mine_info, other_info = mine[3][0], other[3][0]
    assert mine_info["TimeLimit.truncated"] is other_info["TimeLimit.truncated"] is True
    assert np.array_equal(mine_info["terminal_observation"], other_info["terminal_observation"])
    assert mine_info["episode"]["l"] == other_info["episode"]["l"] == 60
    assert mine_info["episode"]["r"] == pytest.approx(other_info["episode"]["r"], abs=1e-4)


def test_an_ending_by_the_game_is_no_truncation():
    worlds = StableBaselinesVecEnv(make_world(rules=Rules(max_steps=3000, ship_health=10.0)))
    worlds.reset()
    for _ in range(3000):
        _, _, done, infos = worlds.step(np.zeros(4, dtype=np.int64))
        if done.any():
            break
    row = int(done.argmax())
    assert infos[row]["episode"]["l"] < 3000
    assert infos[row]["TimeLimit.truncated"] is False


def test_options_attributes_methods_and_pictures(worlds):
    assert worlds.get_attr("num_envs") == [4] * 4 and worlds.get_attr("num_envs", [0, 2]) == [4] * 2
    assert not worlds.has_attr("nothing")
    worlds.set_attr("mark", 7)
    assert worlds.get_attr("mark", 1) == [7]
    assert worlds.env_is_wrapped(Monitor) == [True] * 4 and worlds.env_is_wrapped(VecNormalize) == [False] * 4
    worlds.reset()
    pictures = worlds.get_images()
    assert len(pictures) == 4 and pictures[0].dtype == np.uint8
    assert len(worlds.env_method("render")) == 4
    worlds.set_options({"difficulty": 1})
    with pytest.raises(ValueError, match="difficulty"):
        worlds.reset()
    worlds.close()
    assert worlds.world.is_closed


def test_worlds_of_several_agents_are_refused():
    with pytest.raises(ValueError, match="agents"):
        StableBaselinesVecEnv(TownEnv(2, level="L6"))


def test_stable_baselines_checker_accepts_one_world():
    check_env(GymnasiumEnv(make_world(1)), warn=True)


def test_its_wrappers_and_its_evaluation_work(worlds, recwarn):
    wrapped = VecCheckNan(VecNormalize(worlds), raise_exception=True)
    wrapped.reset()
    raw, normalized = worlds.step(np.zeros(4, dtype=np.int64)), wrapped.step(np.zeros(4, dtype=np.int64))
    assert raw[0].shape == normalized[0].shape
    model = PPO("MlpPolicy", worlds, n_steps=8, batch_size=32, device="cpu")
    returns, lengths = evaluate_policy(model, worlds, 4, return_episode_rewards=True)
    assert len(returns) == 4 and max(lengths) <= 60
    assert not [warning for warning in recwarn if "Monitor" in str(warning.message)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "policy"),
    [
        (lambda: make_world(8), "MlpPolicy"),
        (lambda: make_world(8, observation="dict"), "MultiInputPolicy"),
        (lambda: TownEnv(8, level="L3"), "MlpPolicy"),
    ],
    ids=["arena", "arena-dict", "town"],
)
def test_stable_baselines_trains_on_it(world, policy):
    worlds = StableBaselinesVecEnv(world())
    model = PPO(policy, worlds, n_steps=64, batch_size=128, n_epochs=2, device="cpu", seed=1)
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    model.learn(8 * 64 * 4)
    assert model.num_timesteps == 8 * 64 * 4
    after = model.policy.state_dict()
    assert any(not torch.equal(value, after[name]) for name, value in before.items())
    assert all(value.isfinite().all() for value in after.values())
    assert len(model.ep_info_buffer) > 0


def test_masks_are_where_sb3_contrib_reads_them():
    worlds, twin = StableBaselinesVecEnv(TownEnv(3, level="L3", seed=2)), TownEnv(3, level="L3", seed=2)
    assert worlds.has_attr("action_masks") and not StableBaselinesVecEnv(make_world()).has_attr("action_masks")
    worlds.seed(2)
    worlds.reset()
    root = twin.reset()
    masks = []
    for step in range(20):
        found = np.stack(worlds.env_method("action_masks"))
        assert np.array_equal(found, root["agents", "action_mask"][:, 0].numpy())
        masks.append(found)
        action = found.argmax(1) if step % 2 else found.shape[1] - 1 - found[:, ::-1].argmax(1)  # first or last legal
        root["agents", "action"] = torch.as_tensor(action).reshape(root["agents", "alive"].shape)
        worlds.step(action)
        _, root = twin.step_and_maybe_reset(root)
    assert len(np.unique(np.concatenate(masks), axis=0)) > 1
    assert np.array_equal(worlds.env_method("action_masks", indices=[1])[0], worlds.get_attr("action_masks")[1])


def test_contribs_ppo_with_masks_takes_legal_actions_only():
    contrib = pytest.importorskip("sb3_contrib")
    worlds = StableBaselinesVecEnv(TownEnv(4, level="L3", seed=2))
    model = contrib.MaskablePPO("MlpPolicy", worlds, n_steps=16, batch_size=16, device="cpu", seed=0)
    model.learn(64)
    masks = model.rollout_buffer.action_masks.reshape(64, -1).astype(bool)
    assert masks[np.arange(64), model.rollout_buffer.actions.reshape(64).astype(int)].all() and not masks.all()


def test_its_convolutions_take_the_pixels():
    worlds = StableBaselinesVecEnv(make_world(2, observation="pixels"))
    model = PPO("CnnPolicy", worlds, n_steps=4, batch_size=8, n_epochs=1, device="cpu")
    model.learn(8)
    action, _ = model.predict(worlds.reset(), deterministic=True)
    assert action.shape == (2,)
