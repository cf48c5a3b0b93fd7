"""Learning beside Stable-Baselines3: the same game, network and wall-clock time, and the same evaluation.

Both train in the Arena of ``configs/arena.yaml``, one after the other. This project's compile time is included; the
baseline gets worlds that are already compiled, through this project's adapter, so that its own speed is measured and
not that of a slow game.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import time
from collections import deque
from typing import Any

import numpy as np
import torch

from benchmarks.sb3_baseline import (
    BASELINE_WORLDS,
    BASELINES,
    ENDLESS,
    SKILL,
    baseline_policy,
    make_baseline,
    samples_per_frame,
)
from torchrl_agent.cli.arguments import add_overrides, print_table
from torchrl_agent.core.checkpoint import versions
from torchrl_agent.core.progress import Progress
from torchrl_agent.experiment import Experiment
from torchrl_agent.loop import learn
from torchrl_agent.training.evaluator import evaluate_policy, summarize

ALIKE = ("total_frames=7_500_000", "tuned.dqn.dueling=false", "tuned.dqn.double=false", "tuned.dqn.num_steps=1")
"""Length of the learning rate's schedule, and DQN as in the baseline, unless they are among the overrides."""
THREADS = 2
"""CPU threads of this project, unless ``threads=`` is among the overrides."""
BASELINE_THREADS = 1
"""CPU threads of the baseline: its minibatches of 64 are no faster on two threads."""
JUDGED_EPISODES = 64
WINDOW = 100
"""Number of training episodes per point of the baseline's learning curve (this project's: as many or one per world)."""
SKILLS = (0.5, 1.0, 2.0, 3.0, 5.0, 10.0)
"""Levels of skill: spawners destroyed per training episode."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add changes of both, training times and the algorithm."""
    add_overrides(parser)
    parser.add_argument("--seconds", type=float, default=2.0, help="training time (2)")
    parser.add_argument("--baseline-seconds", type=float, help="training time of the baseline, if another")
    parser.add_argument("--algorithm", choices=list(BASELINES), default="ppo", help="the same of both (ppo)")


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Train both, and print the comparison."""
    result = learn_against_baseline(parsed.overrides, parsed.seconds, parsed.baseline_seconds, parsed.algorithm)
    print_table({name: value for name, value in result.items() if not isinstance(value, dict)})
    return {"config": "arena_long", **result}


def learn_against_baseline(
    overrides: list[str], seconds: float, baseline_seconds: float | None = None, algorithm: str = "ppo"
) -> dict[str, Any]:
    """Train both for ``seconds`` one after the other and compare; ``baseline_seconds`` gives the baseline another time.

    The ``algorithm`` is a key of :data:`BASELINES`. Both learn as often from a frame (``gradient_samples_per_frame``),
    except by PPO, where the baseline's settings are the reference's.

    An update that has begun is finished, so either may take a little longer: ``seconds`` of each side is its real
    time. ``frames_per_second`` (and the ratio) is that of the second half of the time, when all is compiled and both
    learn from every frame (see :func:`steady_rate`); ``frames_per_second_with_compiling`` is that of all of it.
    ``time_to_skill`` is the number of seconds, including compilation, after which each first reached a level of
    spawners destroyed per training episode (null: never), and the ratio of the baseline's to this project's
    (``ratio``, see :func:`compare_curves`).

    Raises:
        ValueError: Stable-Baselines3 is not installed, or the arguments or overrides cannot work.
    """
    theirs = seconds if baseline_seconds is None else baseline_seconds
    if not min(seconds, theirs) > 0:
        raise ValueError(f"the training times are {seconds} and {theirs} seconds: both must be above 0.")
    stable_baselines3 = _import_stable_baselines3()
    experiment = Experiment.load("arena_long", f"algorithm={algorithm}", *ALIKE, *overrides)
    if experiment.world.get("observation") == "dict":
        raise ValueError("the baseline sees one vector: use world.observation=classic or world.observation=extended.")
    experiment.threads = experiment.threads or THREADS
    ours = _train_ours(experiment, seconds)
    torch.set_num_threads(BASELINE_THREADS)
    baseline = _train_baseline(stable_baselines3, experiment, theirs)
    return {
        "task": f"arena, style {experiment.world.get('style', 1)}, full difficulty",
        "algorithm": experiment.algorithm_class.name,
        "overrides": list(overrides),
        "seconds": seconds,
        "baseline_seconds": theirs,
        "ours": ours,
        "stable_baselines3": baseline,
        "ratio_frames_per_second": ours["frames_per_second"] / baseline["frames_per_second"],
        "time_to_skill": compare_curves(ours["curve"], baseline["curve"]),
        "device": ours["device"],
        "threads": {"ours": experiment.threads, "stable_baselines3": BASELINE_THREADS},
        "versions": {**versions(), "stable_baselines3": stable_baselines3.__version__},
    }


def compare_curves(ours: list[dict[str, Any]], baseline: list[dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Return for each of :data:`SKILLS` the seconds at which each curve first reached it, and the ratio of the
    baseline's to this project's; where the baseline never did, ``ratio_at_least`` is that of its whole training time.
    """
    compared = {}
    for skill in SKILLS:
        mine, theirs = _time_to(skill, ours), _time_to(skill, baseline)
        row = {"ours": mine, "stable_baselines3": theirs, "ratio": theirs / mine if mine and theirs else None}
        if mine and theirs is None:
            row["ratio_at_least"] = baseline[-1]["seconds"] / mine
        compared[str(skill)] = row
    return compared


