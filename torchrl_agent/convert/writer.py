"""Conversion of a run's policy, or its action values, to a Stable-Baselines3 model."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from torch import Tensor
from torchrl.data import Bounded
from torchrl.envs import EnvBase

from torchrl_agent import keys
from torchrl_agent.convert import deep_q
from torchrl_agent.convert.networks import gaussian_of, linear_layers
from torchrl_agent.convert.reader import KNOWN
from torchrl_agent.core.checkpoint import find_checkpoint, load_checkpoint, write_atomically
from torchrl_agent.core.run_names import find_run
from torchrl_agent.experiment import Experiment
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.heads import Gaussian
from torchrl_agent.modules.networks import ACTIVATIONS
from torchrl_agent.modules.specs import action_bounds, action_heads, group_spec, mixed_choices, observation_shapes
from torchrl_agent.runs.load import load_agent
from torchrl_agent.transforms import read_statistics


def to_sb3(run: Path | str, output: Path, which: str = "last", trust: bool = False) -> tuple[list[Path], list[str]]:
    """Write the agent of a run as a model for ``PPO.load``, or for ``DQN.load`` if it has action values; and, if the
    run normalizes anything, its statistics beside it for ``VecNormalize.load``: ``NAME.vecnormalize.pkl``.

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
    try:
        from stable_baselines3 import DQN, PPO  # an extra
        from stable_baselines3.common.vec_env import DummyVecEnv
    except ImportError:
        raise ValueError('Stable-Baselines3 is not installed: pip install "torchrl_agent[sb3]".') from None
    checkpoint = find_checkpoint(find_run(run), which)
    experiment, agent = load_agent(checkpoint, "cpu", trust=trust)
    world = experiment.make_world(evaluation=True, num_envs=1)
    _check(run, experiment, world)
    stand_in = functools.partial(_StandIn, *_spaces(world))
    worlds = DummyVecEnv([stand_in] * int(experiment.world.get("num_envs", 1)))
    values = experiment.algorithm_class.name == "dqn"
    arguments = _dqn_arguments(experiment, agent) if values else _arguments(experiment, agent)
    model = (DQN if values else PPO)("MlpPolicy", worlds, **arguments, seed=experiment.seed, device="cpu")
    model.policy.load_state_dict(_values(agent) if values else _weights(agent))
    model.num_timesteps = load_checkpoint(checkpoint)["frames"]
    if values:
        deep_q.set_exploration(model, agent, experiment.total_frames)
    path = output if output.suffix == ".zip" else output.with_name(f"{output.name}.zip")
    files: dict[Path, Callable[[Path], object]] = {path: model.save}
    if experiment.model.normalize_observations or experiment.algorithm.scale_rewards:
        statistics = _vecnormalize(experiment, worlds, checkpoint.with_suffix(".normalization.json"))
        files[path.with_suffix(".vecnormalize.pkl")] = statistics.save
    _write(files)
    return list(files), _notes(experiment, world)


def _write(files: dict[Path, Callable[[Path], object]]) -> None:
    for path, save in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, save)
        except (OSError, ValueError):
            raise ValueError(f"{path} cannot be written: choose another place for OUTPUT.zip.") from None


def _check(run: Path | str, experiment: Experiment, world: EnvBase) -> None:
    """Raise ValueError unless the agent is two networks that read one vector."""
    model = experiment.model
    more = {
        "model.memory": model.memory != "none",
        "model.perception.enabled": model.perception.enabled,
        "model.layer_norm": model.layer_norm,
        "model.centralized_critic": model.centralized_critic,
        "several observations": len(observation_shapes(world)) > 1,
    }
    found = next((name for name, present in more.items() if present), None)
    if found is not None:
        raise ValueError(
            f"{run} has {found}: only agents of plain networks that read one observation vector can be converted."
        )
    if mixed_choices(world):
        raise ValueError(f"{run} takes choices and numbers at once, which Stable-Baselines3 does not know.")
    bounds = action_bounds(world)
    if bounds is not None and not all(bool(end.isfinite().all()) for end in bounds):
        raise ValueError(f"{run} takes actions without bounds, which Stable-Baselines3 refuses: give the world bounds.")
    if (name := experiment.algorithm_class.name) in ("sac", "td3"):
        raise ValueError(
            f"{run} was trained with algorithm={name}, whose networks Stable-Baselines3 has in another form: convert a "
            "run of ppo, a2c or dqn."
        )
    if getattr(experiment.algorithm, "dueling", False):
        raise ValueError(
            f"{run} was trained with algorithm.dueling=true, which Stable-Baselines3's DQN does not know: train it "
            "with algorithm.dueling=false."
        )


def _spaces(world: EnvBase) -> tuple[gymnasium.spaces.Box, gymnasium.spaces.Space]:
    """Return one agent's observation and action spaces of Gymnasium."""
    seen = group_spec(world)
    name, shape = next(iter(observation_shapes(world).items()))
    low, high = -np.inf, np.inf
    if isinstance(seen[name], Bounded):
        low, high = (bound[(0,) * seen.ndim].numpy() for bound in (seen[name].space.low, seen[name].space.high))
    return gymnasium.spaces.Box(low, high, tuple(shape), np.float32), _action_space(world)


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


