"""Normalization against numpy and by hand, alone, inside environments and on disk."""

import json
import math

import numpy
import pytest
import torch
from tensordict import TensorDict
from torchrl.data import Bounded
from torchrl.envs import Compose, TransformedEnv
from torchrl.envs.utils import check_env_specs

from envs import ArenaEnv, BranchlessTransformedEnv
from torchrl_agent.models.agent import Agent, ModelConfig
from torchrl_agent.transforms import (
    ObservationNormalizer,
    RewardScaler,
    get_statistics,
    read_statistics,
    set_statistics,
)

KEYS = {"obs_mean", "obs_var", "obs_count", "ret_mean", "ret_var", "ret_count"}


def batches(mean, deviation, sizes=((40, 5), (8, 3, 5), (1, 5), (200, 5))):
    generator = torch.Generator().manual_seed(0)
    return [mean + deviation * torch.randn(size, generator=generator) for size in sizes]


def flat(data):
    return numpy.concatenate([batch.double().numpy().reshape(-1, batch.shape[-1]) for batch in data])


# --- observations


def test_statistics_over_several_batches_are_those_of_all_frames_at_once():
    normalizer = ObservationNormalizer(["observation"], [5])
    data = batches(torch.tensor([0.0, 1.0, -3.0, 10.0, 0.5]), torch.tensor([1.0, 0.1, 5.0, 3.0, 2.0]))
    for batch in data:
        normalizer.update(batch)
    numpy.testing.assert_allclose(normalizer.running.mean, flat(data).mean(0), rtol=1e-4, atol=1e-5)
    numpy.testing.assert_allclose(normalizer.running.var, flat(data).var(0), rtol=1e-3)
    assert normalizer.running.count.item() == pytest.approx(len(flat(data)), abs=1e-2)


def test_batches_of_which_some_rows_count_give_the_statistics_of_those_rows_by_hand():
    normalizer, scaler = ObservationNormalizer(["observation"], [1]), RewardScaler(3, gamma=0.5)
    for first, second, third in ((0.0, 0.0, 99.0), (4.0, 4.0, 77.0)):
        column = torch.tensor([[first], [second], [third]])
        counted = torch.tensor([True, True, False])
        normalizer.update(column, counted)
        scaler.update(column.unsqueeze(0), torch.ones(1, 3, 1, dtype=torch.bool), counted.unsqueeze(0))
    for running in (normalizer.running, scaler.running):  # of 0, 0, 4 and 4
        assert [value.item() for value in (running.mean, running.var, running.count)] == pytest.approx([2, 4, 4])


def test_large_means_give_the_right_statistics():
    normalizer = ObservationNormalizer(["observation"], [5])
    data = batches(1e4, 0.1, sizes=((1000, 5), (1000, 5), (1000, 5)))
    for batch in data:
        normalizer.update(batch)
    numpy.testing.assert_allclose(normalizer.running.mean, flat(data).mean(0), atol=0.01)
    numpy.testing.assert_allclose(normalizer.running.var, flat(data).var(0), rtol=0.1)


def test_normalizing_is_subtract_divide_clip():
    normalizer = ObservationNormalizer(["observation"], [3], clip=2.0, epsilon=0.25)
    normalizer.running.mean.copy_(torch.tensor([1.0, 0.0, 0.0]))
    normalizer.running.var.copy_(torch.tensor([3.75, 0.0, 0.0]))
    normal = normalizer.normalize(torch.tensor([[4.0, 0.5, 7.0], [-1.0, -0.5, -7.0]]))
    # 3 / sqrt(4) = 1.5; 0.5 / sqrt(0.25) = 1; 7 / 0.5 = 14, clipped to 2
    torch.testing.assert_close(normal, torch.tensor([[1.5, 1.0, 2.0], [-1.0, -1.0, -2.0]]))


