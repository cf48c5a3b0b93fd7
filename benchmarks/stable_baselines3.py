"""Stable-Baselines3 in the tasks of :mod:`benchmarks.against_sb3`, with the hyperparameters of its zoo.

Those of Hopper, HalfCheetah and DoorKey are the zoo's for the task (https://github.com/DLR-RM/rl-baselines3-zoo,
``hyperparams/``, April 2026); those of MinAtar are Atari's, with the network of Young and Tian (2019) and with
``learning_starts`` for a shorter training.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from torch import Tensor, nn


class MinAtarNetwork(BaseFeaturesExtractor):
    """The network of Young and Tian (2019): 16 filters of 3 x 3, 128 units; pictures have their channels last."""

    def __init__(self, observation_space: spaces.Box) -> None:
        super().__init__(observation_space, 128)
        height, width, channels = observation_space.shape
        filters, size = 16, (height - 2) * (width - 2)
        self.layers = nn.Sequential(
            nn.Conv2d(channels, filters, 3), nn.ReLU(), nn.Flatten(), nn.Linear(filters * size, 128), nn.ReLU()
        )

    def forward(self, observations: Tensor) -> Tensor:
        return self.layers(observations.float().movedim(-1, 1))


def minigrid_wrapper(env: gymnasium.Env) -> gymnasium.Env:
    """Apply the zoo's wrapper of MiniGrid."""
    from minigrid.wrappers import FlatObsWrapper

    return FlatObsWrapper(env)


_as_numbers = functools.partial(gymnasium.wrappers.DtypeObservation, dtype=np.float32)
"""Wrapper that converts MinAtar's pictures to numbers, which Stable-Baselines3 does not scale."""
_wide = {
    "log_std_init": -2.0,
    "ortho_init": False,
    "activation_fn": nn.ReLU,
    "net_arch": {"pi": [256, 256], "vf": [256, 256]},
}
_picture = {"features_extractor_class": MinAtarNetwork, "net_arch": []}
_hopper = {
    "batch_size": 32,
    "n_steps": 512,
    "gamma": 0.999,
    "learning_rate": 9.80828e-05,
    "ent_coef": 0.00229519,
    "clip_range": 0.2,
    "n_epochs": 5,
    "gae_lambda": 0.99,
    "max_grad_norm": 0.7,
    "vf_coef": 0.835671,
    "policy_kwargs": _wide,
}
_half_cheetah = {
    "batch_size": 64,
    "n_steps": 512,
    "gamma": 0.98,
    "learning_rate": 2.0633e-05,
    "ent_coef": 0.000401762,
    "clip_range": 0.1,
    "n_epochs": 20,
    "gae_lambda": 0.92,
    "max_grad_norm": 0.8,
    "vf_coef": 0.58096,
    "policy_kwargs": _wide,
}
_minigrid = {
    "n_steps": 128,
    "batch_size": 64,
    "gae_lambda": 0.95,
    "gamma": 0.99,
    "n_epochs": 10,
    "ent_coef": 0.0,
    "learning_rate": 2.5e-4,
    "clip_range": 0.2,
}
_atari_ppo = {
    "n_steps": 128,
    "n_epochs": 4,
    "batch_size": 256,
    "learning_rate": LinearSchedule(2.5e-4, 0.0, 1.0),
    "clip_range": LinearSchedule(0.1, 0.0, 1.0),
    "vf_coef": 0.5,
    "ent_coef": 0.01,
    "policy_kwargs": _picture,
}
_atari_dqn = {
    "buffer_size": 100_000,
    "learning_rate": 1e-4,
    "batch_size": 32,
    "learning_starts": 5_000,
    "target_update_interval": 1_000,
    "train_freq": 4,
    "gradient_steps": 1,
    "exploration_fraction": 0.1,
    "exploration_final_eps": 0.01,
    "policy_kwargs": _picture,
}


class Rival:
    """An algorithm of Stable-Baselines3, its worlds and the zoo's hyperparameters."""

    def __init__(
        self,
        algorithm: type,
        env: str,
        settings: dict[str, Any],
        worlds: int = 1,
        normalized: bool = False,
        wrapper: Callable[[gymnasium.Env], gymnasium.Env] | None = None,
    ) -> None:
        self.algorithm, self.env, self.settings = algorithm, env, settings
        self.worlds, self.normalized, self.wrapper = worlds, normalized, wrapper

    def train(self, frames: int, seed: int) -> Any:
        """Train the algorithm for ``frames`` frames, and return it."""
        env: VecEnv = make_vec_env(self.env, self.worlds, seed=seed, wrapper_class=self.wrapper)
        if self.normalized:
            env = VecNormalize(env, gamma=self.settings.get("gamma", 0.99))
        model = self.algorithm("MlpPolicy", env, seed=seed, device="cpu", **self.settings)
        return model.learn(frames)

    def returns(self, model: Any, episodes: int, seed: int) -> list[float]:
        """Return its deterministic policy's returns in ``episodes`` worlds, an episode each, in the world's rewards."""
        env: VecEnv = make_vec_env(self.env, episodes, seed=seed, wrapper_class=self.wrapper)
        if self.normalized:
            env = VecNormalize(env, training=False, norm_reward=False)
            env.obs_rms = model.get_env().obs_rms
        values, _ = evaluate_policy(model, env, episodes, deterministic=True, return_episode_rewards=True)
        return [float(value) for value in values]  # type: ignore[union-attr]


RIVALS = {
    "hopper_ppo": Rival(PPO, "Hopper-v5", _hopper, normalized=True),
    "half_cheetah_ppo": Rival(PPO, "HalfCheetah-v5", _half_cheetah, normalized=True),
    "door_key_ppo": Rival(PPO, "MiniGrid-DoorKey-5x5-v0", _minigrid, 8, True, minigrid_wrapper),
    "breakout_ppo": Rival(PPO, "MinAtar/Breakout-v1", _atari_ppo, 8, wrapper=_as_numbers),
    "breakout_dqn": Rival(DQN, "MinAtar/Breakout-v1", _atari_dqn, wrapper=_as_numbers),
    "half_cheetah_sac": Rival(SAC, "HalfCheetah-v5", {"learning_starts": 10_000}),
}


def prepare() -> None:
    """Register the ids of packages in Gymnasium, and use one thread."""
    import minatar.gym
    import minigrid  # noqa: F401  registers when it is imported

    minatar.gym.register_envs()
    torch.set_num_threads(1)
