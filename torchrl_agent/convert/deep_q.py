"""Conversion between Stable-Baselines3's DQN and this project's: settings of different units, and training state."""

from __future__ import annotations

import base64
import pickletools
from typing import Any

from torchrl_agent.algorithms.dqn import DQN, DQNConfig, epsilon
from torchrl_agent.convert.archive import Archive
from torchrl_agent.convert.networks import fill
from torchrl_agent.training.learner import Learner

HYPERPARAMETERS = {
    "gamma": "algorithm.gamma",
    "learning_rate": "algorithm.learning_rate.initial",
    "max_grad_norm": "algorithm.max_grad_norm",
    "n_envs": "world.num_envs",
    "buffer_size": "algorithm.replay_size",
    "learning_starts": "algorithm.learning_starts",
    "batch_size": "algorithm.batch_size",
    "tau": "algorithm.target_rate",
    "exploration_initial_eps": "algorithm.epsilon_initial",
    "exploration_final_eps": "algorithm.epsilon_final",
}
"""Stable-Baselines3's names and this project's, for settings of the same meaning."""
PLAIN = {"algorithm.dueling": False, "algorithm.double": False, "algorithm.priority_exponent": 0.0}
"""Settings that make this project's DQN the variant that Stable-Baselines3 has."""
PUSHED = ("BININT", "BININT1", "BININT2", "BINUNICODE", "SHORT_BINUNICODE")
"""Instructions of a pickle that hold a number or a text."""
TRAIN_FREQUENCY = 4
"""Stable-Baselines3's default number of steps between updates."""


def to_ours(archive: Archive, num_envs: int, notes: list[str]) -> dict[str, Any]:
    """Return the DQN settings of different units, by this project's names: Stable-Baselines3 counts updates per steps
    and target updates per frames; here the replay ratio (frames sampled per frame collected) gives the number of
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
    seen = int(archive.data.get("_total_timesteps") or 0)
    explored = round(float(archive.number("exploration_fraction") or 0) * seen)
    return {
        **PLAIN,
        "algorithm.adam_epsilon": 1e-8,  # PyTorch's default, which Stable-Baselines3 keeps
        "algorithm.num_steps": num_steps,
        "algorithm.rollout_steps": steps,
        "algorithm.replay_ratio": rate * float(archive.number("batch_size") or 0),
        "algorithm.target_interval": max(1, round(float(archive.number("target_update_interval") or 1) * rate)),
        **({"algorithm.epsilon_frames": max(1, explored)} if seen else {}),  # a fraction of a training not yet begun
    }


def _train_frequency(archive: Archive, notes: list[str]) -> int:
    """Return the steps between updates: the one number in a pickle, whose instructions are listed and not executed."""
    try:
        pickle = base64.b64decode(archive.data["train_freq"][":serialized:"])
        pushed = [argument for code, argument, _ in pickletools.genops(pickle) if code.name in PUSHED]
    except (KeyError, TypeError, ValueError):
        pushed = []
    numbers = [value for value in pushed if isinstance(value, int) and value > 0]
    if "step" in pushed and numbers:
        return numbers[0]
    found = "counts episodes" if "episode" in pushed else "cannot be read without executing it"
    notes.append(f"train_freq {found}: algorithm.rollout_steps is {TRAIN_FREQUENCY}")
    return TRAIN_FREQUENCY


def go_on(learner: Learner, archive: Archive) -> None:
    """Set a DQN learner to the model's training state: target network, frames and fraction of random actions."""
    dqn: Any = learner.algorithm
    assert isinstance(dqn, DQN), "a learner with these settings"
    fill(learner.agent, archive, ("target", "target"))
    dqn.loss.copy_to_target()
    fill(learner.agent, archive)
    dqn.frames = learner.frames
    dqn.agent.exploration.epsilon.fill_(epsilon(dqn.config, dqn.frames))


def to_theirs(config: DQNConfig, num_envs: int, total_frames: int) -> dict[str, Any]:
    """Return the DQN settings of different units, as arguments of Stable-Baselines3's DQN."""
    frames = config.rollout_steps * num_envs
    updates = max(1, round(config.replay_ratio * frames / config.batch_size))
    return {
        "train_freq": config.rollout_steps,
        "gradient_steps": updates,
        "target_update_interval": max(1, round(config.target_interval * frames / updates)),
        "exploration_fraction": min(1.0, config.epsilon_frames / total_frames),
    }


def set_exploration(model: Any, agent: Any, total_frames: int) -> None:
    """Set the exploration of Stable-Baselines3's DQN to that of ``agent``."""
    model.exploration_rate = agent.exploration.epsilon.item()
    model._total_timesteps = total_frames  # exploration_fraction is a fraction of it


def differences(config: DQNConfig) -> list[str]:
    """Return notes on the features of a run that Stable-Baselines3's DQN lacks."""
    ours = {
        "double Q-learning": config.double,
        f"returns of {config.num_steps} steps": config.num_steps > 1,
        "a prioritised replay": config.priority_exponent > 0,
    }
    lost = [name for name, present in ours.items() if present]
    notes = ["the replay is not taken over, and the target network begins as the learning one"]
    return [f"it learns without {', '.join(lost)}, which the run has", *notes] if lost else notes