def test_frozen_or_disabled_statistics_do_not_change():
    normalizer = ObservationNormalizer(["observation"], [5])
    normalizer.update(batches(3.0, 2.0)[0])
    before = normalizer.running.mean.clone()
    normalizer.frozen = True
    normalizer.update(batches(-9.0, 2.0)[0])
    assert torch.equal(normalizer.running.mean, before)
    disabled = ObservationNormalizer(["observation"], [5], enabled=False)
    disabled.update(batches(-9.0, 2.0)[0])
    assert disabled.running.mean.tolist() == [0.0] * 5
    assert disabled.normalize(torch.full((5,), 99.0)).tolist() == [99.0] * 5


def test_bytes_of_a_picture_are_read_as_numbers_between_0_and_1():
    normalizer = ObservationNormalizer(["pixels", "speed"], [(1, 1, 2), 1], "joined")
    seen = TensorDict(
        {"pixels": torch.tensor([[[[0, 51]]]], dtype=torch.uint8), "speed": torch.tensor([[3.0]])}, batch_size=[1]
    )
    assert torch.equal(normalizer.join(seen), torch.tensor([[0.0, 0.2, 3.0]]))
    assert normalizer(seen)["joined"].dtype == torch.float32


def test_as_a_module_it_joins_and_normalizes_and_leaves_the_statistics_alone():
    normalizer = ObservationNormalizer(["near", "far"], [1, 2], "joined")
    normalizer.running.mean.copy_(torch.tensor([1.0, 2.0, 3.0]))
    frames = TensorDict({"near": torch.ones(4, 1), "far": torch.tensor([[3.0, 3.0]]).expand(4, 2)}, [4])
    joined = normalizer(frames).get("joined")
    torch.testing.assert_close(joined, torch.tensor([[0.0, 1.0, 0.0]]).expand(4, 3))
    assert normalizer.running.mean.tolist() == [1.0, 2.0, 3.0]
    assert normalizer.running.count.item() < 1


@pytest.mark.parametrize("arguments", [(["a", "b"], [1], "c"), ([], [], "c"), (["a", "b"], [1, 1], None)])
def test_keys_and_sizes_that_do_not_match_are_refused(arguments):
    with pytest.raises(ValueError, match="observation"):
        ObservationNormalizer(*arguments)


def test_a_batch_counts_as_much_after_billions_of_samples_as_its_size_says():
    normalizer = ObservationNormalizer(["observation"], [1])
    normalizer.running.count.fill_(2.0**30)
    batch = torch.tensor([[-3.0], [5.0]]).repeat(32, 1)  # 64 samples, mean 1 and variance 16
    for _ in range(1024):
        normalizer.update(batch)
    # 2^30 samples of mean 0 and variance 1, then 2^16 of mean 1 and variance 16: their share is 1 / (2^14 + 1)
    share = 1 / (2**14 + 1)
    running = normalizer.running
    assert running.count.item() == 2**30 + 2**16
    assert running.mean.item() == pytest.approx(share, rel=1e-6)
    assert running.var.item() == pytest.approx((1 - share) + 16 * share + share * (1 - share), rel=1e-9)


@pytest.mark.parametrize("before", [[], [[2.0, 4.0]]], ids=["first", "later"])
def test_a_batch_without_valid_frames_changes_nothing(before):
    normalizer, scaler = ObservationNormalizer(["observation"], [1]), RewardScaler(2)
    for values in before:
        normalizer.update(torch.tensor(values).unsqueeze(-1), torch.tensor([True, True]))
    kept = {name: value.clone() for name, value in normalizer.state_dict().items()}
    normalizer.update(torch.tensor([[7.0], [torch.nan]]), torch.tensor([False, False]))
    scaler.update(torch.ones(3, 2, 1), torch.zeros(3, 2, 1, dtype=torch.bool), torch.zeros(3, 2, dtype=torch.bool))
    for name, value in normalizer.state_dict().items():
        assert torch.equal(value, kept[name]), name
    assert (scaler.running.mean.item(), scaler.running.var.item(), scaler.running.count.item()) == (0, 1, 0)


