"""Conversion of a run's agent to a Stable-Baselines3 model."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from torchrl.data import Bounded, TensorSpec
from torchrl.envs import EnvBase

from torchrl_agent.convert import layout, off_policy
from torchrl_agent.convert.moments import FRESH, write_moments
from torchrl_agent.convert.networks import Correspondence, linear_layers
from torchrl_agent.convert.normalization import apart
from torchrl_agent.convert.pairs import values
from torchrl_agent.convert.run_files import open_run, write_files
from torchrl_agent.convert.settings import KNOWN, known
from torchrl_agent.core import keys
from torchrl_agent.experiment import Experiment
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.config import critic_sizes
from torchrl_agent.modules.networks import ACTIVATIONS
from torchrl_agent.modules.specs import action_bounds, action_heads, group_spec, mixed_choices, observation_shapes
from torchrl_agent.transforms import read_statistics

ALGORITHMS = {"ppo": "PPO", "impala": "PPO", "a2c": "A2C", "dqn": "DQN", "sac": "SAC", "td3": "TD3"}
"""Stable-Baselines3's algorithm that goes on with an agent of ours."""


def to_sb3(run: Path | str, output: Path, which: str = "last", trust: bool = False) -> tuple[list[Path], list[str]]:
    """Write the agent of a run as a model of the same algorithm (IMPALA as PPO, one with an LSTM as RecurrentPPO); and
    if the run normalizes anything, its statistics beside it for ``VecNormalize.load``: ``NAME.vecnormalize.pkl``.

    Args:
        run: a run folder, a checkpoint file inside one, or an agent that comes with the package (``shipped:NAME``).
        output: path of the model; ``.zip`` is added if missing.
        which: ``last`` or ``best``.
        trust: see :func:`~torchrl_agent.runs.load.load_agent`.

    Returns:
        The files written, and notes on what could not be converted.

    Raises:
        ValueError: Stable-Baselines3 is not installed, the agent is more than plain networks, or a file cannot be
            written.
    """
    checkpoint, experiment, agent, saved = open_run(run, which, trust)
    world = experiment.make_world(evaluation=True, num_envs=1)
    _check(run, experiment, world)
    algorithm = "RecurrentPPO" if experiment.model.memory == "lstm" else ALGORITHMS[experiment.algorithm_class.name]
    kind, vectorized = _library(algorithm)
    spaces = _spaces(world)
    stand_in = functools.partial(_StandIn, *spaces)
    worlds = vectorized([stand_in] * int(experiment.world.get("num_envs", 1)))
    policy = _policy_name(spaces[0], algorithm)
    model = kind(policy, worlds, **_arguments(experiment, agent, algorithm), seed=experiment.seed, device="cpu")
    model.num_timesteps = saved["frames"]
    notes = _notes(experiment, world, algorithm)
    notes.append(_copy(model, experiment, agent, algorithm, saved))
    path = output if output.suffix == ".zip" else output.with_name(f"{output.name}.zip")
    files: dict[Path, Callable[[Path], object]] = {path: model.save}
    if experiment.model.normalize_observations or experiment.algorithm.scale_rewards:
        sizes = {key: shape.numel() for key, shape in observation_shapes(world).items()}
        statistics = _vecnormalize(experiment, worlds, checkpoint.with_suffix(".normalization.json"), sizes)
        files[path.with_suffix(".vecnormalize.pkl")] = statistics.save
    return write_files(files), notes


def _library(algorithm: str) -> tuple[Any, Any]:
    """Return the class of an algorithm, and the one that joins environments."""
    package = "sb3_contrib" if algorithm == "RecurrentPPO" else "stable_baselines3"  # an extra
    try:
        from stable_baselines3.common.vec_env import DummyVecEnv

        return getattr(importlib.import_module(package), algorithm), DummyVecEnv
    except ImportError:
        raise ValueError(f'{package} is not installed: pip install "torchrl-agent[sb3]".') from None


def _copy(model: Any, experiment: Experiment, agent: Agent, algorithm: str, saved: dict[str, Any]) -> str:
    """Copy weights, moments and exploration; returns a note on the moments."""
    model_config = experiment.model
    memories = {"lstm_actor.": model_config.perception.memory_size} if algorithm == "RecurrentPPO" else {}
    space = model.observation_space
    seen = list(space.spaces) if isinstance(space, gymnasium.spaces.Dict) else [""]
    trunk = linear_layers(agent.encoder[-1]) if model_config.shared_trunk else []
    pairs = Correspondence(agent, algorithm, list(model.policy.state_dict()), seen, memories, trunk)
    weights = values([*pairs.pairs(target=True), *pairs.pairs()])
    again = {f"{part}_{name}": value for name, value in weights.items() for part in ("pi", "vf") if name[0] == "f"}
    model.policy.load_state_dict({**weights, **again} if algorithm not in layout.OFF_POLICY else weights)
    if algorithm in layout.OFF_POLICY:
        off_policy.set_state(model, agent, experiment)
    copied = bool(trunk) and algorithm != "DQN"
    if copied or experiment.frozen or (algorithm == "PPO" and experiment.algorithm_class.name != "ppo"):
        return f"{FRESH}, its moments are not taken over"
    return write_moments(model, pairs.pairs(), agent, saved)


