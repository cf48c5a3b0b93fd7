"""The comparison with Stable-Baselines3: honest curves, the same judge, one sentence where it is not installed."""

from __future__ import annotations

import builtins
import json

import pytest

from benchmarks.sb3_baseline import BASELINES, baseline_policy, make_baseline, samples_per_frame
from benchmarks.time_to_skill import SKILLS, compare_curves, learn_against_baseline, steady_rate
from torchrl_agent.experiment import Experiment

TINY = [
    "world.num_envs=16",
    "tuned.ppo.rollout_steps=32",
    "tuned.ppo.minibatch_size=128",
    "tuned.dqn.learning_starts=1024",
    "model.hidden_sizes=[16]",
    "acceleration.step=false",
    "acceleration.advantages=false",
    "acceleration.update=false",
    "device=cpu",
    "threads=1",
]


@pytest.fixture
def tiny():
    return Experiment.load("arena", *TINY)


@pytest.fixture
def stable_baselines3():
    return pytest.importorskip("stable_baselines3")


def point(seconds, skill):
    return {"seconds": seconds, "frames": int(100 * seconds), "return": None, "spawners_destroyed": skill}


def test_without_the_baseline_installed_the_fix_is_named(monkeypatch):
    real = builtins.__import__

    def refuse(name, *arguments, **kwargs):
        if name.startswith("stable_baselines3"):
            raise ImportError(name)
        return real(name, *arguments, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ValueError, match=r'pip install "torchrl-agent\[bench\]"') as caught:
        learn_against_baseline(TINY, 1)
    assert "\n" not in str(caught.value)


def test_impossible_arguments_are_refused_before_any_training(stable_baselines3):
    with pytest.raises(ValueError, match="above 0"):
        learn_against_baseline(TINY, 0)
    with pytest.raises(ValueError, match="above 0"):
        learn_against_baseline(TINY, 1, -1)
    with pytest.raises(ValueError, match="one vector"):
        learn_against_baseline([*TINY, "world.observation=dict"], 1)


def test_time_to_skill_is_the_first_time_and_null_if_never():
    ours = [point(1, None), point(2, 0.7), point(3, 0.4), point(4, 2.5)]
    baseline = [point(5, 0.6), point(10, 0.9), point(20, 1.0)]
    reached = compare_curves(ours, baseline)
    assert list(reached) == [str(skill) for skill in SKILLS]
    assert reached["0.5"] == {"ours": 2, "stable_baselines3": 5, "ratio": 2.5}
    assert reached["1.0"] == {"ours": 4, "stable_baselines3": 20, "ratio": 5.0}
    assert reached["2.0"] == {"ours": 4, "stable_baselines3": None, "ratio": None, "ratio_at_least": 5.0}
    assert reached["3.0"] == {"ours": None, "stable_baselines3": None, "ratio": None}


def test_the_rate_is_that_of_the_second_half():
    curve = [{"seconds": 40.0, "frames": 1}, {"seconds": 60.0, "frames": 1_001}, {"seconds": 100.0, "frames": 5_001}]
    assert steady_rate(curve) == 100
    assert steady_rate(curve[:1]) == pytest.approx(1 / 40)


def test_the_baselines_policy_plays_what_the_baseline_predicts(stable_baselines3, tiny):
    model = make_baseline(stable_baselines3, tiny)
    worlds = model.get_env()
    worlds.reset()
    for _ in range(20):
        worlds.step([1] * worlds.num_envs)
    root = tiny.make_world(evaluation=True, num_envs=64).rollout(20)[:, -1]
    predicted, _ = model.predict(worlds.normalize_obs(root["observation"].numpy()), deterministic=True)
    assert baseline_policy(model)(root)["action"].tolist() == predicted.tolist()


@pytest.mark.parametrize(("ratio", "samples"), [(8.0, 8.0), pytest.param(1.0, 4.0, marks=pytest.mark.slow)])
def test_the_baselines_dqn_learns_as_often_from_a_frame_as_ours(stable_baselines3, ratio, samples):
    experiment = Experiment.load("arena", *TINY, "algorithm=dqn", f"algorithm.replay_ratio={ratio}")
    model = make_baseline(stable_baselines3, experiment)
    model.learn(1500)  # 476 after learning_starts, 12 worlds at a time
    assert model._n_updates * model.batch_size / (1500 - 1024) == pytest.approx(samples, rel=0.02)
    assert samples_per_frame(model) == samples  # at least one update per step of all its worlds
    assert [layer.out_features for layer in model.q_net.q_net if hasattr(layer, "out_features")] == [16, 5]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", list(BASELINES))
def test_both_learn_for_their_time_and_are_judged_alike(stable_baselines3, algorithm):
    result = learn_against_baseline(TINY, 3, algorithm=algorithm)
    assert result["algorithm"] == algorithm
    if algorithm != "ppo":
        samples = {result[side]["gradient_samples_per_frame"] for side in ("ours", "stable_baselines3")}
        assert samples == {4.0 if algorithm == "dqn" else 1.0}
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["ratio_frames_per_second"] > 0
    assert set(result["time_to_skill"]) == {str(skill) for skill in SKILLS}
    assert {"torch", "torchrl", "stable_baselines3"} <= result["versions"].keys()
    assert result["device"] == "cpu"
    for side in ("ours", "stable_baselines3"):
        trained = result[side]
        assert trained["evaluation"]["episodes"] == 64
        assert 3 <= trained["seconds"] < 30
        assert trained["frames"] == trained["curve"][-1]["frames"] > 0
        assert {"seconds", "frames", "return", "spawners_destroyed"} == trained["curve"][-1].keys()
        times = [entry["seconds"] for entry in trained["curve"]]
        assert times == sorted(times)