def steady_rate(curve: list[dict[str, Any]]) -> float:
    """Return frames per second over the second half of a curve's time; over all of it if the half has one point."""
    end = curve[-1]
    first = next(point for point in curve if point["seconds"] >= end["seconds"] / 2)
    if first is end:
        return end["frames"] / max(end["seconds"], 1e-9)
    return (end["frames"] - first["frames"]) / (end["seconds"] - first["seconds"])


def _time_to(skill: float, curve: list[dict[str, Any]]) -> float | None:
    return next((point["seconds"] for point in curve if (point[SKILL] or 0.0) >= skill), None)


class _Clock:
    """Wall-clock time of one side's training, with progress shown."""

    def __init__(self, name: str, seconds: float) -> None:
        self.progress = Progress(seconds, "second", name)
        self.seconds, self.start = seconds, time.perf_counter()

    def elapsed(self) -> float:
        """Return the seconds since the start."""
        elapsed = time.perf_counter() - self.start
        self.progress.reach(min(elapsed, self.seconds))
        return elapsed


def _point(seconds: float, frames: int, episode_return: float, skill: float) -> dict[str, Any]:
    """Return a point of a learning curve; its means are None before any episode ended."""
    means = {"return": episode_return, SKILL: skill}
    rounded = {name: None if math.isnan(value) else round(value, 3) for name, value in means.items()}
    return {"seconds": round(seconds, 2), "frames": frames, **rounded}


def _judge(policy: Any, experiment: Experiment) -> dict[str, Any]:
    """Evaluate the first episode of each world at full difficulty, with the most likely actions."""
    world = experiment.make_world(evaluation=True, num_envs=JUDGED_EPISODES, seed=experiment.evaluation.seed)
    return summarize(evaluate_policy(policy, world, deterministic=True))


# --- ours -------------------------------------------------------------------------------------------------------------


def _train_ours(experiment: Experiment, seconds: float) -> dict[str, Any]:
    experiment.total_frames = ENDLESS
    experiment.algorithm.learning_rate.schedule = "constant"  # as the baseline's; the end is not known in frames
    curve: list[dict[str, Any]] = []
    clock = _Clock("torchrl_agent", seconds)
    for iteration in learn(experiment):
        elapsed, metrics = clock.elapsed(), iteration.metrics
        score, skill = (metrics.get(f"rollout/{name}", math.nan) for name in ("ep_rew_mean", SKILL))
        curve.append(_point(elapsed, iteration.frames, score, skill))
        if elapsed >= seconds:
            break
    clock.progress.close()
    learner = iteration.learner
    return {
        "num_envs": learner.num_envs,
        "gradient_samples_per_frame": _our_samples_per_frame(experiment),
        "seconds": elapsed,
        "frames": learner.frames,
        "frames_per_second": steady_rate(curve),
        "frames_per_second_with_compiling": learner.frames / elapsed,
        "compile_seconds": learner.compile_seconds,
        "device": str(learner.device),
        "evaluation": _judge(learner.agent.policy, experiment),
        "curve": curve,
    }


def _our_samples_per_frame(experiment: Experiment) -> float:
    config = experiment.algorithm
    return float(getattr(config, "replay_ratio", getattr(config, "num_epochs", 1)))


# --- Stable-Baselines3 ------------------------------------------------------------------------------------------------


def _import_stable_baselines3() -> Any:
    try:
        import stable_baselines3  # an extra
    except ImportError:
        raise ValueError('Stable-Baselines3 is not installed: pip install "torchrl-agent[bench]".') from None
    return stable_baselines3


def _train_baseline(stable_baselines3: Any, experiment: Experiment, seconds: float) -> dict[str, Any]:
    experiment = dataclasses.replace(experiment, device="cpu")  # where its small minibatches are fastest
    model = make_baseline(stable_baselines3, experiment)
    curve: list[dict[str, Any]] = []
    clock = _Clock("Stable-Baselines3", seconds)
    model.learn(ENDLESS, callback=_recorder(stable_baselines3, clock, curve))
    elapsed = clock.elapsed()
    clock.progress.close()
    return {
        "num_envs": BASELINE_WORLDS,
        "gradient_samples_per_frame": samples_per_frame(model),
        "seconds": elapsed,
        "frames": model.num_timesteps,
        "frames_per_second": steady_rate(curve),
        "device": "cpu",
        "evaluation": _judge(baseline_policy(model), experiment),
        "curve": curve,
    }


def _recorder(stable_baselines3: Any, clock: _Clock, curve: list[dict[str, Any]]) -> Any:
    """Return a callback that records the learning curve and stops when the time is over."""

    class Recorder(stable_baselines3.common.callbacks.BaseCallback):
        def _on_training_start(self) -> None:
            self.latest: deque[tuple[float, float]] = deque(maxlen=WINDOW)

        def _on_step(self) -> bool:
            episodes = (info["episode"] for info in self.locals["infos"] if "episode" in info)
            self.latest.extend((episode["return"], episode[SKILL]) for episode in episodes)
            return clock.elapsed() < clock.seconds

        def _on_rollout_end(self) -> None:
            means = np.mean(self.latest, axis=0).tolist() if self.latest else (math.nan, math.nan)
            curve.append(_point(clock.elapsed(), self.num_timesteps, *means))

        def _on_training_end(self) -> None:
            self._on_rollout_end()

    return Recorder()
