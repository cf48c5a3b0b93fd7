"""Pre-training: one module of an agent learns from rollouts of scripted and random policies, before PPO begins."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict
from torchrl.envs import EnvBase

from torchrl_agent.core.abilities import abilities, world_name
from torchrl_agent.core.bounds import FRAMES, check_ranges, count, number
from torchrl_agent.core.checkpoint import MODULE_FILE, versions, write_json
from torchrl_agent.core.progress import Progress
from torchrl_agent.core.run_names import CONFIG, find_run
from torchrl_agent.core.text import did_you_mean
from torchrl_agent.experiment import Experiment
from torchrl_agent.experiment.config_files import write_config
from torchrl_agent.experiment.judging import evaluate
from torchrl_agent.models.agent import MODULES as BUILT_IN
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.pretrained import MODULES, has_statistics, load_pretrained, restore_reward_scale, save_module
from torchrl_agent.modules.specs import action_heads
from torchrl_agent.optimization.updater import Updater
from torchrl_agent.pretrain.data import (
    MOST_DISTURBED,
    Sequences,
    choose_players,
    collect,
    join_recordings,
    make_sequences,
)
from torchrl_agent.pretrain.lessons import Best, Lesson, total_loss
from torchrl_agent.pretrain.recording import fit, read_recording, write_recording
from torchrl_agent.runs.load import load_agent
from torchrl_agent.runs.metrics import MetricsWriter
from torchrl_agent.training.evaluator import evaluate_policy, summarize
from torchrl_agent.training.metrics import to_host
from torchrl_agent.transforms import RewardScaler

REPORTS = 20
"""Number of rows of metrics.csv, each with an evaluation on the validation worlds."""

__all__ = ["PretrainConfig", "learn", "make_updater", "prepare", "pretrain", "switch_on"]


@dataclass
class PretrainConfig:
    """Settings of a pre-training."""

    frames: int = count(40_000, FRAMES)
    """Steps to record, summed over worlds."""
    updates: int = count(1_000)
    """Gradient steps."""
    learning_rate: float = number(1e-3, above=0)
    """Learning rate of Adam."""
    batch_frames: int = count(4096, FRAMES)
    """Frames of agents per update. Rounded down to whole sequences; at least one sequence."""
    players: list[str] | None = None
    """Policies that act. By default the world's first scripted policy, and except for the policy random actions."""
    disturbed: float = number(0.0, least=0, most=MOST_DISTURBED)
    """Fraction of steps with random actions instead. In stretches of some steps (Laskey et al. 2017)."""
    temperature: float | None = number(None, above=0)
    """Temperature of the policy's advantage-weighted regression. None clones the recorded actions."""
    record: str | None = None
    """New folder for the recording."""
    data: list[str] | None = None
    """Recordings to learn from instead of playing."""


def pretrain(module: str, experiment: Experiment, config: PretrainConfig, output: Path | None = None) -> dict[str, Any]:
    """Pre-train a module and write ``module.pt``, ``config.yaml``, ``metrics.csv`` and ``report.json`` to a folder. The
    weights with the lowest loss on the validation worlds are kept.

    Args:
        module: one of ``MODULES``, or one of ``model.custom_modules`` with a loss.
        experiment: world, agent, and length and discount of PPO's rollouts; ``pretrained`` and ``frozen`` apply too.
        output: a new folder; by default ``runs/pretrain-MODULE-<time>``.

    Returns:
        the report, with its ``folder``.

    Raises:
        ValueError: the settings cannot work; nothing is written then.
    """
    start = time.perf_counter()
    check_ranges(config)
    experiment = switch_on(module, experiment)
    lesson, data = prepare(module, experiment, config)
    default = Path(experiment.run.folder).expanduser() / f"pretrain-{module}-{datetime.now():%Y%m%d-%H%M%S}"
    folder = _new_folder(output or default)
    write_config(experiment, folder)
    before = last = lesson.validate(data.validation)
    best = Best(lesson, before)
    writer = MetricsWriter(folder, tensorboard=False)
    updater = make_updater(lesson, config.learning_rate, experiment.acceleration.update)
    for update, learned, last in learn(lesson, updater, data, config):
        best.consider(update, last)
        validation = {f"validation/{name}": value for name, value in last.items()}
        writer.write(update * _batch(data, config) * data.train.shape[1], {"update": update, **learned, **validation})
    best.restore()
    save_module(folder / MODULE_FILE, lesson.agent, module, data.scaler, lesson.auxiliary)
    report = {
        "module": module,
        "config": experiment.name,
        "players": data.players,
        "frames": data.frames,
        "updates": config.updates,
        "sequences": {name: getattr(data, name).shape[0] for name in ("train", "validation", "test")},
        "validation_before": before,
        "validation_after": best.losses,
        "validation_last": last,
        "best_update": best.update,
        "figures": lesson.figures(data.train, data.test),
        "versions": versions(),
    }
    if module == "policy":
        report["world"] = _play(experiment, lesson, data.players)
    report["seconds"] = round(time.perf_counter() - start, 1)
    write_json(folder / "report.json", report)
    return {**report, "folder": str(folder)}


def make_updater(lesson: Lesson, learning_rate: float, compile: bool) -> Updater:
    """Return the updater: Adam, with the gradient clipped by its global norm."""
    return Updater(
        lesson.losses,
        torch.optim.Adam(lesson.parameters, learning_rate),
        [lesson.parameters],
        lesson.agent.module_names(),
        max_grad_norm=1.0,
        compile=compile,
        name=f"pre-training {lesson.module}",
    )


