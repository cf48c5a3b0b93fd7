"""The training loop. READ THIS FIRST: :func:`learn` is all of reinforcement learning, :func:`train` keeps the books."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict

from torchrl_agent.experiment import Experiment, resolve_device, use_device
from torchrl_agent.film import film_policy
from torchrl_agent.learner import Learner
from torchrl_agent.model_card import write_model_card
from torchrl_agent.models.acting import acting_policy
from torchrl_agent.models.agent import Agent
from torchrl_agent.run_folder import new_run
from torchrl_agent.training.acceleration import MODES
from torchrl_agent.training.algorithm import NonFiniteError
from torchrl_agent.training.checkpoint import (
    CheckpointError,
    find_checkpoint,
    load_checkpoint,
    save_checkpoint,
    write_json,
    write_text,
)
from torchrl_agent.training.evaluation import evaluate_policy, summarise
from torchrl_agent.training.metrics import MetricsWriter, check_wandb, to_host, wandb_logger
from torchrl_agent.training.rollout import finished_episodes
from torchrl_agent.training.schedules import learning_rate


@dataclass
class Iteration:
    """What one turn of the loop yields."""

    number: int
    frames: int
    """Frames seen so far."""
    metrics: dict[str, float]
    learner: Learner
    rollout: TensorDict
    """The frames just learnt from [T, N]; its memory is used again by the next iteration."""

    @property
    def agent(self) -> Agent:
        """Actor and critic."""
        return self.learner.agent


def learn(experiment: Experiment, state: dict[str, Any] | None = None) -> Iterator[Iteration]:
    """Train and yield after every iteration; touches no file.

    Args:
        experiment: what to train.
        state: a checkpoint to continue from.

    Raises:
        ValueError: a configuration that cannot work.
        NonFiniteError: the world or the loss stopped being finite.
        CollapseError: training collapsed more often than its governor may go back.
    """
    yield from iterate(_prepare(experiment, state))


def _prepare(experiment: Experiment, state: dict[str, Any] | None) -> Learner:
    learner = Learner(experiment, pretrained=state is None)
    if state is not None:
        learner.load_state_dict(state)
    return learner


def iterate(learner: Learner) -> Iterator[Iteration]:
    """The loop itself: :func:`learn` with a learner that you have made, and perhaps changed."""
    experiment = learner.experiment
    while learner.frames < experiment.total_frames:
        start = time.perf_counter()
        rollout = learner.collector.collect()
        check_finite(rollout)
        collected = time.perf_counter()

        rate = learning_rate(experiment.hyperparameters.learning_rate, learner.frames / experiment.total_frames)
        diagnostics = to_host(learner.improve(rollout, rate))
        if learner.governor is None:
            learner.algorithm.check(diagnostics)

        finished = finished_episodes(rollout, learner.collector.statistics)
        learner.episodes.add(finished)
        curriculum = learner.env.record(finished) if hasattr(learner.env, "record") else {}
        learner.frames += rollout.numel()
        learner.number += 1
        metrics = {
            **learner.episodes.metrics(),
            **{f"curriculum/{name}": value for name, value in curriculum.items()},
            **{TRAIN_TAGS.get(name, f"train/{name}"): value for name, value in diagnostics.items()},
            **{f"acceleration/{part}": float(MODES.index(mode)) for part, mode in learner.modes().items()},
            **_speed(learner, rollout.numel(), start, collected),
        }
        if learner.governor is not None:
            metrics |= learner.governor.act(metrics, learner.frames)
        yield Iteration(learner.number, learner.frames, metrics, learner, rollout)


def train(experiment: Experiment, resume: Path | str | None = None) -> Iterator[Iteration]:
    """:func:`learn`, recorded in ``runs/<name>/``: configuration, code state, metrics, checkpoints, film, summary and
    model card.

    Args:
        experiment: what to train.
        resume: a run folder to continue in (from its last checkpoint).

    Raises:
        ValueError: see :func:`learn`; also if the run's folder exists already or cannot be written to.
    """
    state = None
    if resume is not None:
        state = load_checkpoint(find_checkpoint(Path(resume)), resolve_device(experiment.device), replay=True)
    # before anything is written: a configuration that cannot work leaves no trace
    check_wandb(experiment.run.wandb)
    learner = _prepare(experiment, state)
    if state is not None and state["frames"] >= experiment.total_frames:
        raise ValueError(
            f"{resume} has already trained for its {experiment.total_frames} frames: give a larger total_frames=."
        )
    folder = new_run(experiment) if resume is None else Path(resume)
    text = experiment.to_yaml()
    write_text(folder / "config.yaml", text)
    resumed_at = None if state is None else state["frames"]
    logger = wandb_logger(folder, experiment.run.wandb)
    writer = MetricsWriter(folder, experiment.run.tensorboard, resumed_at, logger)
    writer.describe(text, experiment.settings())
    iteration = None
    start = time.perf_counter()
    saved = 0 if state is None else state["frames"]
    try:
        for iteration in iterate(learner):
            writer.write(iteration.frames, iteration.metrics)
            if (
                iteration.frames - saved >= experiment.run.checkpoint_every
                or iteration.frames >= experiment.total_frames
            ):
                save(iteration, folder)
                saved = iteration.frames
            yield iteration
    finally:
        writer.close()
    assert iteration is not None, "there was something to train for"
    summary = _summary(iteration, folder, time.perf_counter() - start)
    write_json(folder / "summary.json", summary)
    write_model_card(folder, experiment, summary)


def save(iteration: Iteration, folder: Path) -> Path:
    """Write a checkpoint of this iteration into the run's folder."""
    learner, config = iteration.learner, iteration.learner.experiment
    score = iteration.metrics["rollout/ep_rew_mean"]
    return save_checkpoint(
        folder / "checkpoints",
        iteration.frames,
        learner.state_dict(),
        learner.statistics(),
        config.hash(),
        None if math.isnan(score) else score,
        config.run.keep_checkpoints,
    )


