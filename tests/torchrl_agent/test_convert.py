"""Stable-Baselines3's models become runs that act alike, and the other way round; what cannot be is one sentence."""

from __future__ import annotations

import base64
import builtins
import json
import pickle
import re
import zipfile
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from launching import Bomb
from tensordict import TensorDict
from torch import nn

from envs import ArenaEnv, TownEnv
from torchrl_agent import cli
from torchrl_agent.algorithms import ppo
from torchrl_agent.algorithms.registry import class_path
from torchrl_agent.convert import from_sb3, to_sb3
from torchrl_agent.convert.archive import read_archive
from torchrl_agent.convert.checks import find_activation
from torchrl_agent.core.checkpoint import find_checkpoint
from torchrl_agent.experiment.compose import CONFIGS
from torchrl_agent.runs.load import load_agent
from torchrl_agent.transforms import STATISTICS, read_statistics

pytest.importorskip("stable_baselines3")

from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from envs.adapters.sb3 import StableBaselinesVecEnv

GUIDE = CONFIGS.parent / "docs" / "stable_baselines3.md"
OBSERVATIONS = 1000
RELU = {"activation_fn": nn.ReLU, "net_arch": [32, 16]}
QUIET = ["device=cpu", "run.tensorboard=false", "run.film=false", "run.final_evaluation=false"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Trained models: ``arena`` (PPO, ReLU, behind VecNormalize) and ``cartpole`` (A2C, as it comes)."""
    folder = tmp_path_factory.mktemp("models")
    worlds = VecNormalize(StableBaselinesVecEnv(ArenaEnv(4, seed=1)), gamma=0.98, clip_obs=5.0)
    with pytest.warns(UserWarning, match="mini-batch size of 48"):  # which does not divide 256: ours must
        model = PPO("MlpPolicy", worlds, n_steps=64, batch_size=48, n_epochs=3, gamma=0.98, policy_kwargs=RELU, seed=1)
    model.learn(512)
    with torch.no_grad():
        model.policy.action_net.weight *= 100  # as sure of itself as after long training, which errors would show in
    model.save(folder / "arena.zip")
    worlds.save(folder / "arena.pkl")
    model = A2C("MlpPolicy", make_vec_env("CartPole-v1", 2, seed=1), seed=1, device="cpu")
    model.learn(200)
    model.save(folder / "cartpole.zip")
    return folder


@pytest.fixture(scope="module")
def arena_run(folder):
    """The run made of the arena's model."""
    arguments = {"vecnormalize": folder / "arena.pkl", "trust": True, "run_name": "arena"}
    return from_sb3(folder / "arena.zip", "arena_long", [*QUIET, f"run.folder={folder / 'runs'}"], **arguments)[0]


def played(folder, number=OBSERVATIONS):
    """Raw observations of the arena from games with random actions, and how VecNormalize shows them."""
    worlds = VecNormalize.load(str(folder / "arena.pkl"), StableBaselinesVecEnv(ArenaEnv(20, seed=7)))
    worlds.training = False
    chance, raw = np.random.default_rng(0), [worlds.venv.reset()]
    while 20 * len(raw) < number:
        raw.append(worlds.venv.step(chance.integers(5, size=20))[0])
    observations = np.concatenate(raw)[:number]
    return observations, worlds.normalize_obs(observations)


def cartpole_observations(number=OBSERVATIONS):
    return np.random.default_rng(3).normal(size=(number, 4)).astype(np.float32)


def ours(agent, observations):
    """The agent's most likely actions, probabilities and values."""
    root = {"observation": torch.as_tensor(observations)}
    with torch.no_grad():
        frames = agent.critic(agent.actor(_tensordict(root)))
    logits = frames["logits"]
    return logits.argmax(-1), logits.softmax(-1), frames["state_value"].squeeze(-1)


def _tensordict(values):
    return TensorDict(values, [len(next(iter(values.values())))])


def theirs(model, observations):
    actions, _ = model.predict(observations, deterministic=True)
    with torch.no_grad():
        seen = torch.as_tensor(observations)
        return (
            torch.as_tensor(actions),
            model.policy.get_distribution(seen).distribution.probs,
            model.policy.predict_values(seen).squeeze(-1),
        )


def assert_alike(mine, other):
    assert len(mine[0]) == OBSERVATIONS
    assert torch.equal(mine[0], other[0])
    torch.testing.assert_close(mine[1], other[1], rtol=0, atol=1e-5)
    torch.testing.assert_close(mine[2], other[2], rtol=1e-4, atol=1e-5)
    assert len(mine[0].unique()) > 1  # an agent that always does the same proves little


# --- from Stable-Baselines3 -------------------------------------------------------------------------------------------


def test_a_ppo_behind_vecnormalize_acts_alike(folder, arena_run):
    experiment, agent = load_agent(arena_run, "cpu")
    raw, normalized = played(folder)
    model = PPO.load(folder / "arena.zip", device="cpu")
    assert_alike(ours(agent, raw), theirs(model, normalized))
    assert experiment.model.activation == "relu" and experiment.model.hidden_sizes == [32, 16]


def test_an_a2c_without_vecnormalize_acts_alike(folder, tmp_path):
    run, notes = from_sb3(folder / "cartpole.zip", "cartpole", [*QUIET, f"run.folder={tmp_path}"], "a2c")
    experiment, agent = load_agent(run, "cpu")
    model = A2C.load(folder / "cartpole.zip", device="cpu")
    observations = cartpole_observations()
    assert_alike(ours(agent, observations), theirs(model, observations))
    assert not experiment.model.normalize_observations and not experiment.algorithm.scale_rewards
    assert any("tanh" in note and "assumed" in note for note in notes)
    algorithm = experiment.algorithm
    assert experiment.algorithm_class.name == "a2c" and (algorithm.rollout_steps, algorithm.num_minibatches) == (5, 1)
    assert (algorithm.optimizer, algorithm.rmsprop_decay, algorithm.adam_epsilon) == ("rmsprop", 0.99, 1e-5)
    again, notes = from_sb3(
        folder / "cartpole.zip", "cartpole", [*QUIET, f"run.folder={tmp_path}", "algorithm=ppo"], "b"
    )
    algorithm = load_agent(again, "cpu")[0].algorithm
    assert (algorithm.num_epochs, algorithm.rollout_steps, algorithm.minibatch_size) == (1, 5, 10)
    assert "A2C goes on as PPO, with one epoch of one minibatch" in notes
    assert any("starts afresh, as the model was trained with another one" in note for note in notes)


def test_the_run_keeps_hyper_parameters_statistics_and_its_origin(folder, arena_run):
    experiment, _ = load_agent(arena_run, "cpu")
    algorithm = experiment.algorithm
    assert (algorithm.gamma, algorithm.lmbda, algorithm.entropy_coeff, algorithm.clip_epsilon) == (0.98, 0.95, 0.0, 0.2)
    assert (algorithm.rollout_steps, algorithm.num_epochs, experiment.world["num_envs"]) == (64, 3, 4)
    assert algorithm.minibatch_size == 32  # the largest up to 48 that divides 256
    assert (algorithm.learning_rate.initial, algorithm.learning_rate.schedule) == (3e-4, "constant")
    assert experiment.model.clip_observations == 5.0
    assert experiment.total_frames == 512
    path = find_checkpoint(arena_run)
    assert path.name == "checkpoint_512.pt"
    statistics = read_statistics(path.with_suffix(".normalization.json"))
    with (folder / "arena.pkl").open("rb") as file:
        known = pickle.load(file)
    np.testing.assert_allclose(statistics["obs_mean"], known.obs_rms.mean, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(statistics["ret_var"], known.ret_rms.var, rtol=1e-6)
    assert statistics["ret_count"] == pytest.approx(known.ret_rms.count)
    origin = json.loads((arena_run / "converted.json").read_text())
    assert origin["model"] == "arena.zip" and origin["algorithm"] == "PPO" and origin["notes"]


def test_json_statistics_do_the_same_without_trust(folder, arena_run, tmp_path):
    code = re.search(r"```python\n(import json\n.*?)```", GUIDE.read_text(), re.DOTALL)[1]
    exec(
        code.replace("vecnormalize", str(folder / "arena")).replace("open(", "open(tmp_path / "), {"tmp_path": tmp_path}
    )
    statistics = tmp_path / "statistics.json"
    mine = ["world.num_envs=2", "algorithm.gamma=0.9", "algorithm.minibatch_size=128", "model.clip_observations=5"]
    overrides = [*QUIET, f"run.folder={tmp_path}", *mine]
    run, notes = from_sb3(folder / "arena.zip", "arena_long", overrides, "json", vecnormalize=statistics)
    experiment, agent = load_agent(run, "cpu")
    kept = [read_statistics(find_checkpoint(path).with_suffix(".normalization.json")) for path in (run, arena_run)]
    assert kept[0] == kept[1]
    assert experiment.model.normalize_observations and experiment.algorithm.scale_rewards
    assert experiment.world["num_envs"] == 2 and experiment.algorithm.gamma == 0.9  # what the user says is stronger
    assert any("assumed" in note and "clip" in note for note in notes)  # the file does not say
    raw, normalized = played(folder)
    assert_alike(ours(agent, raw), theirs(PPO.load(folder / "arena.zip", device="cpu"), normalized))


@pytest.mark.slow
def test_converted_runs_are_judged_filmed_and_resumed(folder, tmp_path, capsys):
    arguments = ["convert", "sb3", str(folder / "arena.zip"), "--vecnormalize", str(folder / "arena.pkl"), "--trust"]
    assert cli.main([*arguments, "--run-name", "converted", f"run.folder={tmp_path}", *QUIET]) == 0
    printed = capsys.readouterr().out.splitlines()
    run = tmp_path / "converted"
    assert printed[-1] == str(run)
    assert any(line.startswith("note: the activation function is relu") for line in printed)
    assert cli.main(["evaluate", str(run), "--episodes", "2", "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["episodes"] == 2
    assert cli.main(["film", str(run), "--steps", "4", "--worlds", "1", "--device", "cpu"]) == 0
    eager = ["acceleration.step=false", "acceleration.advantages=false", "acceleration.update=false"]
    assert cli.main(["resume", str(run), "total_frames=1024", *eager]) == 0
    assert "1,024 frames" in capsys.readouterr().out
    before, after = (torch.load(run / f"checkpoints/checkpoint_{frames}.pt") for frames in (512, 1024))
    assert any(not torch.equal(value, after["agent"][name]) for name, value in before["agent"].items())
    counts = [read_statistics(run / f"checkpoints/checkpoint_{n}.normalization.json")["obs_count"] for n in (512, 1024)]
    assert counts[1] - counts[0] == 512


def test_a_world_of_agents_can_be_one_too(tmp_path):
    worlds = StableBaselinesVecEnv(TownEnv(2, level="L3"))
    PPO("MlpPolicy", worlds, n_steps=8, batch_size=16, device="cpu").save(tmp_path / "town.zip")
    run, notes = from_sb3(tmp_path / "town.zip", "town", [*QUIET, f"run.folder={tmp_path}"], "town")
    assert any("masks actions" in note for note in notes)
    _, agent = load_agent(run, "cpu")
    model = PPO.load(tmp_path / "town.zip", device="cpu")
    observation = worlds.reset()
    frames = _tensordict(
        {"observation": torch.as_tensor(observation), "action_mask": torch.ones(2, 8, dtype=torch.bool)}
    )
    probabilities = agent.actor.get_dist(frames).probs
    torch.testing.assert_close(probabilities, theirs(model, observation)[1], rtol=0, atol=1e-5)


def test_several_actions_at_once_stay_apart(tmp_path):
    class Twofold(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
        action_space = gymnasium.spaces.MultiDiscrete([3, 2])

    PPO("MlpPolicy", Twofold(), device="cpu").save(tmp_path / "two.zip")
    assert read_archive(tmp_path / "two.zip").heads == [3, 2]


def values_of(agent, observations):
    """The agent's best actions, its action values, and what it says a state is worth."""
    with torch.no_grad():
        frames = agent.critic(agent.actor(_tensordict({"observation": torch.as_tensor(observations)})))
    return frames["logits"].argmax(-1), frames["logits"], frames["state_value"].squeeze(-1)


def assert_same_values(agent, model, observations, seen=None):
    """Both value actions alike; ``seen`` is what VecNormalize makes of the observations."""
    seen = observations if seen is None else seen
    actions, values, worth = values_of(agent, observations)
    with torch.no_grad():
        known = model.q_net(torch.as_tensor(seen))
    assert len(actions) == OBSERVATIONS and len(actions.unique()) > 1
    assert np.array_equal(actions.numpy(), model.predict(seen, deterministic=True)[0])
    torch.testing.assert_close(values, known, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(worth, known.amax(-1), rtol=1e-4, atol=1e-5)


def test_a_dqn_goes_on_as_a_dqn_that_acts_alike(tmp_path):
    settings = {"gamma": 0.95, "learning_starts": 50, "batch_size": 16, "train_freq": 2, "gradient_steps": 3}
    target = {"tau": 0.5, "target_update_interval": 20, "buffer_size": 500, "learning_rate": 1e-3}
    explore = {"exploration_fraction": 0.5, "exploration_final_eps": 0.2, "max_grad_norm": 7}
    model = DQN("MlpPolicy", "CartPole-v1", **settings, **target, **explore, seed=1, device="cpu")
    model.learn(200)
    model.save(tmp_path / "dqn.zip")
    run, notes = from_sb3(tmp_path / "dqn.zip", "cartpole", [*QUIET, f"run.folder={tmp_path}"], "dqn")
    experiment, agent = load_agent(run, "cpu")
    assert experiment.model.activation == "relu"  # DQN's own default
    assert any("goes on as DQN" in note for note in notes)
    assert not any("train_freq" in note for note in notes)
    assert any("VecNormalize" in note and "assumed not" in note for note in notes)  # its file does not tell
    algorithm = experiment.algorithm
    assert experiment.algorithm_class.name == "dqn" and experiment.world["num_envs"] == 1
    assert (algorithm.dueling, algorithm.double, algorithm.num_steps, algorithm.scale_rewards) == (
        False,
        False,
        1,
        False,
    )
    assert (algorithm.gamma, algorithm.batch_size, algorithm.rollout_steps, algorithm.replay_size) == (0.95, 16, 2, 500)
    assert (algorithm.learning_rate.initial, algorithm.max_grad_norm, algorithm.target_rate) == (1e-3, 7, 0.5)
    assert algorithm.replay_ratio == 16 * 3 / 2  # frames learned from per frame played
    assert algorithm.target_interval == 30  # updates within 20 frames
    assert (algorithm.epsilon_initial, algorithm.epsilon_final, algorithm.epsilon_frames) == (1.0, 0.2, 100)
    assert agent.exploration.epsilon.item() == pytest.approx(model.exploration_rate)
    assert_same_values(agent, model, cartpole_observations())
    state = torch.load(find_checkpoint(run), weights_only=True)
    learning, behind = model.q_net.state_dict(), model.q_net_target.state_dict()
    assert not torch.equal(learning["q_net.0.weight"], behind["q_net.0.weight"])  # else the next line proves nothing
    kept = list(state["algorithm"]["target"].values())
    assert all(any(torch.equal(value, mine) for mine in kept) for value in behind.values())
    assert state["algorithm"]["counters"]["frames"] == 200
    assert cli.main(["resume", str(run), "total_frames=300"]) == 0
    after = torch.load(find_checkpoint(run), weights_only=True)["algorithm"]["counters"]
    assert after["updates"] == (300 - 200 - 50 + 2) // 2 * 3  # none before the replay holds 50 frames


def test_a_dqn_behind_vecnormalize_acts_alike(tmp_path):
    worlds = VecNormalize(make_vec_env("CartPole-v1", 2, seed=1), gamma=0.9, clip_obs=3.0)
    settings = {"learning_starts": 20, "gamma": 0.9, "gradient_steps": -1, "policy_kwargs": RELU}
    model = DQN("MlpPolicy", worlds, **settings, seed=1, device="cpu")
    model.learn(200)
    observations = cartpole_observations()
    with torch.no_grad():  # so that it does not always do the same
        model.q_net.q_net[-1].bias -= model.q_net(torch.as_tensor(worlds.normalize_obs(observations))).mean(0)
    model.save(tmp_path / "dqn.zip")
    worlds.save(str(tmp_path / "dqn.pkl"))
    arguments = {"vecnormalize": tmp_path / "dqn.pkl", "trust": True}
    run, _ = from_sb3(tmp_path / "dqn.zip", "cartpole", [*QUIET, f"run.folder={tmp_path}"], "dqn", **arguments)
    experiment, agent = load_agent(run, "cpu")
    algorithm = experiment.algorithm
    assert (algorithm.scale_rewards, algorithm.replay_ratio, algorithm.target_interval) == (
        True,
        32,
        10_000,
    )  # an update per frame
    assert_same_values(agent, model, observations, worlds.normalize_obs(observations))


def test_how_often_a_dqn_trains_is_read_or_assumed(tmp_path):
    path = save(tmp_path / "episodes.zip", algorithm=DQN, train_freq=(1, "episode"))
    run, notes = from_sb3(path, "cartpole", [*QUIET, f"run.folder={tmp_path}"], "episodes")
    assert any(note == "train_freq counts episodes: algorithm.rollout_steps is 4" for note in notes)
    incomplete = edited(tmp_path / "incomplete.zip", path, lambda data: data.pop("train_freq"))
    _, notes = from_sb3(incomplete, "cartpole", [*QUIET, f"run.folder={tmp_path}"], "incomplete")
    assert any(note.startswith("train_freq cannot be read") for note in notes)
    assert load_agent(run, "cpu")[0].algorithm.rollout_steps == 4


def test_a_policy_is_not_made_of_action_values_nor_the_other_way_round(folder, tmp_path):
    values = save(tmp_path / "dqn.zip", algorithm=DQN)
    assert "holds action values" in refusal(values, overrides=["algorithm=ppo"])
    assert "holds a policy" in refusal(folder / "cartpole.zip", overrides=["algorithm=dqn"])


# --- what is assumed or refused ---------------------------------------------------------------------------------------


def save(path, world="CartPole-v1", algorithm=PPO, policy="MlpPolicy", **arguments):
    algorithm(policy, world, device="cpu", **arguments).save(path)
    return path


def edited(path, source, edit):
    """A copy of a model with its JSON changed by ``edit(data)``."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "data":
                data = json.loads(content)
                edit(data)
                content = json.dumps(data).encode()
            new.writestr(name, content)
    return path


def refusal(model, config="cartpole", overrides=(), **arguments):
    """The one sentence with which a model is refused; no run is left."""
    with pytest.raises(ValueError) as caught:
        from_sb3(Path(model), config, [*QUIET, f"run.folder={Path(model).parent / 'none'}", *overrides], **arguments)
    assert not (Path(model).parent / "none").exists()
    sentence = str(caught.value)
    assert "\n" not in sentence and sentence.endswith(".")
    return sentence


def test_the_activation_is_read_asked_for_or_assumed_never_guessed(folder, tmp_path):
    known, other = read_archive(folder / "arena.zip"), read_archive(folder / "cartpole.zip")
    assert find_activation(known, None) == ("relu", "named in policy_kwargs")
    assert find_activation(other, "elu") == ("elu", "as asked for")
    assert find_activation(other, None)[0] == "tanh"
    with pytest.raises(ValueError, match="trained with activation relu, not tanh"):
        find_activation(known, "tanh")
    strange = save(tmp_path / "strange.zip", policy_kwargs={"activation_fn": lambda: nn.ReLU()})
    assert find_activation(read_archive(strange), "relu")[0] == "relu"
    assert "--activation" in refusal(strange)
    assert "LeakyReLU" in refusal(save(tmp_path / "leaky.zip", policy_kwargs={"activation_fn": nn.LeakyReLU}))


def test_pickles_are_never_executed_without_consent(folder, tmp_path):
    bomb = pickle.dumps(Bomb(tmp_path / "exploded"), protocol=2)
    entry = {":type:": "<class 'dict'>", ":serialized:": base64.b64encode(bomb).decode()}
    path = edited(tmp_path / "bomb.zip", folder / "cartpole.zip", lambda data: data.update(policy_kwargs=entry))
    run, _ = from_sb3(path, "cartpole", [*QUIET, f"run.folder={tmp_path}"], "safe")
    assert (run / "config.yaml").is_file()
    (tmp_path / "bomb.pkl").write_bytes(bomb)
    assert "--trust" in refusal(path, vecnormalize=tmp_path / "bomb.pkl")
    with zipfile.ZipFile(tmp_path / "weights.zip", "w") as file:
        file.writestr("data", "{}")
        file.writestr("policy.pth", bomb)
    assert "wants to execute" in refusal(tmp_path / "weights.zip")
    assert not (tmp_path / "exploded").exists()
    pickle.loads(bomb)
    assert (tmp_path / "exploded").exists()  # it would have


def test_only_pickles_and_the_way_back_need_the_library(folder, arena_run, tmp_path, monkeypatch):
    real = builtins.__import__

    def refuse(name, names=None, *arguments, **kwargs):
        if name.startswith("stable_baselines3") and (names or {}).get("__name__", "").startswith("torchrl_agent"):
            raise ImportError(name)
        return real(name, names, *arguments, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    run, _ = from_sb3(folder / "cartpole.zip", "cartpole", [*QUIET, f"run.folder={tmp_path}"], "without")
    assert find_checkpoint(run).is_file()
    with pytest.raises(ValueError, match=r'pip install "torchrl-agent\[sb3\]"'):
        to_sb3(arena_run, tmp_path / "back.zip")


def test_unreadable_hyper_parameters_are_named(tmp_path):
    path = save(tmp_path / "schedule.zip", learning_rate=lambda left: left * 1e-3, n_steps=16, batch_size=16)
    run, notes = from_sb3(path, "cartpole", [*QUIET, f"run.folder={tmp_path}"], "schedule")
    assert any(note.startswith("learning_rate cannot be read") for note in notes)
    experiment, _ = load_agent(run, "cpu")
    assert (
        experiment.algorithm.learning_rate.initial == 1e-3 and experiment.algorithm.learning_rate.schedule == "linear"
    )


def test_statistics_are_asked_for_and_pickles_only_with_consent(folder, tmp_path):
    model = folder / "arena.zip"
    assert "--vecnormalize" in refusal(model, "arena_long")
    assert "--trust" in refusal(model, "arena_long", vecnormalize=folder / "arena.pkl")
    assert "no statistics file" in refusal(model, "arena_long", vecnormalize=tmp_path / "missing.pkl", trust=True)
    (tmp_path / "damaged.pkl").write_bytes(b"nothing")
    assert "no file of VecNormalize" in refusal(model, "arena_long", vecnormalize=tmp_path / "damaged.pkl", trust=True)
    (tmp_path / "other.pkl").write_bytes(pickle.dumps([1]))
    assert "holds a list" in refusal(model, "arena_long", vecnormalize=tmp_path / "other.pkl", trust=True)
    short = {name: [0.0] for name in STATISTICS}
    (tmp_path / "short.json").write_text(json.dumps(short))
    (tmp_path / "part.json").write_text(json.dumps({"obs_mean": [0.0]}))
    (tmp_path / "half.json").write_text(json.dumps({"ret_mean": 0.0, "ret_var": 1.0}))
    assert "lacks ret_count" in refusal(model, "arena_long", vecnormalize=tmp_path / "half.json")
    assert "lacks obs_var" in refusal(model, "arena_long", vecnormalize=tmp_path / "part.json")
    assert "obs_mean has shape" in refusal(model, "arena_long", vecnormalize=tmp_path / "short.json")
    worlds = VecNormalize(make_vec_env("CartPole-v1", 1), epsilon=1e-4)
    worlds.save(str(tmp_path / "epsilon.pkl"))
    assert "epsilon" in refusal(model, "arena_long", vecnormalize=tmp_path / "epsilon.pkl", trust=True)


def test_rewards_can_be_scaled_without_observations(tmp_path):
    worlds = VecNormalize(make_vec_env("CartPole-v1", 2), norm_obs=False)
    model = PPO("MlpPolicy", worlds, n_steps=16, batch_size=16, device="cpu")
    model.learn(32)
    model.save(tmp_path / "model.zip")
    worlds.save(str(tmp_path / "rewards.pkl"))
    arguments = {"vecnormalize": tmp_path / "rewards.pkl", "trust": True}
    run, _ = from_sb3(tmp_path / "model.zip", "cartpole", [*QUIET, f"run.folder={tmp_path}"], "rewards", **arguments)
    experiment, agent = load_agent(run, "cpu")
    assert experiment.algorithm.scale_rewards and not experiment.model.normalize_observations
    observations = cartpole_observations()
    assert_alike(ours(agent, observations), theirs(PPO.load(tmp_path / "model.zip"), observations))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"algorithm": DDPG, "world": "Pendulum-v1", "buffer_size": 10}, "one network of action values"),
        ({"algorithm": SAC, "world": "Pendulum-v1", "buffer_size": 10, "use_sde": True}, "explores by state"),
        ({"world": "Pendulum-v1", "use_sde": True}, "explores by state (use_sde=True)"),
        ({"world": "FrozenLake-v1"}, "sees a Discrete"),
    ],
    ids=["ddpg", "sac", "sde", "discrete"],
)
def test_unsupported_models_are_refused_in_one_sentence(tmp_path, arguments, named):
    assert named in refusal(save(tmp_path / "model.zip", **arguments))


def test_other_files_and_other_worlds_are_refused(folder, tmp_path):
    assert "no file" in refusal(tmp_path / "missing.zip")
    (tmp_path / "text.zip").write_text("text")
    assert "no zip archive" in refusal(tmp_path / "text.zip")
    with zipfile.ZipFile(tmp_path / "foreign.zip", "w") as file:
        file.writestr("data", "{}")
    assert "no model of Stable-Baselines3" in refusal(tmp_path / "foreign.zip")
    cut = edited(tmp_path / "cut.zip", folder / "cartpole.zip", lambda data: data.pop("observation_space"))
    assert "observation_space" in refusal(cut)
    sentence = refusal(folder / "cartpole.zip", "arena_long")
    assert "sees 4 numbers" in sentence and "observation [32]" in sentence and "--config" in sentence
    assert "leave it out" in refusal(folder / "cartpole.zip", overrides=["model.activation=relu"])


# --- to Stable-Baselines3 ---------------------------------------------------------------------------------------------


def test_a_run_of_ours_becomes_a_model_that_predicts_alike(tmp_path, capsys):
    run = tmp_path / "first"
    sizes = ["model.hidden_sizes=[24, 16]", "model.activation=silu", "total_frames=1024"]
    assert cli.main(["train", "smoke", f"run.folder={tmp_path}", "run.name=first", *sizes, *QUIET]) == 0
    assert cli.main(["convert", "to-sb3", str(run), str(tmp_path / "model.zip")]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2:] == [str(tmp_path / "model.zip"), str(tmp_path / "model.vecnormalize.pkl")]
    experiment, agent = load_agent(run, "cpu")
    playing = StableBaselinesVecEnv(experiment.make_world(evaluation=True, num_envs=20, seed=4))
    worlds = VecNormalize.load(str(tmp_path / "model.vecnormalize.pkl"), playing)
    worlds.training = False
    model = PPO.load(tmp_path / "model.zip", env=worlds, device="cpu")  # its spaces are the world's
    assert model.num_timesteps == 1024 and model.gamma == experiment.algorithm.gamma
    raw = [playing.reset()] + [playing.step(np.full(20, step % 5))[0] for step in range(49)]
    raw = np.concatenate(raw)
    assert_alike(ours(agent, raw), theirs(model, worlds.normalize_obs(raw)))
    model.n_epochs = 1
    model.learn(model.n_steps * 20, reset_num_timesteps=False)  # and it goes on


def test_there_and_back_again_is_the_same(folder, tmp_path):
    run, _ = from_sb3(folder / "cartpole.zip", "cartpole", [*QUIET, f"run.folder={tmp_path}"], "there")
    paths, _ = to_sb3(run, tmp_path / "back")
    assert paths == [tmp_path / "back.zip"]  # nothing is normalized, so no statistics
    with pytest.raises(ValueError, match=r"back.zip/more.zip cannot be written: choose another file"):
        to_sb3(run, paths[0] / "more.zip")
    assert to_sb3(run, tmp_path / "new" / "folder" / "back.zip")[0][0].is_file()
    before, after = A2C.load(folder / "cartpole.zip"), A2C.load(paths[0])
    old, new = before.policy.state_dict(), after.policy.state_dict()
    assert old.keys() == new.keys() and all(torch.equal(old[name], new[name]) for name in old)
    assert after.observation_space == gymnasium.make("CartPole-v1").observation_space
    assert after.action_space == before.action_space


def test_statistics_go_there_and_back(folder, arena_run, tmp_path):
    paths, _ = to_sb3(arena_run, tmp_path / "back.zip")
    with paths[1].open("rb") as back, (folder / "arena.pkl").open("rb") as first:
        after, before = pickle.load(back), pickle.load(first)
    np.testing.assert_allclose(after.obs_rms.var, before.obs_rms.var, rtol=1e-6)
    np.testing.assert_allclose(after.ret_rms.mean, before.ret_rms.mean, rtol=1e-6)
    assert after.obs_rms.count == pytest.approx(before.obs_rms.count)
    assert after.ret_rms.count == pytest.approx(before.ret_rms.count)
    assert (after.clip_obs, after.gamma, after.epsilon) == (5.0, 0.98, before.epsilon)


def train_small(folder, name, *overrides, config="smoke"):
    """A run of a few frames."""
    common = [f"run.folder={folder}", f"run.name={name}", "total_frames=512", *QUIET]
    eager = ["acceleration.step=false", "acceleration.advantages=false", "acceleration.update=false"]
    assert cli.main(["train", config, *common, *eager, *overrides]) == 0
    return folder / name


def test_action_values_become_a_dqn_that_predicts_alike(tmp_path, capsys):
    short = ["algorithm=dqn", "algorithm={dueling: false, learning_starts: 64, batch_size: 64}", "world.num_envs=4"]
    more = ["algorithm={replay_ratio: 8, target_interval: 5, epsilon_frames: 128, gamma: 0.97}"]
    run = train_small(tmp_path, "values", *short, *more)
    assert cli.main(["convert", "to-sb3", str(run), str(tmp_path / "model.zip")]) == 0
    printed = capsys.readouterr().out
    assert "learns without double Q-learning, returns of 3 steps, which the run has" in printed
    experiment, agent = load_agent(run, "cpu")
    playing = StableBaselinesVecEnv(experiment.make_world(evaluation=True, num_envs=20, seed=4))
    worlds = VecNormalize.load(str(tmp_path / "model.vecnormalize.pkl"), playing)
    worlds.training = False
    model = DQN.load(tmp_path / "model.zip", env=worlds, device="cpu")
    assert (model.num_timesteps, model.gamma, model.train_freq.frequency) == (512, 0.97, 8)
    assert model.gradient_steps == 4  # 8 x 32 frames learned from, in batches of 64, per rollout of 8 steps of 4 worlds
    assert (model.target_update_interval, model.exploration_fraction) == (40, 0.25)
    assert model.exploration_rate == pytest.approx(0.05)
    raw = [playing.reset()] + [playing.step(np.full(20, step % 5))[0] for step in range(24)]
    chance = (
        np.random.default_rng(3).normal(size=(500, 32)).astype(np.float32)
    )  # in which it does not always do the same
    raw = np.concatenate([*raw, chance])
    assert_same_values(agent, model, raw, worlds.normalize_obs(raw))
    (statistics,) = (run / "checkpoints").glob("*512.normalization.json")
    back, _ = from_sb3(tmp_path / "model.zip", "smoke", [*QUIET, f"run.folder={tmp_path}"], "back", statistics)
    before, after = experiment.algorithm, load_agent(back, "cpu")[0].algorithm
    for name in ("gamma", "batch_size", "rollout_steps", "replay_ratio", "target_interval", "epsilon_frames"):
        assert getattr(after, name) == getattr(before, name), name


def test_what_dqn_and_sac_runs_cannot_be_is_one_sentence(tmp_path, capsys):
    dueling = train_small(tmp_path, "dueling", "algorithm=dqn")
    soft = train_small(tmp_path, "soft", "algorithm=sac")
    for run, named in ((dueling, "algorithm.dueling=false"), (soft, "SAC of discrete actions")):
        capsys.readouterr()
        assert cli.main(["convert", "to-sb3", str(run), str(tmp_path / "no.zip")]) == 2
        error = capsys.readouterr().err
        assert named in error and error.count("\n") == 1
        assert not (tmp_path / "no.zip").exists()


class Mine(ppo.PPO):
    """An algorithm from outside the package."""

    name = "mine"


def test_an_algorithm_of_ones_own_goes_on_with_a_model_and_not_back(folder, tmp_path):
    words = [*QUIET, f"run.folder={tmp_path}", f"algorithm={class_path(Mine)}"]
    run, _ = from_sb3(folder / "cartpole.zip", "cartpole", words, "mine", trust=True)
    assert load_agent(run, "cpu", trust=True)[0].algorithm_class is Mine
    with pytest.raises(ValueError, match="was trained with mine, which Stable-Baselines3 lacks"):
        to_sb3(run, tmp_path / "mine.zip", trust=True)


@pytest.mark.slow
def test_a_shared_trunk_is_copied_and_a_mind_is_refused(tmp_path, capsys):
    trunk = ["model.shared_trunk=true", "run.name=trunk"]
    common = ["train", "smoke", "total_frames=512", f"run.folder={tmp_path}", *QUIET]
    assert cli.main([*common, *trunk]) == 0
    paths, notes = to_sb3(tmp_path / "trunk", tmp_path / "trunk.zip")
    assert any("shared trunk" in note for note in notes)
    _, agent = load_agent(tmp_path / "trunk", "cpu")
    observations = np.random.default_rng(0).normal(size=(OBSERVATIONS, 32)).astype(np.float32)
    normalized = agent.normalizer.normalize(torch.as_tensor(observations)).numpy()
    assert_alike(ours(agent, observations), theirs(PPO.load(paths[0], device="cpu"), normalized))
    assert cli.main([*common, "model.memory=gru", "run.name=mind"]) == 0
    capsys.readouterr()
    assert cli.main(["convert", "to-sb3", str(tmp_path / "mind"), str(tmp_path / "mind.zip")]) == 2
    error = capsys.readouterr().err
    assert "model.memory" in error and error.count("\n") == 1
    assert not (tmp_path / "mind.zip").exists()


def test_a_ppo_with_masks_acts_alike_in_the_town(tmp_path):
    contrib = pytest.importorskip("sb3_contrib")
    worlds = StableBaselinesVecEnv(TownEnv(20, level="L3"))
    model = contrib.MaskablePPO("MlpPolicy", worlds, n_steps=8, batch_size=32, device="cpu", seed=0)
    model.save(tmp_path / "masks.zip")
    run, _ = from_sb3(tmp_path / "masks.zip", "town", [*QUIET, f"run.folder={tmp_path}"], "masks")
    _, agent = load_agent(run, "cpu")
    seen, chosen = worlds.reset(), []
    for _ in range(50):
        masks = np.stack(worlds.env_method("action_masks"))
        frames = _tensordict({"observation": torch.as_tensor(seen), "action_mask": torch.as_tensor(masks)})
        actions = model.predict(seen, action_masks=masks, deterministic=True)[0]
        assert np.array_equal(agent.actor.get_dist(frames).deterministic_sample.numpy(), actions)
        chosen.append(actions)
        seen = worlds.step(actions)[0]
    assert len(np.unique(chosen)) > 1
