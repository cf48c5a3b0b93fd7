"""Conversion of a Stable-Baselines3 model to a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from torchrl_agent import keys
from torchrl_agent.algorithms.a2c import A2C
from torchrl_agent.algorithms.actor_critic import OnPolicyActorCritic
from torchrl_agent.algorithms.algorithm import Algorithm
from torchrl_agent.algorithms.registry import class_path, find_algorithm
from torchrl_agent.convert import layout, off_policy
from torchrl_agent.convert.archive import Archive, read_archive, understanding
from torchrl_agent.convert.checks import check_archive, find_activation
from torchrl_agent.convert.moments import take_over
from torchrl_agent.convert.networks import absorb_rounding, correspondence, model_settings
from torchrl_agent.convert.normalization import Normalization, joined, read_normalization
from torchrl_agent.convert.pairs import fill
from torchrl_agent.convert.settings import CLIP, hyperparameters
from torchrl_agent.core.checkpoint import save_checkpoint, write_json
from torchrl_agent.experiment import Experiment
from torchrl_agent.experiment.config_files import write_config
from torchrl_agent.modules.specs import action_bounds, action_heads, group_spec, observation_shapes
from torchrl_agent.runs.folder import new_run, run_folder
from torchrl_agent.runs.locks import Locks
from torchrl_agent.training.learner import Learner


def from_sb3(
    model: Path,
    config: Any,
    overrides: Sequence[str] = (),
    run_name: str | None = None,
    vecnormalize: Path | None = None,
    trust: bool = False,
    activation: str | None = None,
) -> tuple[Path, list[str]]:
    """Convert a model to a run with one checkpoint; return its folder, and notes on assumptions and omissions.

    Args:
        model: file written by ``model.save`` of PPO, A2C, DQN, SAC, TD3 or RecurrentPPO.
        config: the configuration of the world that the model was trained in, such as ``gym:Hopper-v5``.
        overrides: changes of it, which take precedence over the model's own hyper-parameters.
        run_name: name of the run's folder; by default that of the configuration and the time.
        vecnormalize: its statistics, written by ``VecNormalize.save`` or as this project's JSON.
        trust: run foreign code: a pickle of ``vecnormalize``, and targets of the configuration.
        activation: the activation function, where the model does not name it.

    Raises:
        ValueError: something is missing, unsupported, contradictory or does not fit the world.
    """
    archive = read_archive(model)
    check_archive(archive)
    notes: list[str] = []
    normalization = _normalization(archive, vecnormalize, trust, notes)
    with understanding(model):
        function, how = find_activation(archive, activation)
        notes.append(f"the activation function is {function} ({how})")
        frames = max(0, int(archive.data.get("num_timesteps") or 0))
        settings = {
            **hyperparameters(archive, normalization, notes),
            "total_frames": max(1, frames),
            **{f"model.{name}": value for name, value in model_settings(archive).items()},
            "model.activation": function,
            "model.normalize_observations": normalization.observations,
        }
    _check_overrides(overrides, model)
    kind = _choose_algorithm(archive, overrides)
    words = [f"algorithm={class_path(kind)}", *as_overrides(settings, kind), *overrides]
    experiment = Experiment.load(config, *words, trust=trust)
    shapes = _check_world(archive, experiment, config, notes)
    pictures = [name for name, shape in shapes.items() if len(shape) == 3]
    experiment.model.perception.encoders = dict.fromkeys(pictures, "nature")
    if archive.algorithm == "A2C" and kind is not A2C:
        notes.append(f"A2C goes on as {kind.name.upper()}, with one epoch of one minibatch")
    learner = experiment.make_learner()
    learner.frames = frames
    with understanding(model):
        _copy(learner, archive, notes)
    _normalize(learner, normalization, list(shapes))
    experiment.run.name = run_name or experiment.run.name
    origin = {"model": model.name, "algorithm": archive.algorithm, "stable_baselines3": archive.version}
    return write_run(learner, origin, notes), notes


def _copy(learner: Learner, archive: Archive, notes: list[str]) -> None:
    """Copy weights, moments and training state."""
    pairs = correspondence(learner.agent, archive)
    if archive.algorithm in layout.OFF_POLICY:
        off_policy.go_on(learner, archive, pairs)
    else:
        fill(pairs.pairs(), archive.policy)
    notes.append(take_over(learner, archive, pairs.pairs()))


def _normalize(learner: Learner, normalization: Normalization, names: list[str]) -> None:
    """Copy the statistics of observations with these names, and of rewards."""
    found = joined(normalization.statistics, names)
    learner.set_normalization_stats(found)
    if normalization.observations:
        absorb_rounding(learner.agent, found)


def as_overrides(settings: dict[str, Any], kind: type[Algorithm]) -> list[str]:
    """Return the model's settings as overrides, without hyper-parameters that the algorithm lacks."""
    known = {f"algorithm.{each.name}" for each in dataclasses.fields(kind.config_class)}
    return [
        f"{name}={_hydra(value)}"
        for name, value in settings.items()
        if not name.startswith("algorithm.") or ".".join(name.split(".")[:2]) in known
    ]