@pytest.mark.parametrize("counted", [None, torch.ones(64, dtype=torch.bool)])
def test_a_single_enormous_number_leaves_the_statistics_finite(counted):
    normalizer = ObservationNormalizer(["observation"], [2])
    batch = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    batch[5, 1], batch[7, 1] = 1e20, -3e38
    for _ in range(3):
        normalizer.update(batch, counted)
    assert all(value.isfinite().all() for value in normalizer.state_dict().values())
    assert normalizer.normalize(batch).isfinite().all()
    assert normalizer.running.var[0].item() == pytest.approx(batch[:, 0].var(correction=0).item(), rel=1e-3)


def test_infinite_numbers_are_not_hidden():
    normalizer = ObservationNormalizer(["observation"], [1])
    normalizer.update(torch.tensor([[1.0], [torch.inf]]))
    assert normalizer.running.mean.isnan()


# --- rewards


def test_reward_scaling_by_hand_over_an_episode_end():
    scaler = RewardScaler(2, gamma=0.5)
    reward = torch.tensor([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]]).unsqueeze(-1)
    done = torch.tensor([[False, False], [True, False], [False, False]]).unsqueeze(-1)
    scaler.update(reward, done)
    # world 0: 1, 0.5 + 2 = 2.5, then a new episode: 4; world 1: 10, 5 + 20 = 25, 12.5 + 40 = 52.5
    returns = numpy.array([1.0, 2.5, 4.0, 10.0, 25.0, 52.5])
    assert scaler.returns.squeeze(-1).tolist() == [4.0, 52.5]
    assert scaler.running.mean.item() == pytest.approx(returns.mean(), rel=1e-3)
    assert scaler.running.var.item() == pytest.approx(returns.var(), rel=1e-3)
    scaled = scaler.scale(torch.tensor([0.0, 3.0, -3.0]))
    assert scaled.tolist() == pytest.approx([0.0, 3.0 / returns.std(), -3.0 / returns.std()], rel=1e-3)  # not centered


def test_running_returns_go_on_over_rollouts():
    halves, whole = RewardScaler(1, gamma=0.9), RewardScaler(1, gamma=0.9)
    reward = torch.arange(1.0, 9.0).reshape(8, 1, 1)
    done = torch.zeros(8, 1, 1, dtype=torch.bool)
    done[5] = True
    whole.update(reward, done)
    halves.update(reward[:4], done[:4])
    halves.update(reward[4:], done[4:])
    torch.testing.assert_close(halves.returns, whole.returns)
    torch.testing.assert_close(halves.running.var, whole.running.var, rtol=1e-3, atol=0)
    assert whole.returns.item() == pytest.approx(7 * 0.9 + 8)


@pytest.mark.slow
def test_compiled_code_keeps_what_it_merges():
    """PyTorch 2.13 on a CPU loses what compiled code writes to a float64 tensor without dimensions."""
    eager, compiled = RewardScaler(2, gamma=0.5), RewardScaler(2, gamma=0.5)

    def update_and_scale(reward, done):
        compiled.update(reward, done)
        return compiled.scale(reward)

    function = torch.compile(update_and_scale, fullgraph=True)
    for number in range(2):
        reward = torch.tensor([1.0, 3.0, -2.0, 0.5]).reshape(2, 2, 1) + number
        done = torch.tensor([False, True, False, False]).reshape(2, 2, 1)
        eager.update(reward, done)
        torch.testing.assert_close(function(reward, done), eager.scale(reward))
    torch.testing.assert_close(dict(compiled.state_dict()), dict(eager.state_dict()))
    assert compiled.running.count.item() == 8