def load_agent(
    run: Path | str, device: str = "auto", which: str = "last", overrides: tuple[str, ...] = ()
) -> tuple[Experiment, Agent]:
    """A trained agent, with its normalisation statistics, and the experiment it comes from.

    Args:
        run: a run folder, or a checkpoint file inside one.
        device: where to put it.
        which: ``last`` or ``best``.
        overrides: changes of the run's configuration.
    """
    run = Path(run)
    path = find_checkpoint(run, which)
    config = (run if run.is_dir() else path.parent.parent) / "config.yaml"
    if not config.is_file():
        raise ValueError(
            f"there is no {config}, which says what agent {path} holds: give a run folder, or a checkpoint inside one."
        )
    experiment = Experiment.load(config, f"device={device}", *overrides)
    use_device(experiment.device)
    agent = experiment.make_agent(experiment.make_world(evaluation=True, num_envs=1))
    state = load_checkpoint(path, resolve_device(experiment.device))
    try:
        agent.load_state_dict(state["agent"])
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(f"{path} does not fit the run's config.yaml ({reason}).") from None
    return experiment, agent


def evaluate(
    experiment: Experiment, agent: Agent, episodes: int | None = None, deterministic: bool | None = None
) -> dict[str, Any]:
    """Figures of an agent on the evaluation world; see :func:`~torchrl_agent.training.evaluation.summarise`."""
    config = experiment.evaluation
    number = config.episodes if episodes is None else episodes
    if number < 1:
        raise ValueError(f"episodes is {number}: evaluate at least 1.")
    use_device(experiment.device)
    env = agent.attach(experiment.make_world(evaluation=True, num_envs=number, seed=config.seed))
    greedy = config.deterministic if deterministic is None else deterministic
    policy = acting_policy(agent)
    return summarise(evaluate_policy(policy, env, greedy, acceleration=experiment.acceleration))


def check_finite(rollout: TensorDict) -> None:
    """Raise NonFiniteError naming what the world returned that is not finite."""
    values = rollout.select(*(key for key in rollout.keys(True, True) if rollout.get(key).is_floating_point()))
    finite = {key: value.isfinite().all() for key, value in values.items(True, True)}
    if not bool(torch.stack(list(finite.values())).all()):
        culprits = ", ".join(
            ".".join(key) if isinstance(key, tuple) else key for key, ok in finite.items() if not bool(ok)
        )
        raise NonFiniteError(
            f"the rollout holds NaN or infinity in {culprits}: look at the world; the last checkpoint is good."
        )


TRAIN_TAGS = {
    "loss_objective": "train/policy_gradient_loss",
    "loss_critic": "train/value_loss",
    "loss_entropy": "train/entropy_loss",
    "kl": "train/approx_kl",
}
"""Stable-Baselines3's names for what TorchRL calls otherwise."""


def _speed(learner: Learner, frames: int, start: float, collected: float) -> dict[str, float]:
    end = time.perf_counter()
    speed = {
        "time/fps": frames / (end - start),
        "time/collect_seconds": collected - start,
        "time/learn_seconds": end - collected,
        "time/compile_seconds": learner.compile_seconds,
        "time/total_timesteps": float(learner.frames),
    }
    if learner.device.type == "cuda":
        speed["time/gpu_memory_mb"] = torch.cuda.max_memory_allocated(learner.device) / 2**20
    return speed


def _summary(iteration: Iteration, folder: Path, seconds: float) -> dict[str, Any]:
    learner, experiment = iteration.learner, iteration.learner.experiment
    summary: dict[str, Any] = {
        "config": experiment.name,
        "seed": experiment.seed,
        "device": str(learner.device),
        "frames": iteration.frames,
        "seconds": round(seconds, 1),
        "compile_seconds": round(learner.compile_seconds, 1),
        "acceleration": learner.modes(),
        "metrics": {key: None if math.isnan(value) else value for key, value in iteration.metrics.items()},
    }
    if experiment.run.final_evaluation:
        summary["evaluation"] = evaluate(experiment, learner.agent)
    if experiment.run.film:
        film = film_policy(
            learner.agent.attach(experiment.make_world(evaluation=True, num_envs=4, seed=experiment.evaluation.seed)),
            acting_policy(learner.agent),
            folder / "film.gif",
            acceleration=experiment.acceleration,
        )
        summary["film"] = None if film is None else film.name
    return json.loads(json.dumps(summary))