def _arguments(experiment: Experiment, agent: Agent) -> dict[str, Any]:
    """Return the run's hyper-parameters and network as arguments of Stable-Baselines3's PPO."""
    found = _known(experiment, KNOWN["PPO"])
    if experiment.algorithm_class.name != "ppo":  # learns once from each rollout
        frames = experiment.algorithm.rollout_steps * int(experiment.world.get("num_envs", 1))
        found |= {"n_epochs": 1, "batch_size": frames, "normalize_advantage": False}
    sizes = {
        name: [layer.out_features for layer in linear_layers(network)[:-1]]
        for name, network in (("pi", agent.actor), ("vf", agent.critic))
    }
    network = {"net_arch": sizes, "activation_fn": ACTIVATIONS[experiment.model.activation]}
    return {**found, "policy_kwargs": network}


def _dqn_arguments(experiment: Experiment, agent: Agent) -> dict[str, Any]:
    """Return the run's hyper-parameters and network as arguments of Stable-Baselines3's DQN."""
    sizes = [layer.out_features for layer in linear_layers(agent.critic)[:-1]]
    counted = deep_q.to_theirs(experiment.algorithm, int(experiment.world.get("num_envs", 1)), experiment.total_frames)
    network = {"net_arch": sizes, "activation_fn": ACTIVATIONS[experiment.model.activation]}
    return {**_known(experiment, KNOWN["DQN"]), **counted, "policy_kwargs": network}


def _known(experiment: Experiment, names: dict[str, str]) -> dict[str, Any]:
    """Return the run's hyper-parameters among ``names``, by Stable-Baselines3's names."""
    found = {}
    for theirs, ours in names.items():
        section, *rest = ours.split(".")
        owner = experiment.algorithm
        if section != "world" and hasattr(owner, rest[0]):  # the number of worlds is that of the vector environment
            found[theirs] = functools.reduce(getattr, rest, owner)
    return found


def _weights(agent: Agent) -> dict[str, Tensor]:
    """Return the agent's weights by Stable-Baselines3's names; every second of its layers is an activation."""
    networks = {"policy_net": (agent.actor, "action_net"), "value_net": (agent.critic, "value_net")}
    result = {}
    for name, (network, last) in networks.items():
        *hidden, output = linear_layers(network)
        named = {f"mlp_extractor.{name}.{2 * index}": layer for index, layer in enumerate(hidden)} | {last: output}
        for place, layer in named.items():
            result.update({f"{place}.weight": layer.weight, f"{place}.bias": layer.bias})
    return {**result, **_continuous(agent, result)}


def _continuous(agent: Agent, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of continuous actions: means in the world's unit, not in half ranges, and deviations."""
    if not any(isinstance(module, Gaussian) for module in agent.actor_head.modules()):
        return {}
    gaussian = gaussian_of(agent)
    half_range = gaussian.half_range
    return {
        "action_net.weight": weights["action_net.weight"] * half_range.unsqueeze(-1),
        "action_net.bias": weights["action_net.bias"] * half_range + gaussian.center,
        "log_std": gaussian.log_std + half_range.log(),
    }


def _values(agent: Agent) -> dict[str, Tensor]:
    """Return the weights of the agent's action values by Stable-Baselines3's names, also for the target network."""
    return {
        f"{network}.q_net.{2 * index}.{part}": getattr(layer, part)
        for network in ("q_net", "q_net_target")
        for index, layer in enumerate(linear_layers(agent.critic))
        for part in ("weight", "bias")
    }


def _vecnormalize(experiment: Experiment, worlds: Any, path: Path) -> Any:
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
    parts = {"obs": wrapper.obs_rms if wrapper.norm_obs else None, "ret": wrapper.ret_rms}
    for name, running in parts.items():
        if running is not None:
            running.mean, running.var = (np.asarray(statistics[f"{name}_{field}"]) for field in ("mean", "var"))
            running.count = float(np.asarray(statistics[f"{name}_count"]))
    return wrapper


def _notes(experiment: Experiment, world: EnvBase) -> list[str]:
    """Return notes on differences of the converted model from the run."""
    notes = []
    name, schedule = experiment.algorithm_class.name, experiment.algorithm.learning_rate.schedule
    if schedule != "constant":
        notes.append(f"the learning rate is constant in the model, where the run has the schedule {schedule}")
    if name == "dqn":
        notes += deep_q.differences(experiment.algorithm)
    elif name != "ppo":
        notes.append(f"{name} goes on as PPO with one epoch of one minibatch")
    if experiment.model.shared_trunk and name != "dqn":
        notes.append("policy and value get a copy each of the shared trunk, which part when trained on")
    if keys.ACTION_MASK in group_spec(world).keys():
        notes.append(
            "the world masks actions, which the model does not know: where it chooses an illegal one, the run would not"
        )
    notes.append("the optimizer starts afresh, its moments are not taken over")
    return notes