def test_scaled_rewards_are_clipped_and_the_scale_has_an_epsilon():
    scaler = RewardScaler(1, clip=5.0, epsilon=0.25)
    scaler.running.var.zero_()
    assert scaler.scale(torch.tensor([1.0, 100.0, -100.0])).tolist() == [2.0, 5.0, -5.0]


def test_a_frozen_or_disabled_scaler_learns_nothing():
    reward, done = torch.full((3, 1, 1), 7.0), torch.zeros(3, 1, 1, dtype=torch.bool)
    frozen, disabled = RewardScaler(1), RewardScaler(1, enabled=False)
    frozen.frozen = True
    for scaler in (frozen, disabled):
        scaler.update(reward, done)
        assert scaler.running.mean.item() == 0.0
        assert scaler.returns.item() == 0.0
    assert disabled.scale(torch.tensor(99.0)).item() == 99.0


# --- as transforms of an environment


def transforms(num_envs):
    return ObservationNormalizer(["observation"], [32]), RewardScaler(num_envs, gamma=0.9)


@pytest.mark.parametrize("wrapper", [BranchlessTransformedEnv, TransformedEnv])
def test_in_an_environment_every_step_of_every_world_is_counted_once(wrapper):
    normalizer, scaler = transforms(6)
    env = wrapper(ArenaEnv(6, seed=3), Compose(normalizer, scaler))
    plain = ArenaEnv(6, seed=3)
    root, plain_root = env.reset(), plain.reset()
    assert normalizer.running.count.item() < 1  # a reset is no frame
    torch.manual_seed(0)
    seen, rewards = [], []
    for _ in range(12):
        action = env.action_spec.rand()
        played, root = env.step_and_maybe_reset(root.set("action", action))
        plain_played, plain_root = plain.step_and_maybe_reset(plain_root.set("action", action))
        seen.append(plain_played["next", "observation"])
        rewards.append(plain_played["next", "reward"])
    numpy.testing.assert_allclose(normalizer.running.mean, flat(seen).mean(0), atol=1e-4)
    numpy.testing.assert_allclose(normalizer.running.var, flat(seen).var(0), atol=1e-4)
    assert normalizer.running.mean.shape == (32,)
    assert normalizer.running.count.item() == pytest.approx(72, abs=1e-2)
    assert scaler.running.count.item() == pytest.approx(72, abs=1e-2)
    scale = 1 / math.sqrt(scaler.running.var.item() + 1e-8)
    torch.testing.assert_close(played["next", "reward"], (rewards[-1] * scale).clamp(-10, 10))
    expected = normalizer.normalize(seen[-1])
    torch.testing.assert_close(played["next", "observation"], expected)


@pytest.mark.parametrize("wrapper", [BranchlessTransformedEnv, TransformedEnv])
def test_partial_resets_normalize_but_do_not_change_the_statistics(wrapper):
    normalizer, scaler = transforms(4)
    env = wrapper(ArenaEnv(4, seed=3), Compose(normalizer, scaler))
    env.rollout(5, break_when_any_done=False)
    before = {name: value.clone() for name, value in normalizer.state_dict().items()}
    returns = scaler.running.mean.clone()
    rows = torch.tensor([[True], [False], [True], [False]])
    root = env.reset(TensorDict({"_reset": rows}, [4]))
    assert all(torch.equal(value, before[name]) for name, value in normalizer.state_dict().items())
    assert torch.equal(scaler.running.mean, returns)
    raw = env.base_env.observe(env.base_env.state)["observation"]
    torch.testing.assert_close(root["observation"][rows.squeeze(-1)], normalizer.normalize(raw)[rows.squeeze(-1)])


@pytest.mark.parametrize("wrapper", [BranchlessTransformedEnv, TransformedEnv])
def test_the_transformed_arena_keeps_its_specs(wrapper):
    env = wrapper(ArenaEnv(3), Compose(*transforms(3)))
    check_env_specs(env)
    spec = env.observation_spec["observation"]
    assert isinstance(spec, Bounded)
    assert spec.space.high.unique().tolist() == [10.0]


