"""Conversion of a run's agent to a Stable-Baselines3 model."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from torchrl.data import Bounded
from torchrl.envs import EnvBase

from torchrl_agent import keys
from torchrl_agent.convert import layout, off_policy
from torchrl_agent.convert.moments import FRESH, write_moments
from torchrl_agent.convert.networks import Correspondence, linear_layers
from torchrl_agent.convert.normalization import apart
from torchrl_agent.convert.pairs import values
from torchrl_agent.convert.settings import KNOWN, known
from torchrl_agent.core.checkpoint import find_checkpoint, load_checkpoint, write_atomically
from torchrl_agent.core.run_names import find_run
from torchrl_agent.experiment import Experiment
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.config import critic_sizes
from torchrl_agent.modules.networks import ACTIVATIONS
from torchrl_agent.modules.specs import action_bounds, action_heads, group_spec, mixed_choices, observation_shapes
from torchrl_agent.runs.load import load_agent
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
    checkpoint = find_checkpoint(find_run(run), which)
    experiment, agent = load_agent(checkpoint, "cpu", trust=trust)
    algorithm = "RecurrentPPO" if experiment.model.memory == "lstm" else ALGORITHMS[experiment.algorithm_class.name]
    kind, vectorized = _library(algorithm)
    world = experiment.make_world(evaluation=True, num_envs=1)
    _check(run, experiment, world)
    spaces = _spaces(world)
    stand_in = functools.partial(_StandIn, *spaces)
    worlds = vectorized([stand_in] * int(experiment.world.get("num_envs", 1)))
    policy = _policy_name(spaces[0], algorithm)
    model = kind(policy, worlds, **_arguments(experiment, agent, algorithm), seed=experiment.seed, device="cpu")
    saved = load_checkpoint(checkpoint)
    model.num_timesteps = saved["frames"]
    notes = _notes(experiment, world, algorithm)
    notes.append(_copy(model, experiment, agent, algorithm, saved))
    path = output if output.suffix == ".zip" else output.with_name(f"{output.name}.zip")
    files: dict[Path, Callable[[Path], object]] = {path: model.save}
    if experiment.model.normalize_observations or experiment.algorithm.scale_rewards:
        sizes = {key: shape.numel() for key, shape in observation_shapes(world).items()}
        statistics = _vecnormalize(experiment, worlds, checkpoint.with_suffix(".normalization.json"), sizes)
        files[path.with_suffix(".vecnormalize.pkl")] = statistics.save
    _write(files)
    return list(files), notes


def _library(algorithm: str) -> tuple[Any, Any]:
    """Return the class of an algorithm, and the one that joins environments."""
    package = "sb3-contrib" if algorithm == "RecurrentPPO" else "Stable-Baselines3"
    try:
        import stable_baselines3  # an extra
        from stable_baselines3.common.vec_env import DummyVecEnv

        if algorithm == "RecurrentPPO":
            import sb3_contrib  # an extra

            return sb3_contrib.RecurrentPPO, DummyVecEnv
        return getattr(stable_baselines3, algorithm), DummyVecEnv
    except ImportError:
        raise ValueError(f'{package} is not installed: pip install "torchrl_agent[sb3]".') from None


def _copy(model: Any, experiment: Experiment, agent: Agent, algorithm: str, saved: dict[str, Any]) -> str:
    """Copy weights, moments and exploration; returns a note on the moments."""
    model_config = experiment.model
    memories = {"lstm_actor.": model_config.perception.memory_size} if algorithm == "RecurrentPPO" else {}
    space = model.observation_space
    seen = list(space.spaces) if isinstance(space, gymnasium.spaces.Dict) else [""]
    trunk = linear_layers(agent.encoder[-1]) if model_config.shared_trunk else []
    pairs = Correspondence(agent, algorithm, seen, memories, trunk)
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


def _write(files: dict[Path, Callable[[Path], object]]) -> None:
    for path, save in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, save)
        except (OSError, ValueError):
            raise ValueError(f"{path} cannot be written: choose another place for OUTPUT.zip.") from None


def _check(run: Path | str, experiment: Experiment, world: EnvBase) -> None:
    """Raise ValueError unless the agent is of networks that Stable-Baselines3 has, too."""
    model, shapes = experiment.model, observation_shapes(world)
    perception, pictures = model.perception, [name for name, shape in shapes.items() if len(shape) == 3]
    name = experiment.algorithm_class.name
    plain = perception.plain and all(perception.encoders.get(key) == "nature" for key in pictures)
    with_gap = model.memory != "none" and (perception.skip_connection or model.memory != "lstm")
    more = {
        "model.layer_norm": model.layer_norm,
        "model.memory": with_gap or (model.memory != "none" and not perception.plain),
        "model.perception.enabled": perception.enabled and not plain,
        "a vector encoder in model.perception.encoders": any(key not in pictures for key in perception.encoders),
        "a picture whose convolutions are no relu": bool(pictures) and model.activation != "relu",
        "normalized pictures": bool(pictures) and model.normalize_observations,
        "model.centralized_critic": model.centralized_critic,
        "a module behind its beliefs": bool(model.custom_modules) or model.manager.enabled or model.world_model.enabled,
    }
    found = next((name for name, present in more.items() if present), None)
    if found is not None:
        raise ValueError(
            f"{run} has {found}: only agents of plain networks can be converted (with model.perception.plain=true, "
            "encoders nature and activation relu for pictures, and memory=lstm without skip_connection)."
        )
    if mixed_choices(world):
        raise ValueError(f"{run} takes choices and numbers at once, which Stable-Baselines3 does not know.")
    bounds = action_bounds(world)
    if bounds is not None and not all(bool(end.isfinite().all()) for end in bounds):
        raise ValueError(f"{run} takes actions without bounds, which Stable-Baselines3 refuses: give the world bounds.")
    _check_algorithm(run, experiment, name, bounds is None, bool(pictures))


def _check_algorithm(run: Path | str, experiment: Experiment, name: str, discrete: bool, pictures: bool) -> None:
    if name == "sac" and discrete:
        raise ValueError(
            f"{run} is a SAC of discrete actions, which Stable-Baselines3 lacks: train it with dqn or ppo."
        )
    if name == "sac" and experiment.algorithm.deviation != "exp":
        raise ValueError(
            f"{run} was trained with algorithm.deviation=softplus, Stable-Baselines3's SAC has exp: train it with "
            "algorithm.deviation=exp."
        )
    if name in ("sac", "td3") and (pictures or experiment.model.shared_trunk):
        raise ValueError(
            f"{run} shares an encoder or a trunk between policy and values, Stable-Baselines3's {name.upper()} has one "
            "for each: convert a run of ppo, a2c or dqn."
        )
    if getattr(experiment.algorithm, "dueling", False):
        raise ValueError(
            f"{run} was trained with algorithm.dueling=true, which Stable-Baselines3's DQN does not know: train it "
            "with algorithm.dueling=false."
        )


def _spaces(world: EnvBase) -> tuple[gymnasium.spaces.Space, gymnasium.spaces.Space]:
    """Return one agent's observation and action spaces of Gymnasium."""
    boxes = {name: _box(world, name, tuple(shape)) for name, shape in observation_shapes(world).items()}
    seen = next(iter(boxes.values())) if len(boxes) == 1 else gymnasium.spaces.Dict(boxes)
    return seen, _action_space(world)


