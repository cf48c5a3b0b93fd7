"""Each kind of Stable-Baselines3's policies and algorithms becomes a run, and a run such a model: equal actions on
1,000 observations, equal moments of the optimizer; both train on.
"""

from __future__ import annotations

from inspect import signature

import gymnasium
import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torch import nn

from torchrl_agent import Experiment, train
from torchrl_agent.algorithms.registry import find_algorithm
from torchrl_agent.convert import from_sb3, to_sb3
from torchrl_agent.core.checkpoint import find_checkpoint, load_checkpoint
from torchrl_agent.runs.load import load_agent

pytest.importorskip("stable_baselines3")

from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize, VecTransposeImage

from envs.libs.gymnasium import VectorGymEnv

NUMBER = 1000
"""Observations on which actions are compared."""
EAGER = ["acceleration.step=false", "acceleration.advantages=false", "acceleration.update=false"]
QUIET = ["device=cpu", "run.tensorboard=false", "run.film=false", "run.final_evaluation=false", *EAGER]
BOX = gymnasium.spaces.Box
SPACES = {
    "vector": BOX(-np.inf, np.inf, (4,), np.float32),
    "picture": BOX(0, 255, (3, 36, 36), np.uint8),
    "several": gymnasium.spaces.Dict({"b": BOX(-9, 9, (3,), np.float32), "a": BOX(-9, 9, (2,), np.float32)}),
    "both": gymnasium.spaces.Dict({"a": BOX(-9, 9, (2,), np.float32), "z": BOX(0, 255, (1, 36, 36), np.uint8)}),
}
ACTIONS = {"two": gymnasium.spaces.Discrete(2), "push": BOX(np.array([-2, 0], "f4"), np.array([2, 6], "f4"))}
ACTIONS |= {"one": BOX(-2, 2, (1,), np.float32), "free": BOX(-np.inf, np.inf, (1,), np.float32)}


class Shown(gymnasium.Env):
    """Random observations of a kind; the action is paid."""

    length = 10
    """Steps of an episode."""

    def __init__(self, seen="vector", acts="two", render_mode=None):
        self.observation_space, self.action_space = SPACES[seen], ACTIONS[acts]

    def _see(self):
        self.observation_space.seed(int(self.np_random.integers(1 << 30)))
        return self.observation_space.sample()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self._see(), {}

    def step(self, action):
        self.count += 1
        return self._see(), float(np.sum(action)), False, self.count == self.length, {}


class Reversed(Shown):
    """The same, with the observations named in another order than that of the alphabet."""

    def __init__(self, render_mode=None):
        super().__init__("several")
        spaces = self.observation_space.spaces
        self.observation_space = gymnasium.spaces.Dict([("b", spaces["b"]), ("a", spaces["a"])])


def observations(seen, number=NUMBER):
    """Observations of a kind, a dict of arrays or one array; pictures are of any brightness."""
    space = SPACES[seen]
    space.seed(5)
    each = [space.sample() for _ in range(number)]
    if seen in ("several", "both"):
        return {key: _lit(np.stack([one[key] for one in each])) for key in each[0]}
    return _lit(np.stack(each))


def _lit(values):
    if values.dtype != np.uint8:
        return values
    return (values * np.linspace(0, 1, len(values)).reshape(-1, 1, 1, 1)).astype(np.uint8)


def undecided(model, shown):
    """Let a policy choose one action for half of the observations, clearly."""
    with torch.no_grad():
        model.policy.action_net.weight *= 100
        logits = model.policy.get_distribution(model.policy.obs_to_tensor(shown)[0]).distribution.logits
        model.policy.action_net.bias -= logits.mean(0)


def ours(agent, seen):
    """Most likely actions and values of an agent."""
    root = {
        key: torch.as_tensor(value)
        for key, value in (seen if isinstance(seen, dict) else {"observation": seen}).items()
    }
    with torch.no_grad():
        frames = agent.critic(agent.encoder(TensorDict(root, [len(next(iter(root.values())))])))
        actions = agent.actor_head.get_dist(frames).deterministic_sample
    return actions, frames["state_value"].squeeze(-1)