def _policy_name(seen: gymnasium.spaces.Space, algorithm: str) -> str:
    """Return Stable-Baselines3's name of the policy for an observation space."""
    kind = "MultiInput" if isinstance(seen, gymnasium.spaces.Dict) else "Cnn" if len(seen.shape or ()) == 3 else "Mlp"
    return f"{kind}{'Lstm' if algorithm == 'RecurrentPPO' else ''}Policy"


def _check(run: Path | str, experiment: Experiment, world: EnvBase) -> None:
    """Raise ValueError unless the agent is of networks that Stable-Baselines3 has, too."""
    model, config, shapes = experiment.model, experiment.algorithm, observation_shapes(world)
    perception, pictures = model.perception, [name for name, shape in shapes.items() if len(shape) == 3]
    name, bounds = experiment.algorithm_class.name, action_bounds(world)
    plain = perception.plain and all(perception.encoders.get(key) == "nature" for key in pictures)
    lstm = model.memory == "lstm" and perception.plain and not perception.skip_connection
    more = {
        "model.layer_norm": model.layer_norm,
        "model.memory": model.memory != "none" and not lstm,
        "model.perception.enabled": perception.enabled and not plain,
        "a vector encoder in model.perception.encoders": any(key not in pictures for key in perception.encoders),
        "a picture whose convolutions are no relu": bool(pictures) and model.activation != "relu",
        "normalized pictures": bool(pictures) and model.normalize_observations,
        "model.centralized_critic": model.centralized_critic,
        "a module behind its beliefs": bool(model.custom_modules) or model.manager.enabled or model.world_model.enabled,
    }
    only = (
        "only agents of plain networks can be converted (with model.perception.plain=true, encoders nature and "
        "activation relu for pictures, and memory=lstm without skip_connection)"
    )
    refused = {f"has {what}: {only}": present for what, present in more.items()} | {
        f"was trained with {name}, which Stable-Baselines3 lacks": name not in ALGORITHMS,
        "takes choices and numbers at once, which Stable-Baselines3 does not know": bool(mixed_choices(world)),
        "takes actions without bounds, which Stable-Baselines3 refuses: give the world bounds": bounds is not None
        and not all(bool(end.isfinite().all()) for end in bounds),
        "is a SAC of discrete actions, which Stable-Baselines3 lacks: train it with dqn or ppo": name == "sac"
        and bounds is None,
        "was trained with algorithm.deviation=softplus, Stable-Baselines3's SAC has exp: train it with "
        "algorithm.deviation=exp": name == "sac" and config.deviation != "exp",
        "shares an encoder or a trunk between policy and values, Stable-Baselines3 has one for each: convert a run of "
        "ppo, a2c or dqn": name in ("sac", "td3") and (bool(pictures) or model.shared_trunk),
        "was trained with algorithm.dueling=true, which Stable-Baselines3's DQN does not know: train it with "
        "algorithm.dueling=false": getattr(config, "dueling", False),
    }
    found = next((what for what, present in refused.items() if present), None)
    if found is not None:
        raise ValueError(f"{run} {found}.")


def _spaces(world: EnvBase) -> tuple[gymnasium.spaces.Space, gymnasium.spaces.Space]:
    """Return one agent's observation and action spaces of Gymnasium."""
    specs, bounds = group_spec(world), action_bounds(world)
    boxes = {name: _box(specs[name], tuple(shape)) for name, shape in observation_shapes(world).items()}
    seen = next(iter(boxes.values())) if len(boxes) == 1 else gymnasium.spaces.Dict(boxes)
    if bounds is not None:
        return seen, gymnasium.spaces.Box(*(bound.cpu().numpy() for bound in bounds), dtype=np.float32)
    heads = action_heads(world)
    return seen, gymnasium.spaces.MultiDiscrete(heads) if len(heads) > 1 else gymnasium.spaces.Discrete(heads[0])


def _box(spec: TensorSpec, shape: tuple[int, ...]) -> gymnasium.spaces.Box:
    """Return the space of one agent's observation; axes of the spec before its ``shape`` are worlds and agents."""
    if spec.dtype == torch.uint8:
        return gymnasium.spaces.Box(0, 255, shape, np.uint8)
    low, high = -np.inf, np.inf
    if isinstance(spec, Bounded):
        one = (0,) * (spec.ndim - len(shape))
        low, high = (bound[one].numpy() for bound in (spec.space.low, spec.space.high))
    return gymnasium.spaces.Box(low, high, shape, np.float32)


class _StandIn(gymnasium.Env):
    """Environment that only provides spaces to Stable-Baselines3; it cannot be stepped."""

    def __init__(self, observation_space: gymnasium.spaces.Box, action_space: gymnasium.spaces.Space) -> None:
        self.observation_space, self.action_space = observation_space, action_space


