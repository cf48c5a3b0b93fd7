"""Settings and training state of Stable-Baselines3's DQN, SAC and TD3 and of this project's: settings of different
units, target networks, exploration.
"""

from __future__ import annotations

import base64
import math
import pickletools
import re
from typing import Any

import torch
from torch import Tensor

from torchrl_agent.algorithms.dqn import epsilon
from torchrl_agent.convert.archive import Archive
from torchrl_agent.convert.layout import hyperparameters
from torchrl_agent.convert.networks import Correspondence
from torchrl_agent.convert.pairs import fill
from torchrl_agent.training.learner import Learner

_COMMON = {
    "n_envs": "world.num_envs",
    **hyperparameters(gamma="gamma", learning_rate="learning_rate.initial", learning_starts="learning_starts"),
    **hyperparameters(buffer_size="replay_size", batch_size="batch_size", tau="target_rate"),
}
_EPSILON = hyperparameters(exploration_initial_eps="epsilon_initial", exploration_final_eps="epsilon_final")
_NOISE = hyperparameters(target_policy_noise="target_noise", target_noise_clip="noise_clip")
HYPERPARAMETERS = {
    "DQN": {**_COMMON, **hyperparameters(max_grad_norm="max_grad_norm"), **_EPSILON},
    "SAC": {
        **_COMMON,
        **hyperparameters(target_entropy="target_entropy", target_update_interval="target_interval"),
    },
    "TD3": {**_COMMON, **hyperparameters(policy_delay="policy_delay"), **_NOISE},
}
"""Stable-Baselines3's names and this project's, for settings of the same meaning, by its algorithms."""
PLAIN = {"algorithm.dueling": False, "algorithm.double": False, "algorithm.priority_exponent": 0.0}
"""Settings that make this project's algorithms the variants that Stable-Baselines3 has."""
PUSHED = ("BININT", "BININT1", "BININT2", "BINUNICODE", "SHORT_BINUNICODE")
"""Instructions of a pickle that hold a number or a text."""
TRAIN_FREQUENCY = {"DQN": 4, "SAC": 1, "TD3": 1}
"""Stable-Baselines3's default numbers of steps between updates."""


def to_ours(archive: Archive, num_envs: int, notes: list[str]) -> dict[str, Any]:
    """Return the settings of different units, by this project's names: Stable-Baselines3 counts updates per steps (and
    a DQN's target updates per frames); here the replay ratio (frames sampled per frame collected) gives the number of
    updates, and target updates are counted in updates.
    """
    steps = _train_frequency(archive, notes)
    frames = steps * num_envs
    updates = int(archive.number("gradient_steps") or 1)
    rate = (frames if updates < 0 else updates) / frames
    num_steps = int(archive.data.get("n_steps") or 1)  # only newer versions have it
    if num_steps > steps:
        notes.append(
            f"returns of {num_steps} steps end with a rollout of {steps}: algorithm.rollout_steps= makes it longer"
        )
    result = {
        **PLAIN,
        "algorithm.num_steps": num_steps,
        "algorithm.rollout_steps": steps,
        "algorithm.replay_ratio": rate * float(archive.number("batch_size") or 0),
    }
    if archive.algorithm != "DQN":
        return {**result, "algorithm.max_grad_norm": math.inf, **_exploration(archive, notes)}
    seen = int(archive.data.get("_total_timesteps") or 0)
    explored = round(float(archive.number("exploration_fraction") or 0) * seen)
    return {
        **result,
        "algorithm.target_interval": max(1, round(float(archive.number("target_update_interval") or 1) * rate)),
        **({"algorithm.epsilon_frames": max(1, explored)} if seen else {}),  # a fraction of a training not yet begun
    }


def _exploration(archive: Archive, notes: list[str]) -> dict[str, Any]:
    """Return the settings of SAC's temperature or TD3's noise."""
    if archive.algorithm == "SAC":
        return {"algorithm.deviation": "exp", "algorithm.initial_temperature": math.exp(temperature(archive, notes))}
    noise = archive.data.get("action_noise")
    if noise is None:
        return {"algorithm.exploration_noise": 0.0}
    deviations = set(re.findall(r"[\d.]+(?:e-?\d+)?", str(noise.get("_sigma", ""))))
    if "NormalActionNoise" in str(noise.get(":type:")) and len(deviations) == 1:
        return {"algorithm.exploration_noise": float(deviations.pop())}
    notes.append("action_noise is of another kind: algorithm.exploration_noise is the default")
    return {}