# --- on disk


@pytest.fixture
def trained():
    normalizer, scaler = ObservationNormalizer(["observation"], [5]), RewardScaler(1)
    normalizer.update(batches(3.0, 2.0)[0])
    scaler.update(torch.arange(6.0).reshape(6, 1, 1), torch.zeros(6, 1, 1, dtype=torch.bool))
    return normalizer, scaler


def fresh():
    return ObservationNormalizer(["observation"], [5]), RewardScaler(1)


def test_statistics_are_six_plain_entries_that_survive_json(trained, tmp_path):
    statistics = get_statistics(*trained)
    assert set(statistics) == KEYS
    path = tmp_path / "normalization.json"
    path.write_text(json.dumps(statistics))
    normalizer, scaler = fresh()
    set_statistics(normalizer, scaler, read_statistics(path))
    assert get_statistics(normalizer, scaler) == statistics
    assert torch.equal(normalizer.running.mean, trained[0].running.mean)
    assert torch.equal(scaler.running.var, trained[1].running.var)


def test_statistics_can_be_given_to_a_policy_alone(trained):
    normalizer, scaler = fresh()
    set_statistics(normalizer, None, get_statistics(*trained))
    assert torch.equal(normalizer.running.var, trained[0].running.var)
    assert scaler.running.mean.item() == 0.0


def without(statistics, name):
    return {key: value for key, value in statistics.items() if key != name}


@pytest.mark.parametrize(
    ("damage", "culprit"),
    [
        (lambda s: {**s, "obs_mean": [0.0] * 4}, "obs_mean"),
        (lambda s: {**s, "ret_var": [1.0]}, "ret_var"),
        (lambda s: {**s, "extra": 1.0}, "extra"),
        (lambda s: without(s, "ret_count"), "ret_count"),
        (lambda s: {**s, "obs_var": [1.0, 1.0, math.nan, 1.0, 1.0]}, "obs_var"),
        (lambda s: {**s, "ret_mean": math.inf}, "ret_mean"),
        (lambda s: {**s, "obs_var": [1.0, 1.0, -1.0, 1.0, 1.0]}, "obs_var"),  # its root would be NaN
        (lambda s: {**s, "obs_mean": None}, "obs_mean"),
        (lambda s: {**s, "obs_mean": ["a"] * 5}, "obs_mean"),
    ],
)
def test_damaged_statistics_are_refused_in_a_sentence_and_change_nothing(trained, damage, culprit):
    normalizer, scaler = fresh()
    before = get_statistics(normalizer, scaler)
    with pytest.raises(ValueError, match=culprit) as caught:
        set_statistics(normalizer, scaler, damage(get_statistics(*trained)))
    assert "\n" not in str(caught.value)
    assert get_statistics(normalizer, scaler) == before


@pytest.mark.parametrize("content", [b'{"obs_mean": [0.0', b"\xff\xfe\x00", b"", b"[1, 2]", None])
def test_a_corrupt_or_missing_file_is_refused_in_a_sentence_that_names_it(content, tmp_path):
    path = tmp_path / "statistics.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"statistics\.json") as caught:
        read_statistics(path)
    assert "\n" not in str(caught.value)


def test_a_loaded_policy_carries_its_statistics():
    env = ArenaEnv(2)
    torch.manual_seed(0)
    first, second = (Agent(env, ModelConfig(hidden_sizes=[8])) for _ in range(2))
    first.normalizer.update(torch.randn(50, 32) * 4 + 2)
    second.load_state_dict(first.state_dict())
    frames = env.reset()
    assert torch.equal(second.critic(frames.clone())["state_value"], first.critic(frames.clone())["state_value"])
    assert torch.equal(second.normalizer.running.mean, first.normalizer.running.mean)
    assert second.normalizer.running.mean.mean() > 1
