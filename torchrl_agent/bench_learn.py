"""Learning against Stable-Baselines3: the same game, network and wall-clock time, judged alike."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase
from torch import nn

from envs import ArenaEnv
from envs.gym import GymnasiumVectorEnv
from torchrl_agent import keys
from torchrl_agent.experiment import Experiment
from torchrl_agent.learner import Learner
from torchrl_agent.train import learn
from torchrl_agent.training.checkpoint import versions
from torchrl_agent.training.evaluation import evaluate_policy, summarise

BASELINE_WORLDS = 12
SKILLS = (0.5, 1.0, 2.0, 3.0, 5.0)
"""Spawners destroyed per episode, over the latest 100 training episodes."""


def learn_against_baseline(
    overrides: list[str], seconds: float, baseline_seconds: float | None = None
) -> dict[str, Any]:
    """Train both for ``seconds`` one after the other and compare; ``baseline_seconds`` gives the baseline another time.

    Raises:
        ValueError: Stable-Baselines3 is not installed.
    """
    try:
        import stable_baselines3  # an extra
    except ImportError:
        raise ValueError('Stable-Baselines3 is not installed: pip install "torchrl_agent[bench]".') from None
    experiment = Experiment.load("arena", *overrides)
    ours = _train_ours(experiment, seconds)
    baseline = _train_baseline(experiment, baseline_seconds or seconds)
    reached = {
        str(skill): {"ours": _time_to(skill, ours["curve"]), "stable_baselines3": _time_to(skill, baseline["curve"])}
        for skill in SKILLS
    }
    return {
        "task": "arena, style 1, full difficulty",
        "seconds": seconds,
        "baseline_seconds": baseline_seconds or seconds,
        "ours": ours,
        "stable_baselines3": baseline,
        "ratio_frames_per_second": ours["frames_per_second"] / baseline["frames_per_second"],
        "seconds_to_spawners_destroyed": reached,
        "threads": torch.get_num_threads(),
        "versions": {**versions(), "stable_baselines3": stable_baselines3.__version__},
    }


def _train_ours(experiment: Experiment, seconds: float) -> dict[str, Any]:
    experiment.total_frames = 10**12
    experiment.ppo.learning_rate.schedule = "constant"
    curve: list[dict[str, float]] = []
    start = time.perf_counter()
    learner: Learner | None = None
    for iteration in learn(experiment):
        learner = iteration.learner
        elapsed = time.perf_counter() - start
        curve.append(_point(elapsed, iteration.frames, iteration.metrics.get("rollout/spawners_destroyed", 0.0)))
        if elapsed > seconds:
            break
    if learner is None:
        raise ValueError("no iteration was finished: give more seconds.")
    playing = curve[-1]["seconds"] - learner.compile_seconds
    return {
        "frames": learner.frames,
        "frames_per_second": learner.frames / playing,
        "compile_seconds": learner.compile_seconds,
        "evaluation": _judge(learner.agent.actor),
        "curve": curve,
    }


def _train_baseline(experiment: Experiment, seconds: float) -> dict[str, Any]:
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import VecNormalize

    worlds = VecNormalize(_vec_env(BASELINE_WORLDS), gamma=experiment.ppo.gamma)
    sizes = list(experiment.model.hidden_sizes)
    model = PPO(
        "MlpPolicy",
        worlds,
        n_steps=512,
        batch_size=64,
        n_epochs=10,
        gamma=experiment.ppo.gamma,
        policy_kwargs={"net_arch": {"pi": sizes, "vf": sizes}, "activation_fn": nn.SiLU},
        seed=experiment.seed,
        device="cpu",
    )
    recorder, curve = _recorder(seconds)
    start = time.perf_counter()
    model.learn(10**12, callback=recorder)
    elapsed = time.perf_counter() - start

    def policy(tensordict: TensorDictBase) -> TensorDictBase:
        observation = worlds.normalize_obs(tensordict.get(keys.OBSERVATION).numpy())
        action, _ = model.predict(observation, deterministic=True)
        return tensordict.set(keys.ACTION, torch.as_tensor(action, dtype=torch.int64))

    return {
        "frames": model.num_timesteps,
        "frames_per_second": model.num_timesteps / elapsed,
        "evaluation": _judge(policy),
        "curve": curve,
    }


def _judge(policy: Any) -> dict[str, Any]:
    return summarise(evaluate_policy(policy, ArenaEnv(64, seed=10_000)))


def _vec_env(number: int) -> Any:
    """The Arena as a Stable-Baselines3 ``VecEnv``, through the Gymnasium adapter."""
    from stable_baselines3.common.vec_env import VecEnv

    class ArenaVecEnv(VecEnv):
        def __init__(self) -> None:
            self.vector = GymnasiumVectorEnv(ArenaEnv(number).compile())
            super().__init__(number, self.vector.single_observation_space, self.vector.single_action_space)
            self.vector.reset()
            self.vector.step(np.zeros(number, dtype=np.int64))  # compiles, before the baseline's clock starts

        def reset(self) -> np.ndarray:
            return self.vector.reset()[0]

        def step_async(self, actions: np.ndarray) -> None:
            self.actions = actions

        def step_wait(self) -> tuple:
            observation, reward, terminated, truncated, infos = self.vector.step(self.actions)
            done = terminated | truncated
            rows: list[dict[str, Any]] = [{} for _ in range(number)]
            for index in np.nonzero(done)[0]:
                statistics = {name: float(value[index]) for name, value in infos["final_info"].items()}
                rows[index] = {
                    "terminal_observation": infos["final_obs"][index],
                    "TimeLimit.truncated": bool(truncated[index]),
                    "statistics": statistics,
                }
            return observation, reward.astype(np.float32), done, rows

        def close(self) -> None:
            self.vector.close()

        def get_attr(self, attr_name: str, indices: Any = None) -> list:
            return [getattr(self.vector, attr_name, None)] * number

        def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
            setattr(self.vector, attr_name, value)

        def env_method(self, method_name: str, *arguments: Any, indices: Any = None, **kwargs: Any) -> list:
            return [getattr(self.vector, method_name)(*arguments, **kwargs)] * number

        def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
            return [False] * number

    return ArenaVecEnv()


def _recorder(seconds: float) -> tuple[Any, list[dict[str, float]]]:
    """A callback that stops after ``seconds``, and the learning curve that it fills."""
    from stable_baselines3.common.callbacks import BaseCallback

    curve: list[dict[str, float]] = []

    class Recorder(BaseCallback):
        def _on_training_start(self) -> None:
            self.start = time.perf_counter()
            self.latest: list[float] = []

        def _on_step(self) -> bool:
            self.latest += [
                info["statistics"]["spawners_destroyed"] for info in self.locals["infos"] if "statistics" in info
            ]
            self.latest = self.latest[-100:]
            return time.perf_counter() - self.start < seconds

        def _on_rollout_end(self) -> None:
            mean = float(np.mean(self.latest)) if self.latest else float("nan")
            curve.append(_point(time.perf_counter() - self.start, self.num_timesteps, mean))

    return Recorder(), curve


def _point(seconds: float, frames: int, spawners: float) -> dict[str, float]:
    return {
        "seconds": round(seconds, 1),
        "frames": frames,
        "spawners_destroyed": 0.0 if spawners != spawners else round(spawners, 3),
    }


def _time_to(skill: float, curve: list[dict[str, float]]) -> float | None:
    return next((point["seconds"] for point in curve if point["spawners_destroyed"] >= skill), None)