def _box(world: EnvBase, name: str, shape: tuple[int, ...]) -> gymnasium.spaces.Box:
    seen = group_spec(world)
    if seen[name].dtype == torch.uint8:
        return gymnasium.spaces.Box(0, 255, shape, np.uint8)
    low, high = -np.inf, np.inf
    if isinstance(seen[name], Bounded):
        low, high = (bound[(0,) * seen.ndim].numpy() for bound in (seen[name].space.low, seen[name].space.high))
    return gymnasium.spaces.Box(low, high, shape, np.float32)


def _action_space(world: EnvBase) -> gymnasium.spaces.Space:
    bounds = action_bounds(world)
    if bounds is not None:
        low, high = (bound.cpu().numpy() for bound in bounds)
        return gymnasium.spaces.Box(low, high, dtype=np.float32)
    heads = action_heads(world)
    return gymnasium.spaces.MultiDiscrete(heads) if len(heads) > 1 else gymnasium.spaces.Discrete(heads[0])


class _StandIn(gymnasium.Env):
    """Environment that only provides spaces to Stable-Baselines3; it cannot be stepped."""

    def __init__(self, observation_space: gymnasium.spaces.Box, action_space: gymnasium.spaces.Space) -> None:
        self.observation_space, self.action_space = observation_space, action_space


def _arguments(experiment: Experiment, agent: Agent, algorithm: str) -> dict[str, Any]:
    """Return the run's hyper-parameters and network as arguments of Stable-Baselines3's algorithm."""
    config, found = experiment.algorithm, known(experiment, KNOWN[algorithm])
    frames = config.rollout_steps * int(experiment.world.get("num_envs", 1))
    if algorithm in layout.OFF_POLICY:
        found |= off_policy.to_theirs(experiment)
    elif algorithm == "A2C":
        optimizer = {"use_rms_prop": config.optimizer == "rmsprop", "rms_prop_eps": config.adam_epsilon}
        found |= {**optimizer, "normalize_advantage": False}
    elif experiment.algorithm_class.name != "ppo":  # learns once from each rollout
        found |= {"n_epochs": 1, "batch_size": frames, "normalize_advantage": False}
    network = _network(experiment, agent, algorithm)
    if algorithm == "A2C":
        rmsprop = config.optimizer == "rmsprop"
        more = {"alpha": config.rmsprop_decay, "weight_decay": 0} if rmsprop else {}
        network["optimizer_class"] = torch.optim.RMSprop if rmsprop else torch.optim.Adam
        network["optimizer_kwargs"] = {"eps": config.adam_epsilon, **more}
    return {**found, "policy_kwargs": network}


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
        lstm = {"lstm_hidden_size": model.perception.memory_size, "shared_lstm": True, "enable_critic_lstm": False}
        result |= lstm
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