def temperature(archive: Archive, notes: list[str]) -> float:
    """Return the logarithm of SAC's temperature."""
    learned = archive.variables.get("log_ent_coef")
    if isinstance(learned, Tensor):
        return float(learned.detach().reshape(()))
    notes.append("the temperature is constant in the model, from now on it is learned")
    return math.log(max(float(archive.variables["ent_coef_tensor"]), 1e-6))


def _train_frequency(archive: Archive, notes: list[str]) -> int:
    """Return the steps between updates: the one number in a pickle, whose instructions are listed and not executed."""
    usual = TRAIN_FREQUENCY[archive.algorithm]
    try:
        pickle = base64.b64decode(archive.data["train_freq"][":serialized:"])
        pushed = [argument for code, argument, _ in pickletools.genops(pickle) if code.name in PUSHED]
    except (KeyError, TypeError, ValueError):
        pushed = []
    numbers = [value for value in pushed if isinstance(value, int) and value > 0]
    if "step" in pushed and numbers:
        return numbers[0]
    found = "counts episodes" if "episode" in pushed else "cannot be read without executing it"
    notes.append(f"train_freq {found}: algorithm.rollout_steps is {usual}")
    return usual


def go_on(learner: Learner, archive: Archive, pairs: Correspondence) -> None:
    """Set a learner to the model's training state: weights of both networks, frames and exploration."""
    algorithm: Any = learner.algorithm
    fill([*pairs.pairs(), *pairs.pairs(target=True)], archive.policy)
    algorithm.loss.copy_to_target()
    fill(pairs.pairs(), archive.policy)
    algorithm.frames = learner.frames
    if archive.algorithm == "DQN":
        learner.agent.exploration.epsilon.fill_(epsilon(algorithm.config, algorithm.frames))  # type: ignore[union-attr, operator]
    elif archive.algorithm == "SAC":
        learner.agent.log_alpha.data.fill_(temperature(archive, []))  # type: ignore[union-attr, operator]


def to_theirs(experiment: Any) -> dict[str, Any]:
    """Return the settings of different units, as arguments of Stable-Baselines3's algorithm."""
    config, num_envs = experiment.algorithm, int(experiment.world.get("num_envs", 1))
    frames = config.rollout_steps * num_envs
    updates = max(1, round(config.replay_ratio * frames / config.batch_size))
    result = {"train_freq": config.rollout_steps, "gradient_steps": updates}
    kind = experiment.algorithm_class.name
    if kind == "sac":
        return {**result, "ent_coef": f"auto_{config.initial_temperature}"}
    if kind == "td3":
        return result
    return {
        **result,
        "target_update_interval": max(1, round(config.target_interval * frames / updates)),
        "exploration_fraction": min(1.0, config.epsilon_frames / experiment.total_frames),
    }


def set_state(model: Any, agent: Any, experiment: Any) -> None:
    """Set the exploration and the target networks of Stable-Baselines3's model to those of ``agent``."""
    kind = experiment.algorithm_class.name
    if kind == "dqn":
        model.exploration_rate = agent.exploration.epsilon.item()
        model._total_timesteps = experiment.total_frames  # exploration_fraction is a fraction of it
    elif kind == "sac":
        model.log_ent_coef.data.fill_(agent.log_alpha.item())
    elif experiment.algorithm.exploration_noise:
        from stable_baselines3.common.noise import NormalActionNoise  # an extra

        mean = torch.zeros(len(agent.action_range.center)).numpy()
        model.action_noise = NormalActionNoise(mean, mean + experiment.algorithm.exploration_noise)


def differences(config: Any) -> list[str]:
    """Return notes on the features of a run that Stable-Baselines3's algorithms lack."""
    ours = {
        "double Q-learning": getattr(config, "double", False),
        f"returns of {config.num_steps} steps": config.num_steps > 1,
        "a prioritized replay": config.priority_exponent > 0,
        "hindsight": config.hindsight > 0,
    }
    lost = [name for name, present in ours.items() if present]
    notes = ["the replay is not taken over, and the target network begins as the learning one"]
    return [f"it learns without {', '.join(lost)}, which the run has", *notes] if lost else notes
