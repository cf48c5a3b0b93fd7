"""Baseline: Stable-Baselines3's algorithms with this project's network on its worlds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from torchrl_agent import keys
from torchrl_agent.algorithms.dqn import DQNConfig
from torchrl_agent.experiment import Experiment
from torchrl_agent.modules.networks import ACTIVATIONS

BASELINE_WORLDS = 12
BASELINES: dict[str, dict[str, Any]] = {
    "ppo": {"n_steps": 512, "batch_size": 64, "n_epochs": 10},
    "a2c": {},
    "dqn": {"batch_size": 48, "train_freq": (1, "step")},
}
"""Settings of each algorithm of Stable-Baselines3; the rest are its defaults. PPO's are the reference's (learning rate
3e-4, lambda 0.95). A2C learns once from each frame, as this project's does. DQN learns as often from a frame as this
project's, with the same replay, exploration and target network (see :func:`dqn_settings`).
"""
ENDLESS = 10**12
"""Number of frames to train for, as time ends the training."""
SKILL = "spawners_destroyed"


def make_baseline(stable_baselines3: Any, experiment: Experiment) -> Any:
    """Return Stable-Baselines3's algorithm of the same name with this project's network and discount, on worlds that
    are already compiled.
    """
    from envs.adapters.sb3 import StableBaselinesVecEnv  # needs the extra

    world = experiment.make_world(evaluation=True, num_envs=BASELINE_WORLDS, seed=experiment.seed)
    if experiment.acceleration.step:
        world.compile()
    vector = StableBaselinesVecEnv(world)
    vector.reset()
    vector.step(np.zeros(BASELINE_WORLDS, dtype=np.int64))  # compiles
    worlds = stable_baselines3.common.vec_env.VecNormalize(vector, gamma=experiment.algorithm.gamma)
    sizes = list(experiment.model.hidden_sizes)
    name = experiment.algorithm_class.name
    values = name == "dqn"
    network = {
        "net_arch": sizes if values else {"pi": sizes, "vf": sizes},
        "activation_fn": ACTIVATIONS[experiment.model.activation],
    }
    settings = dqn_settings(experiment.algorithm) if values else BASELINES[name]
    return getattr(stable_baselines3, name.upper())(
        "MlpPolicy",
        worlds,
        **settings,
        gamma=experiment.algorithm.gamma,
        policy_kwargs=network,
        seed=experiment.seed,
        device="cpu",
    )


def dqn_settings(config: DQNConfig) -> dict[str, Any]:
    """Return settings of Stable-Baselines3's DQN with the configuration's replay ratio: its minibatches of
    ``batch_size`` and its updates per step of all its worlds make as many gradient samples per frame.
    """
    batch = BASELINES["dqn"]["batch_size"]
    return {
        **BASELINES["dqn"],
        "gradient_steps": max(1, round(config.replay_ratio * BASELINE_WORLDS / batch)),
        "buffer_size": config.replay_size,
        "learning_starts": config.learning_starts,
        "target_update_interval": config.target_interval,
        "tau": config.target_rate,
        "exploration_initial_eps": config.epsilon_initial,
        "exploration_final_eps": config.epsilon_final,
        "exploration_fraction": config.epsilon_frames / ENDLESS,
    }


def samples_per_frame(model: Any) -> float:
    """Return the mean number of times that a model of Stable-Baselines3 learns from each frame."""
    if hasattr(model, "n_epochs"):
        return float(model.n_epochs)
    if hasattr(model, "gradient_steps"):
        return model.gradient_steps * model.batch_size / BASELINE_WORLDS
    return 1.0


def baseline_policy(model: Any) -> Callable[[TensorDictBase], TensorDictBase]:
    """Return the deterministic policy of a trained baseline on tensordicts, with its observation statistics."""
    worlds = model.get_env()
    mean = torch.as_tensor(worlds.obs_rms.mean)
    deviation = torch.as_tensor(worlds.obs_rms.var + worlds.epsilon).sqrt()
    model.policy.set_training_mode(False)

    def policy(tensordict: TensorDictBase) -> TensorDictBase:
        observation = (tensordict.get("observation") - mean) / deviation
        normalized = observation.clamp(-worlds.clip_obs, worlds.clip_obs).float()
        return tensordict.set(keys.ACTION, model.policy._predict(normalized, deterministic=True))

    return policy