def assert_alike(agent, model, seen, shown=None):
    """Both act alike on the observations; ``shown`` is what VecNormalize makes of them. Values, too, of a critic."""
    shown = seen if shown is None else shown
    actions, worth = ours(agent, seen)
    theirs = torch.as_tensor(model.predict(shown, deterministic=True)[0])
    assert len(actions) == NUMBER and len(actions.unique(dim=0)) > 1
    torch.testing.assert_close(actions, theirs, rtol=1e-4, atol=1e-5)
    if hasattr(model.policy, "predict_values"):
        with torch.no_grad():
            values = model.policy.predict_values(model.policy.obs_to_tensor(shown)[0])
        torch.testing.assert_close(worth, values.squeeze(-1), rtol=1e-3, atol=1e-4)


def moments(model):
    """States of a model's optimizers, by the names of its weights."""
    names = {parameter: name for name, parameter in model.policy.named_parameters()}
    owners = [model.policy, getattr(model.policy, "actor", None), getattr(model.policy, "critic", None)]
    found = [owner.optimizer for owner in owners if getattr(owner, "optimizer", None) is not None]
    return {names[parameter]: state for each in found for parameter, state in each.state.items()}


def assert_same_moments(after, before, columns=slice(None)):
    """The moments of two models are equal, those of first layers in these ``columns`` of the later one."""
    first, second = moments(before), moments(after)
    assert first.keys() == second.keys() and first
    for name, state in first.items():
        for key, value in state.items():
            found = second[name][key]
            found = found[:, columns] if name.endswith("_net.0.weight") and found.ndim else found
            torch.testing.assert_close(found, torch.as_tensor(value), rtol=1e-4, atol=1e-8)


def there_and_back(tmp_path, model, seen, acts, *, world=Shown, normalizer=None):
    """Convert a model, compare, convert it back, compare, and train both on; returns experiment,
    agent and checkpoint of the run.
    """
    model.save(tmp_path / "model.zip")
    words = [f"run.folder={tmp_path}", *QUIET, "evaluation.episodes=1"]
    words += [f"+world.seen={seen}", f"+world.acts={acts}"] if world is Shown else []
    shown, files = None, {}
    if normalizer is not None:
        normalizer.save(str(tmp_path / "statistics.pkl"))
        files = {"vecnormalize": tmp_path / "statistics.pkl", "trust": True}
        shown = normalizer.normalize_obs(observations(seen))
    run, notes = from_sb3(tmp_path / "model.zip", world, words, "there", **files)
    assert "the moments of the optimizer are taken over" in notes
    experiment, agent = load_agent(run, "cpu")
    assert_alike(agent, model, observations(seen), shown)
    paths, notes = to_sb3(run, tmp_path / "back")
    assert "the moments of the optimizer are taken over" in notes
    env = DummyVecEnv([lambda: world(seen, acts) if world is Shown else world()])
    back = type(model).load(paths[0], env=env, device="cpu")
    assert_alike(agent, back, observations(seen), shown)
    # the model written has its observations in the order of the alphabet
    assert_same_moments(back, model, [2, 3, 4, 0, 1] if world is Reversed else slice(None))
    back.learn(16)
    state = trains_on(experiment, run)
    return experiment, agent, state


def trains_on(experiment, run):
    """Train a run on for some rollouts, from its checkpoint; returns what the checkpoint holds."""
    state, learner = load_checkpoint(find_checkpoint(run)), experiment.make_learner()
    learner.load_state_dict(state)
    before = [each.clone() for each in learner.agent.parameters()]
    for _ in range(12):
        learner.improve(learner.collector.collect(), 1e-3)
    assert any(not torch.equal(old, new) for old, new in zip(before, learner.agent.parameters(), strict=True))
    assert all(bool(each.isfinite().all()) for each in learner.agent.parameters())
    return load_checkpoint(find_checkpoint(run))


SMALL = {"n_steps": 16, "seed": 1, "device": "cpu"}
POLICIES = {"vector": "MlpPolicy", "picture": "CnnPolicy", "several": "MultiInputPolicy", "both": "MultiInputPolicy"}