def _normalization(archive: Archive, path: Path | None, trust: bool, notes: list[str]) -> Normalization:
    if path is not None:
        return read_normalization(path, trust)
    if archive.normalized:
        raise ValueError(
            f"{archive.path} was trained behind VecNormalize: give its statistics with --vecnormalize FILE, without "
            "them its policy sees numbers that mean nothing to it."
        )
    if archive.algorithm in layout.OFF_POLICY:
        notes.append(
            f"a {archive.algorithm} does not say whether it was trained behind VecNormalize: assumed not, as no file "
            "was given"
        )
    return Normalization({})


def _check_overrides(overrides: Sequence[str], model: Path) -> None:
    """Raise ValueError for an override that would change the networks."""
    for text in overrides:
        name = text.lstrip("+~").split("=")[0]
        if name.split(".")[0] in ("model", "pretrained") and name != CLIP:
            raise ValueError(f"{text} was asked for, but {model} decides what the model is: leave it out.")


def _choose_algorithm(archive: Archive, overrides: Sequence[str]) -> type[Algorithm]:
    """Return the algorithm that continues the model: its own, or the requested one of the same networks.

    Raises:
        ValueError: the algorithm does not train the kind of networks that the model holds.
    """
    default = {"RecurrentPPO": "ppo"}.get(archive.algorithm, archive.algorithm.lower())
    asked = [text.split("=", 1)[1] for text in overrides if text.split("=")[0] in ("algorithm", "algorithm._target_")]
    kind = find_algorithm(asked[-1] if asked else default)
    fits = issubclass(kind, OnPolicyActorCritic)
    if archive.algorithm in layout.OFF_POLICY:
        fits = kind.name == default
    if not fits:
        held = {"ppo": "a policy", "a2c": "a policy", "dqn": "action values"}.get(default, "a policy and action values")
        raise ValueError(f"algorithm={asked[-1]} was asked for, but {archive.path} holds {held}: leave it out.")
    return kind


def _hydra(value: Any) -> str:
    """Return a value as it is written in Hydra's overrides."""
    words = {"None": "null", "True": "true", "False": "false"}
    return words.get(str(value), str(value))


def _check_world(archive: Archive, experiment: Experiment, config: Any, notes: list[str]) -> dict[str, torch.Size]:
    """Return the shapes of the world's observations.

    Raises:
        ValueError: the world's observations or actions are not the model's.
    """
    world = experiment.make_world(evaluation=True, num_envs=1)
    shapes, bounds = observation_shapes(world), action_bounds(world)
    taken = f"{action_heads(world)} actions" if bounds is None else f"{len(bounds[0])} numbers"
    known = f"{archive.heads} actions" if archive.action_size is None else f"{archive.action_size} numbers"
    seen = archive.observations
    alike = {name: tuple(shape) for name, shape in shapes.items()} == seen
    if list(seen) == [""]:  # the only one, whatever its name
        alike = [tuple(shape) for shape in shapes.values()] == list(seen.values())
    if not alike or taken != known:
        shown = ", ".join(f"{key} {list(shape)}" for key, shape in shapes.items())
        wanted = ", ".join(f"{key} {list(shape)}" for key, shape in seen.items())
        wanted = f"{seen[''][0]} numbers" if list(seen) == [""] and len(seen[""]) == 1 else wanted.strip()
        raise ValueError(
            f"{archive.path} sees {wanted} and acts by {known}, but the world of configuration {config} shows {shown} "
            f"and takes {taken}: name the world it was trained in with --config and overrides."
        )
    if keys.ACTION_MASK in group_spec(world).keys():
        notes.append("the world masks actions: where Stable-Baselines3 chose an illegal one, the run takes a legal one")
    return shapes


def write_run(learner: Learner, origin: dict[str, str], notes: list[str]) -> Path:
    """Write the run's folder: configuration, checkpoint and origin."""
    experiment = learner.experiment
    with Locks() as locks:
        folder = new_run(experiment, locks)
        write_config(experiment, folder)
        save_checkpoint(
            folder / "checkpoints",
            learner.frames,
            learner.state_dict(),
            learner.statistics(),
            experiment.hash(),
            score=None,
            keep=experiment.run.keep_checkpoints,
        )
        write_json(folder / "converted.json", {**origin, "notes": notes})
    return run_folder(experiment)