def _arguments(experiment: Experiment, agent: Agent, algorithm: str) -> dict[str, Any]:
    """Return the run's hyper-parameters and network as arguments of Stable-Baselines3's algorithm."""
    config, found = experiment.algorithm, known(experiment, KNOWN[algorithm])
    if algorithm in layout.OFF_POLICY:
        found |= off_policy.to_theirs(experiment)
    elif experiment.algorithm_class.name != "ppo":
        found["normalize_advantage"] = False
        if algorithm != "A2C":  # learns once from each rollout
            frames = config.rollout_steps * int(experiment.world.get("num_envs", 1))
            found |= {"n_epochs": 1, "batch_size": frames}
    return {**found, "policy_kwargs": {**_network(experiment, agent, algorithm), **_optimizer(config)}}


def _optimizer(config: Any) -> dict[str, Any]:
    """Return the run's optimizer as ``policy_kwargs``."""
    options = {"eps": config.adam_epsilon, "weight_decay": config.weight_decay}
    if getattr(config, "optimizer", "adam") == "rmsprop":
        return {"optimizer_class": torch.optim.RMSprop, "optimizer_kwargs": {**options, "alpha": config.rmsprop_decay}}
    kind = torch.optim.AdamW if config.weight_decay else torch.optim.Adam
    return {"optimizer_class": kind, "optimizer_kwargs": options}


def _network(experiment: Experiment, agent: Agent, algorithm: str) -> dict[str, Any]:
    """Return the run's network as ``policy_kwargs``."""
    model = experiment.model
    policy, value = list(model.hidden_sizes), list(critic_sizes(model, model.hidden_sizes))
    values = "qf" if algorithm in layout.SQUASHED else "vf"
    sizes: Any = policy if algorithm == "DQN" else {"pi": policy, values: value}
    result: dict[str, Any] = {"net_arch": sizes, "activation_fn": ACTIVATIONS[model.activation]}
    if agent.perception is not None and len(agent.perception.encoders):
        name = "features_dim" if len(agent.normalizer.in_keys) == 1 else "cnn_output_dim"
        result["features_extractor_kwargs"] = {name: model.perception.embedding_size}
    if algorithm == "RecurrentPPO":
        result |= {"lstm_hidden_size": model.perception.memory_size, "shared_lstm": True, "enable_critic_lstm": False}
    return result


def _vecnormalize(experiment: Experiment, worlds: Any, path: Path, sizes: dict[str, int]) -> Any:
    """Return a ``VecNormalize`` with the statistics of a checkpoint's JSON file."""
    from stable_baselines3.common.vec_env import VecNormalize  # an extra

    statistics = read_statistics(path)
    wrapper: Any = VecNormalize(
        worlds,
        norm_obs=experiment.model.normalize_observations,
        norm_reward=experiment.algorithm.scale_rewards,
        clip_obs=experiment.model.clip_observations,
        clip_reward=experiment.algorithm.clip_rewards,
        gamma=experiment.algorithm.gamma,
    )
    parts = [(wrapper.ret_rms, "ret", statistics)]
    if wrapper.norm_obs and isinstance(wrapper.obs_rms, dict):
        each = apart(statistics, sizes)
        parts += [(running, "obs", each[key]) for key, running in wrapper.obs_rms.items()]
    elif wrapper.norm_obs:
        parts.append((wrapper.obs_rms, "obs", statistics))
    for running, name, found in parts:
        running.mean, running.var = (np.asarray(found[f"{name}_{field}"]) for field in ("mean", "var"))
        running.count = float(np.asarray(found[f"{name}_count"]))
    return wrapper


def _notes(experiment: Experiment, world: EnvBase, algorithm: str) -> list[str]:
    """Return notes on differences of the converted model from the run."""
    notes = []
    name, schedule = experiment.algorithm_class.name, experiment.algorithm.learning_rate.schedule
    if schedule != "constant":
        notes.append(f"the learning rate is constant in the model, where the run has the schedule {schedule}")
    if algorithm in layout.OFF_POLICY:
        notes += off_policy.differences(experiment.algorithm)
    elif name == "a2c" and algorithm == "A2C" and experiment.algorithm.num_minibatches > 1:
        notes.append("each rollout is one minibatch in the model, where the run has several")
    elif name not in ("ppo", algorithm.lower()):
        notes.append(f"{name} goes on as PPO with one epoch of one minibatch")
    if experiment.model.shared_trunk and name != "dqn":
        notes.append("policy and value get a copy each of the shared trunk, which part when trained on")
    if algorithm == "RecurrentPPO":
        notes.append("the critic reads the policy's LSTM but does not train it (shared_lstm=True), which ours does")
    if keys.ACTION_MASK in group_spec(world).keys():
        notes.append(
            "the world masks actions, which the model does not know: where it chooses an illegal one, the run would not"
        )
    return notes