@pytest.mark.parametrize("seen", POLICIES)
def test_a_policy_of_each_kind_of_observations(tmp_path, seen):
    layers = {"both": {"net_arch": [16], "activation_fn": nn.ReLU}}.get(seen, {})
    model = PPO(POLICIES[seen], Shown(seen), batch_size=16, n_epochs=2, policy_kwargs=layers, **SMALL).learn(32)
    undecided(model, observations(seen))
    there_and_back(tmp_path, model, seen, "two")


@pytest.mark.parametrize(
    ("acts", "kind", "options"),
    [("two", "rmsprop", {}), ("push", "adam", {"use_rms_prop": False})],
    ids=["two", "push"],
)
def test_an_a2c_stays_an_a2c(tmp_path, acts, kind, options):
    model = A2C("MlpPolicy", Shown("vector", acts), **SMALL, **options).learn(64)
    experiment, *_ = there_and_back(tmp_path, model, "vector", acts)
    assert (experiment.algorithm_class.name, experiment.algorithm.optimizer) == ("a2c", kind)


@pytest.mark.parametrize("sizes", [{"pi": [8], "vf": [16, 12]}, []], ids=["apart", "linear"])
def test_networks_of_policy_and_value_may_differ_or_be_linear(tmp_path, sizes):
    model = PPO("MlpPolicy", Shown(), batch_size=16, policy_kwargs={"net_arch": sizes}, **SMALL).learn(32)
    experiment, *_ = there_and_back(tmp_path, model, "vector", "two")
    model = experiment.model
    assert (model.hidden_sizes, model.critic_hidden_sizes) == (([8], [16, 12]) if sizes else ([], None))


def policy_of(model, agent, seen):
    """Means before clipping and deviations of continuous actions, theirs and ours."""
    with torch.no_grad():
        theirs = model.policy.get_distribution(torch.as_tensor(seen)).distribution
        ours = agent.actor_head.get_dist(agent.encoder(TensorDict({"observation": torch.as_tensor(seen)}, [len(seen)])))
    return (theirs.mean, theirs.stddev), (ours.loc, ours.scale)