def learn(
    lesson: Lesson, updater: Updater, data: Sequences, config: PretrainConfig
) -> Iterator[tuple[int, dict[str, float], dict[str, float]]]:
    """Make the updates; yield, about :data:`REPORTS` times, the number of the last one, its losses (``train/...``) and
    those of the validation worlds.
    """
    every = max(1, config.updates // REPORTS)
    shown: dict[str, str] = {}
    with Progress(config.updates, "update") as progress:
        for update in range(1, config.updates + 1):
            rows = torch.randint(data.train.shape[0], (_batch(data, config),), device=data.train.device)
            metrics = updater.update(data.train[rows])
            if update % every == 0 or update == config.updates:
                losses = to_host(dict(metrics.items()))
                updater.check(losses, "lower --learning-rate")
                learned = {f"train/{name}": value for name, value in losses.items()}
                validation = lesson.validate(data.validation)
                shown = {"validation": f"{total_loss(validation):.4g}"}
                yield update, learned, validation
            progress.reach(update, shown)


def switch_on(module: str, experiment: Experiment) -> Experiment:
    """Return a copy of the experiment in which the module is enabled, and has losses to learn from.

    Raises:
        ValueError: there is no such module, or it cannot learn without another one.
    """
    names = (*MODULES, *experiment.model.custom_modules)
    if module not in names:
        raise ValueError(f"there is no module {module!r}{did_you_mean(module, names)}: use one of {', '.join(names)}.")
    experiment = copy.deepcopy(experiment)
    model = experiment.model
    if module == "world_model" and model.world_model.predict_others:
        raise ValueError(
            "a world model that predicts others learns from what the social model says, which pre-training does not "
            "play: let it learn in training, or set model.world_model.predict_others=false."
        )
    if module == "policy" and model.world_model.enabled and model.world_model.improvement > 0:
        raise ValueError(
            "the policy imitates without the dreams that change its logits: set model.world_model.improvement=0 here, "
            "and as it was in training."
        )
    if module != "policy" and model.memory == "none":
        model.perception.enabled = True
    if module in BUILT_IN:
        BUILT_IN[module].switch_on(model)
    return experiment


def prepare(module: str, experiment: Experiment, config: PretrainConfig) -> tuple[Lesson, Sequences]:
    """Return agent and data; the normalizer is updated on the data, unless pre-trained modules had its statistics."""
    torch.manual_seed(experiment.seed)
    if experiment.threads is not None:
        torch.set_num_threads(experiment.threads)
    env = experiment.make_world()
    agent = experiment.make_agent(env)
    load_pretrained(agent, experiment.pretrained, experiment.frozen)
    agent.normalizer.frozen = has_statistics(agent, experiment.pretrained)
    lesson = Lesson(agent, module, action_heads(env), config.temperature if module == "policy" else None)
    learning, length = experiment.algorithm, experiment.algorithm.rollout_steps
    if config.data:
        read = [read_recording(Path(folder)) for folder in config.data]
        parts = [(fit(rollout, agent), sheet["players"], sheet["worlds"]) for rollout, sheet in read]
        rollout, players, worlds = join_recordings(parts)
    else:
        rollout, players, worlds = _played(module, env, agent, config, length)
    if config.record:
        sheet = {"world": world_name(env), "players": players, "worlds": worlds, "frames": rollout.shape[0] * worlds}
        write_recording(Path(config.record), rollout, sheet)
    scaler = RewardScaler(rollout.shape[1], learning.gamma, learning.clip_rewards, enabled=learning.scale_rewards)
    scaler.to(rollout.device)
    restore_reward_scale(scaler, agent, experiment.pretrained, frozen=MODULES)
    return lesson, make_sequences(rollout[: len(rollout) // length * length], agent, worlds, players, length, scaler)


def _played(
    module: str, env: EnvBase, agent: Agent, config: PretrainConfig, length: int
) -> tuple[TensorDict, list[str], int]:
    """Return a rollout [steps, rows] of scripted policies or of a run's agent, names of the policies, and worlds."""
    worlds, named = env.batch_size[0], config.players or []
    if len(named) == 1 and (find_run(named[0]) / CONFIG).is_file():
        _, learned = load_agent(named[0], device=str(env.device))
        return fit(collect(env, agent, {}, config.frames, length, False, learned), agent), named, worlds
    players = choose_players(env, config.players, imitate=module == "policy", disturbed=config.disturbed)
    goals = module == "policy" and agent.manager is not None
    return collect(env, agent, players, config.frames, length, goals), list(players), worlds


def _batch(data: Sequences, config: PretrainConfig) -> int:
    """Return the number of sequences per update."""
    return min(data.train.shape[0], max(1, config.batch_frames // data.train.shape[1]))


def _play(experiment: Experiment, lesson: Lesson, players: list[str]) -> dict[str, Any]:
    """Return figures of the policy, and of the policies that it imitated, in the evaluation world."""
    config = experiment.evaluation
    figures = {"policy": evaluate(experiment, lesson.agent)}
    for name in players:
        env = experiment.make_world(evaluation=True, num_envs=config.episodes, seed=config.seed)
        if name not in abilities(env).players():
            continue
        player = choose_players(env, [name], imitate=True)[name]
        figures[name] = summarize(evaluate_policy(player, env, max_steps=config.max_steps))
    return figures


def _new_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise ValueError(f"{folder} exists already: choose another --output.") from None
    except OSError as error:
        raise ValueError(f"{folder} cannot be made ({error.strerror}): choose another --output.") from None
    return folder
