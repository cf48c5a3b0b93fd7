"""The Gymnasium view of a world."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import GrayscaleObservation
from gymnasium.wrappers.vector import DictInfoToList, FlattenObservation, NormalizeObservation, RecordEpisodeStatistics
from torchrl.data import Bounded

from envs import ArenaEnv, TownEnv
from envs.adapters.gymnasium_vector import GymnasiumVectorEnv
from envs.arena import Rules


def make_world(**arguments):
    return ArenaEnv(**{"num_envs": 8, "seed": 1, "rules": Rules(max_steps=40), "desynchronize": True, **arguments})


@pytest.fixture
def vector():
    return GymnasiumVectorEnv(make_world())


def test_it_is_a_vector_env_that_resets_in_the_same_step(vector):
    assert isinstance(vector, gymnasium.vector.VectorEnv)
    assert vector.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert vector.single_observation_space.shape == (32,)
    assert vector.observation_space.shape == (8, 32)
    assert vector.single_action_space.n == 5


def test_observations_lie_in_their_space_and_types_are_gymnasiums(vector):
    observation, infos = vector.reset(seed=3)
    assert infos == {}
    assert observation in vector.observation_space
    observation, reward, terminated, truncated, _ = vector.step(vector.action_space.sample())
    assert observation in vector.observation_space
    assert reward.dtype == np.float64
    assert terminated.dtype == truncated.dtype == bool


@pytest.mark.parametrize("seed", [7, np.int64(7), 0])
def test_a_seed_decides_observations_rewards_ends_and_infos(seed):
    # what gymnasium.utils.env_checker asks of single environments, asked of the batch
    games = []
    for start in (1, 2):
        vector = GymnasiumVectorEnv(make_world(seed=start))
        vector.action_space.seed(5)
        game = [vector.reset(seed=seed)]
        game += [vector.step(vector.action_space.sample()) for _ in range(45)]
        games.append(game)
        assert vector.np_random_seed == seed
    assert data_equivalence(*games, exact=True)


def test_a_reset_without_a_seed_goes_on_to_other_games(vector):
    first, _ = vector.reset(seed=7)
    second, _ = vector.reset()
    assert not np.array_equal(first, second)


def test_what_was_returned_is_never_written_again(vector):
    returned = [vector.reset(seed=3)[0]]
    copies = [returned[0].copy()]
    for _ in range(30):
        observation, reward, *_ = vector.step(np.ones(8, dtype=np.int64))
        returned += [observation, reward]
        copies += [observation.copy(), reward.copy()]
    assert all(np.array_equal(value, copy) for value, copy in zip(returned, copies, strict=True))


def test_writing_into_a_returned_observation_does_not_reach_the_game(vector):
    games = []
    for spoil in (False, True):
        observation, _ = vector.reset(seed=3)
        for _ in range(20):
            if spoil:
                observation[:] = 99.0
            observation, *_ = vector.step(np.ones(8, dtype=np.int64))
        games.append(observation.copy())
    assert np.array_equal(*games)


def test_the_last_observation_is_the_one_torchrl_sees_before_the_reset(vector):
    twin = make_world()
    observation, _ = vector.reset(seed=4)
    twin.set_seed(4)
    root = twin.reset()
    ends = 0
    for step in range(50):
        actions = np.full(8, step % 5)
        observation, reward, terminated, truncated, infos = vector.step(actions)
        played, root = twin.step_and_maybe_reset(root.set("action", torch.as_tensor(actions)))
        following = played["next"]
        assert np.array_equal(observation, root["observation"].numpy())
        assert np.array_equal(reward, following["reward"].squeeze(-1).numpy().astype(np.float64))
        assert np.array_equal(terminated, following["terminated"].squeeze(-1).numpy())
        assert np.array_equal(truncated, following["truncated"].squeeze(-1).numpy())
        done = terminated | truncated
        if done.any():
            assert np.array_equal(infos["final_obs"][done], following["observation"].numpy()[done])
            ends += done.sum()
    assert ends >= 8


def test_gymnasiums_own_statistics_agree_with_ours(vector):
    recorded = RecordEpisodeStatistics(vector)
    recorded.reset()
    compared = 0
    for _ in range(90):
        _, _, terminated, truncated, infos = recorded.step(np.zeros(8, dtype=np.int64))
        done = terminated | truncated
        if done.any():
            np.testing.assert_allclose(infos["episode"]["r"][done], infos["final_info"]["return"][done], rtol=1e-4)
            assert np.array_equal(infos["episode"]["l"][done], infos["final_info"]["length"][done])
            for name in ("r", "l"):
                ours = infos["final_info"]["episode"][name][done]
                np.testing.assert_allclose(infos["episode"][name][done], ours, rtol=1e-4)
            compared += 1
    assert compared
    assert recorded.episode_count == len(recorded.return_queue) >= 8


def test_infos_become_a_list_with_entries_only_where_worlds_ended(vector):
    listed = DictInfoToList(vector)
    listed.reset()
    ends = 0
    for _ in range(50):
        _, _, terminated, truncated, infos = listed.step(np.zeros(8, dtype=np.int64))
        for done, info in zip(terminated | truncated, infos, strict=True):
            assert bool(info) == done
            if done:
                assert info["final_obs"].shape == (32,)
                assert info["final_info"]["episode"]["r"] == info["final_info"]["return"]
                ends += 1
    assert ends


def test_several_last_observations_are_dicts_where_worlds_ended():
    vector = GymnasiumVectorEnv(make_world(observation="dict"))
    listed = DictInfoToList(GymnasiumVectorEnv(make_world(observation="dict")))
    assert data_equivalence(vector.reset(seed=2), listed.env.reset(seed=2))
    ends = 0
    for _ in range(50):
        actions = np.zeros(8, dtype=np.int64)
        _, _, terminated, truncated, infos = vector.step(actions)
        rows = listed.step(actions)[-1]
        for index in np.flatnonzero(terminated | truncated):
            assert infos["final_obs"][index] in vector.single_observation_space
            assert data_equivalence(infos["final_obs"][index], rows[index]["final_obs"], exact=True)
            ends += 1
        if infos:
            assert [row is not None for row in infos["final_obs"]] == list(infos["_final_obs"])
    assert ends


def test_pictures_of_all_worlds(vector):
    vector.reset()
    frames = vector.render()
    assert len(frames) == 8
    assert frames[0].dtype == np.uint8
    assert frames[0].ndim == 3


def test_closing_closes_the_world_and_may_be_repeated(vector):
    vector.reset()
    vector.close()
    vector.close()
    assert vector.closed
    assert vector.world.is_closed


@pytest.mark.parametrize(
    ("actions", "named"),
    [
        (np.zeros(3, dtype=int), "shape"),
        (np.zeros((8, 1), dtype=int), "shape"),
        (0, "shape"),
        (np.zeros(8), "type"),
        (np.zeros(8, dtype=bool), "type"),
        (None, "type"),
        (np.full(8, 5), "within"),
        (np.full(8, -1), "within"),
        (torch.zeros(7, dtype=torch.int64), "shape"),
        (torch.zeros(8, 1, dtype=torch.int64), "shape"),
        (torch.zeros(8, dtype=torch.bfloat16), "type"),
        (torch.zeros(8, dtype=torch.bool), "type"),
        (torch.full((8,), 5), "within"),
        ([torch.tensor(1), *[np.int64(1)] * 7], "mix"),
        ([[0], [0, 1], 2, 3, 4, 0, 1, 2], "shape"),
    ],
)
def test_bad_actions_are_refused(vector, actions, named):
    vector.reset()
    with pytest.raises(ValueError, match=named) as caught:
        vector.step(actions)
    assert "\n" not in str(caught.value)


WHOLE = [0, 1, 2, 3, 4, 0, 1, 2]


@pytest.mark.parametrize(
    "actions",
    [
        WHOLE,
        tuple(WHOLE),
        np.array(WHOLE, dtype=np.int32),
        np.array(WHOLE, dtype=np.uint8),
        torch.tensor(WHOLE),
        torch.tensor(WHOLE, dtype=torch.uint8),
        [torch.tensor(action) for action in WHOLE],
    ],
    ids=["list", "tuple", "int32", "uint8", "tensor", "uint8 tensor", "tensors"],
)
def test_whole_numbers_of_any_type_are_the_same_actions(vector, actions):
    vector.reset(seed=3)
    expected = vector.step(np.array(WHOLE))
    vector.reset(seed=3)
    assert data_equivalence(vector.step(actions), expected, exact=True)


def test_stepping_needs_a_reset(vector):
    with pytest.raises(ValueError, match="reset"):
        vector.step(np.zeros(8, dtype=int))


@pytest.mark.parametrize("seed", [[1, 2], True, 1.5, -1])
def test_seeds_are_single_whole_numbers(vector, seed):
    with pytest.raises(ValueError, match="seed"):
        vector.reset(seed=seed)


def test_options_that_would_be_ignored_are_refused(vector):
    vector.reset(options={})
    with pytest.raises(ValueError, match="hold color"):
        vector.reset(options={"color": 3})
    with pytest.raises(ValueError, match="one bool per world"):
        vector.reset(options={"reset_mask": np.ones(8)})


def episodes(mode, steps):
    """Observations, rewards and ends of each world's episodes, whole ones only, played in one of Gymnasium's modes."""
    vector = GymnasiumVectorEnv(make_world(num_envs=3, rules=Rules(max_steps=20), desynchronize=True), mode)
    seen, infos = vector.reset(seed=7)
    running, final = [[seen[row]] for row in range(3)], [[] for _ in range(3)]
    over = np.zeros(3, bool)
    for _ in range(steps):
        # each world plays by its own clock, whatever the mode makes of the others
        actions = np.array([len(episode) // 2 % 5 for episode in running])
        seen, reward, terminated, truncated, infos = vector.step(actions)
        done = terminated | truncated
        for row in range(3):
            if over[row] and mode is not AutoresetMode.SAME_STEP:
                assert reward[row] == 0
                continue
            last = infos["final_obs"] if mode is AutoresetMode.SAME_STEP and done[row] else seen
            running[row] += [reward[row], last[row]]
            if done[row]:
                assert infos["final_info"]["length"][row] > 0
                assert infos["_final_info"][row]
                final[row].append(running[row])
        if mode is AutoresetMode.DISABLED and over.any():
            assert done[over].all()
            seen, _ = vector.reset(options={"reset_mask": over})
        for row in np.flatnonzero(done if mode is AutoresetMode.SAME_STEP else over):
            running[row] = [seen[row]]
        over = done & ~over if mode is not AutoresetMode.SAME_STEP else over
    return final


def test_the_games_are_the_same_in_every_autoreset_mode():
    same, following, disabled = (
        episodes(mode, 100) for mode in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED)
    )
    for rows in zip(same, following, disabled, strict=True):
        assert min(len(row) for row in rows) >= 4
        for played in zip(*rows, strict=False):
            for values in zip(*played, strict=True):
                assert all(np.array_equal(values[0], value) for value in values[1:])


@pytest.mark.parametrize("wrapper", [NormalizeObservation, FlattenObservation, RecordEpisodeStatistics])
def test_gymnasiums_vector_wrappers_take_the_mode_that_they_want(wrapper):
    options = {"vectorization_mode": "vector_entry_point", "autoreset_mode": "NextStep"}
    vector = wrapper(gymnasium.make_vec("TorchRLAgent/Arena-v0", num_envs=3, **options))
    vector.reset(seed=0)
    assert vector.step(np.zeros(3, dtype=np.int64))[0].shape == (3, 32)


def test_an_unknown_autoreset_mode_is_refused():
    with pytest.raises(ValueError, match="use one of NextStep, SameStep, Disabled"):
        GymnasiumVectorEnv(make_world(), "never")


class ContinuousWorld(ArenaEnv):
    def _build(self, *arguments, **kwargs):
        super()._build(*arguments, **kwargs)
        self.action_spec = Bounded(-1.0, 1.0, (self.num_envs, 2))


def test_worlds_it_cannot_show_are_refused_with_one_sentence():
    with pytest.raises(ValueError, match="discrete action"):
        GymnasiumVectorEnv(ContinuousWorld(2))


def test_the_town_of_one_agent_is_a_gymnasium_world_with_masks():
    vector = GymnasiumVectorEnv(make_town())
    observation, infos = vector.reset(seed=1)
    assert observation in vector.observation_space
    assert vector.single_action_space.n == infos["action_mask"].shape[1] == 8
    ended = 0
    for _ in range(25):
        action = infos["action_mask"].argmax(1)
        observation, reward, terminated, truncated, infos = vector.step(action)
        assert observation in vector.observation_space
        assert reward.shape == (3,)
        ended += int((terminated | truncated).sum())
    assert ended >= 3


def test_masks_are_those_of_the_moment_shown():
    """Where a world ended, the infos have the mask of its next episode and the final infos that of its last moment."""
    vector, world = GymnasiumVectorEnv(make_town()), make_town()
    _, infos = vector.reset(seed=1)
    world.set_seed(1)
    root, ended = world.reset(), 0
    for _ in range(25):
        action = infos["action_mask"].argmax(1)
        _, _, terminated, truncated, infos = vector.step(action)
        root.set(world.action_key, torch.as_tensor(action).unsqueeze(1))
        played, root = world.step_and_maybe_reset(root)
        last, following = (part["agents", "action_mask"][:, 0].numpy() for part in (played["next"], root))
        assert (infos["action_mask"] == following).all()
        done = terminated | truncated
        if done.any():
            assert (infos["final_info"]["action_mask"][done] == last[done]).all()
            ended += int((last[done] != following[done]).any())
    assert ended > 0, "both moments differ somewhere"


def make_town():
    return TownEnv(3, level="L2", seed=1, rules={"max_steps": 8})


def test_several_agents_are_no_gymnasium_world():
    with pytest.raises(ValueError, match="4 agents"):
        GymnasiumVectorEnv(TownEnv(2, level="L6"))


@pytest.mark.parametrize(
    ("mode", "shape", "dtype", "highest"),
    [("pixels", (64, 64, 3), np.uint8, 255), ("heatmap", (8, 16, 16), np.float32, 1)],
)
def test_pictures_are_boxes_of_their_shape(mode, shape, dtype, highest):
    vector = GymnasiumVectorEnv(make_world(num_envs=2, observation=mode))
    space = vector.single_observation_space
    assert isinstance(space, gymnasium.spaces.Box)
    assert (space.shape, space.dtype) == (shape, dtype)
    assert (space.low.min(), space.low.max(), space.high.min(), space.high.max()) == (0, 0, highest, highest)
    assert vector.observation_space.shape == (2, *shape)
    observation, _ = vector.reset(seed=1)
    assert observation in vector.observation_space
    observation, *_ = vector.step(vector.action_space.sample())
    assert observation in vector.observation_space


def test_gymnasiums_picture_wrappers_take_the_pixels():
    one = GrayscaleObservation(gymnasium.make("TorchRLAgent/Arena-v0", observation="pixels"))
    picture, _ = one.reset(seed=0)
    assert picture.shape == (64, 64)
    assert picture.max() > 60