@pytest.mark.parametrize("acts", ["one", "push"])
def test_continuous_actions_and_their_moments_follow_the_unit(tmp_path, acts):
    model = PPO("MlpPolicy", Shown("vector", acts), batch_size=16, **SMALL).learn(64)
    with torch.no_grad():
        model.policy.log_std += torch.linspace(-0.7, 0.4, len(model.policy.log_std))
        model.policy.action_net.weight *= 30.0  # some actions lie beyond their bounds
    _, agent, state = there_and_back(tmp_path, model, "vector", acts)
    for theirs, ours in zip(*policy_of(model, agent, observations("vector")), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    back = PPO.load(tmp_path / "back.zip", device="cpu")
    torch.testing.assert_close(back.policy.log_std, model.policy.log_std)
    if acts == "one":
        return
    state = state["algorithm"]["optimizer"]["state"]
    (index,) = [i for i, each in enumerate(agent.parameters()) if each is agent.actor_head[0].module.network[-1].bias]
    # theirs is a mean in [-2, 2] and [0, 6], ours in halves of it: a gradient of ours is 2 and 3 times as large
    expected = moments(model)["action_net.bias"]["exp_avg"] * torch.tensor([2.0, 3.0])
    torch.testing.assert_close(state[index]["exp_avg"], expected)


RMSPROP = {"optimizer_class": torch.optim.RMSprop, "optimizer_kwargs": {"alpha": 0.9, "eps": 1e-5}}


@pytest.mark.parametrize(("kind", "options"), [(PPO, {"batch_size": 16}), (A2C, {"policy_kwargs": RMSPROP})])
def test_the_next_step_of_the_optimizer_is_the_models(tmp_path, kind, options):
    model = kind("MlpPolicy", Shown(), **options, **SMALL).learn(64)
    model.save(tmp_path / "model.zip")
    words = [f"run.folder={tmp_path}", *QUIET, "+world.seen=vector", "+world.acts=two"]
    run, _ = from_sb3(tmp_path / "model.zip", Shown, words, "there")
    learner, seen = load_agent(run, "cpu")[0].make_learner(), torch.as_tensor(observations("vector"))
    learner.load_state_dict(load_checkpoint(find_checkpoint(run)))

    def mine():
        frames = learner.agent.critic(learner.agent.actor(TensorDict({"observation": seen}, [NUMBER])))
        return frames["logits"].log_softmax(-1), frames["state_value"]

    def theirs():
        return model.policy.get_distribution(seen).distribution.logits, model.policy.predict_values(seen)

    before, results = theirs(), []
    for optimizer, forward in ((learner.algorithm.updater.optimizer, mine), (model.policy.optimizer, theirs)):
        rate = optimizer.param_groups[0]["lr"]
        optimizer.param_groups[0]["lr"] = torch.full_like(rate, 1e-2) if isinstance(rate, torch.Tensor) else 1e-2
        optimizer.zero_grad()
        logits, values = forward()
        (logits[:, 0].mean() + (values - 1).square().mean()).backward()
        optimizer.step()
        with torch.no_grad():
            results.append(forward())
    for one, other, old in zip(*results, before, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
        assert (one - old).abs().max() > 0.01


@pytest.mark.parametrize("like", [torch.optim.RMSprop, RMSpropTFLike])
def test_an_rmsprop_like_tensorflows_is_noted(tmp_path, like):
    A2C("MlpPolicy", Shown(), policy_kwargs={"optimizer_class": like}, device="cpu").save(tmp_path / "model.zip")
    words = [f"run.folder={tmp_path}", *QUIET, "+world.seen=vector", "+world.acts=two"]
    _, notes = from_sb3(tmp_path / "model.zip", Shown, words, "there")
    assert any("RMSpropTFLike" in note for note in notes) == (like is RMSpropTFLike)


def test_adamw_keeps_its_decay_and_its_epsilon(tmp_path):
    kwargs = {"optimizer_class": torch.optim.AdamW, "optimizer_kwargs": {"weight_decay": 0.1, "eps": 1e-4}}
    model = PPO("MlpPolicy", Shown(), batch_size=16, policy_kwargs=kwargs, **SMALL).learn(32)
    undecided(model, observations("vector"))
    experiment, *_ = there_and_back(tmp_path, model, "vector", "two")
    assert (experiment.algorithm.weight_decay, experiment.algorithm.adam_epsilon) == (0.1, 1e-4)
    optimizer = PPO.load(tmp_path / "back.zip", device="cpu").policy.optimizer
    assert isinstance(optimizer, torch.optim.AdamW)
    assert (optimizer.param_groups[0]["weight_decay"], optimizer.param_groups[0]["eps"]) == (0.1, 1e-4)


def test_several_observations_keep_their_statistics_and_their_order(tmp_path):
    worlds = VecNormalize(DummyVecEnv([Reversed]), gamma=0.9)
    model = PPO("MultiInputPolicy", worlds, batch_size=16, gamma=0.9, **SMALL).learn(64)
    assert list(model.observation_space.spaces) == ["b", "a"]
    worlds.training = False
    undecided(model, worlds.normalize_obs(observations("several")))
    there_and_back(tmp_path, model, "several", "two", world=Reversed, normalizer=worlds)


class Counted(Shown):
    """Observations of the number of the step, channels last."""

    length = 4

    def __init__(self, shape, render_mode=None):
        super().__init__()
        kind = np.float32 if len(shape) == 1 else np.uint8
        self.observation_space = BOX(0, 255, shape, kind)

    def _see(self):
        seen = np.zeros(self.observation_space.shape, self.observation_space.dtype)
        return seen + (1 + self.count + 50 * np.arange(seen.shape[-1])).astype(seen.dtype)


@pytest.mark.parametrize("shape", [(3,), (36, 36, 1), (36, 36, 3)])
def test_stacked_observations_are_those_of_vecframestack(shape):
    theirs = VecFrameStack(DummyVecEnv([lambda: Counted(shape)]), 4)
    theirs = VecTransposeImage(theirs) if len(shape) == 3 else theirs
    stack = {"FrameStackObservation": {"stack_size": 4, "padding_type": "zero"}}
    ours = VectorGymEnv(Counted, wrappers=[stack], shape=shape)
    root, seen = ours.reset(), theirs.reset()
    for _ in range(6):
        assert np.array_equal(root["observation"].numpy(), seen)
        _, root = ours.step_and_maybe_reset(ours.rand_action(root))
        seen = theirs.step([0])[0]


REPLAY = {"learning_starts": 8, "batch_size": 8, "buffer_size": 64, "seed": 1, "device": "cpu"}


@pytest.mark.parametrize("seen", ["picture", "several"])
def test_a_dqn_of_pictures_or_several_observations(tmp_path, seen):
    model = DQN(POLICIES[seen], Shown(seen), target_update_interval=10, **REPLAY).learn(64)
    with torch.no_grad():
        model.q_net.q_net[-1].weight *= 100
        model.q_net.q_net[-1].bias -= model.q_net(model.policy.obs_to_tensor(observations(seen))[0]).mean(0)
    there_and_back(tmp_path, model, seen, "two")


SQUASHED = {
    "sac": (SAC, {"policy_kwargs": {"net_arch": {"pi": [16], "qf": [24, 12]}}}),
    "linear sac": (SAC, {"policy_kwargs": {"net_arch": {"pi": [], "qf": [8]}}}),
    "td3": (TD3, {"action_noise": NormalActionNoise(np.zeros(2), 0.3 * np.ones(2)), "policy_delay": 3}),
}


@pytest.mark.slow
@pytest.mark.parametrize("seen", ["vector", "several"])
@pytest.mark.parametrize("name", SQUASHED)
def test_action_values_of_continuous_actions(tmp_path, name, seen):
    kind, options = SQUASHED[name]
    model = kind(POLICIES[seen], Shown(seen, "push"), **REPLAY, **options).learn(64)
    experiment, agent, state = there_and_back(tmp_path, model, seen, "push")
    algorithm = experiment.algorithm
    assert (
        experiment.algorithm_class is find_algorithm(kind.__name__.lower())
        and algorithm.replay_ratio == 8
        and algorithm.rollout_steps == 1
    )
    assert algorithm.max_grad_norm == float("inf") and algorithm.target_rate == 0.005
    seen_now, action = observations(seen, 20), torch.rand(20, 2) * 2 - 1
    root = seen_now if isinstance(seen_now, dict) else {"observation": seen_now}
    features = agent.encoder(TensorDict({key: torch.as_tensor(value) for key, value in root.items()}, [20]))
    with torch.no_grad():
        mine = agent.action_values(features[agent.actor_head.in_keys[0]], action)
        theirs = torch.stack(model.critic(model.policy.obs_to_tensor(seen_now)[0], action))
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
        if seen == "vector":  # else columns have another order
            target = state["algorithm"]["target"].values()
            assert all(any(torch.equal(value, each) for each in target) for value in model.critic_target.parameters())
        if kind is SAC:
            assert agent.log_alpha.item() == pytest.approx(model.log_ent_coef.item())
            mean, log_std, _ = model.actor.get_action_dist_params(model.policy.obs_to_tensor(seen_now)[0])
            policy = agent.actor_head(features)
            torch.testing.assert_close(policy["scale"], log_std.exp())
            torch.testing.assert_close(policy["loc"], mean)
        else:
            assert (algorithm.exploration_noise, algorithm.policy_delay, algorithm.target_noise) == (0.3, 3, 0.2)


ROWS, STEPS = 20, 50


def test_actions_without_bounds_are_refused_as_stable_baselines3_does(tmp_path):
    small = ["+world.acts=free", "total_frames=64", "algorithm.rollout_steps=16", "world.num_envs=2"]
    list(train(Experiment.load(Shown, *small, *QUIET, f"run.folder={tmp_path}", "run.name=none")))
    with pytest.raises(ValueError, match="takes actions without bounds, which Stable-Baselines3 refuses"):
        to_sb3(tmp_path / "none", tmp_path / "model.zip")


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True], ids=["two", "shared"])
def test_a_recurrent_ppo_goes_there_and_back(tmp_path, shared):
    contrib = pytest.importorskip("sb3_contrib")
    from sb3_contrib.common.recurrent.type_aliases import RNNStates

    lstm = {"lstm_hidden_size": 12, "shared_lstm": shared, "enable_critic_lstm": not shared, "net_arch": [8]}
    model = contrib.RecurrentPPO("MultiInputLstmPolicy", Shown("several"), batch_size=16, policy_kwargs=lstm, **SMALL)
    model.learn(32)
    with torch.no_grad():
        model.policy.action_net.weight *= 100
    model.save(tmp_path / "model.zip")
    words = ["+world.seen=several", f"run.folder={tmp_path}", *QUIET, "evaluation.episodes=1"]
    run, notes = from_sb3(tmp_path / "model.zip", Shown, words, "there")
    assert "the moments of the optimizer are taken over" in notes
    _, agent = load_agent(run, "cpu")
    paths, _ = to_sb3(run, tmp_path / "back")
    back = contrib.RecurrentPPO.load(paths[0], env=DummyVecEnv([lambda: Shown("several")]), device="cpu")
    if shared:
        assert_same_moments(back, model)
    memory = {key: torch.zeros(ROWS, *spec.shape) for key, spec in agent.memory.items()}
    empty = [(torch.zeros(1, ROWS, each.policy.lstm_actor.hidden_size),) * 2 for each in (model, back)]
    seen, states = observations("several"), [RNNStates(each, each) for each in empty]
    begins = torch.rand(STEPS, ROWS, generator=torch.Generator().manual_seed(0)) < 0.05
    begins[0] = True
    for step in range(STEPS):
        now = {key: value[step * ROWS : (step + 1) * ROWS] for key, value in seen.items()}
        first = begins[step].unsqueeze(-1)
        root = TensorDict(
            {**{key: torch.as_tensor(value) for key, value in now.items()}, "is_init": first, **memory}, [ROWS]
        )
        with torch.no_grad():
            frames = agent.critic(agent.actor(root))
        memory = {key: frames["next", key] for key in agent.memory}
        for place, policy in enumerate((model.policy, back.policy)):
            with torch.no_grad():
                given = policy.obs_to_tensor(now)[0], states[place], begins[step].float()
                actions, values, _, states[place] = policy(*given, deterministic=True)
            assert torch.equal(frames["logits"].argmax(-1), actions)
            torch.testing.assert_close(frames["state_value"], values, rtol=1e-4, atol=1e-5)
    back.learn(16)
    trains_on(load_agent(run, "cpu")[0], run)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"seen": "both", "policy": "MultiInputPolicy"}, "convolutions with relu before layers with tanh"),
        (
            {"seen": "picture", "policy": "CnnPolicy", "share_features_extractor": False},
            "share_features_extractor=False",
        ),
        ({"seen": "picture", "policy": "CnnPolicy", "normalize_images": False}, "divide them by 255"),
        ({"seen": "picture", "policy": "CnnPolicy", "kind": SAC, "acts": "push"}, "an encoder of pictures for each"),
        (
            {"seen": "vector", "policy": "MlpPolicy", "kind": SAC, "acts": "push", "n_critics": 3},
            "more than two networks",
        ),
        (
            {"seen": "vector", "policy": "MlpPolicy", "kind": "TQC", "acts": "push"},
            "quantiles of action values (a TQC)",
        ),
        (
            {"seen": "vector", "policy": "MlpLstmPolicy", "kind": "RecurrentPPO", "lstm_kwargs": {"bias": False}},
            "an LSTM without biases",
        ),
    ],
    ids=["mixed", "apart", "bytes", "sac", "three", "tqc", "biases"],
)
def test_what_ours_cannot_be_is_one_sentence(tmp_path, arguments, named):
    seen, policy, kind = arguments.pop("seen"), arguments.pop("policy"), arguments.pop("kind", PPO)
    kind = getattr(pytest.importorskip("sb3_contrib"), kind) if isinstance(kind, str) else kind
    options = {"buffer_size": 8} if "buffer_size" in signature(kind).parameters else {"n_steps": 8, "batch_size": 8}
    kind(policy, Shown(seen, arguments.pop("acts", "two")), device="cpu", policy_kwargs=arguments, **options).save(
        tmp_path / "m"
    )
    with pytest.raises(ValueError) as caught:
        from_sb3(tmp_path / "m.zip", Shown, [f"+world.seen={seen}", *QUIET, f"run.folder={tmp_path}"])
    assert named in str(caught.value) and "\n" not in str(caught.value) and str(caught.value).endswith(".")
