"""Conversion of a Stable-Baselines3 model to a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchrl_agent.algorithms.a2c import A2C
from torchrl_agent.algorithms.actor_critic import OnPolicyActorCritic
from torchrl_agent.algorithms.algorithm import Algorithm
from torchrl_agent.algorithms.registry import class_path, find_algorithm
from torchrl_agent.convert import layout, off_policy
from torchrl_agent.convert.archive import Archive, read_archive, understanding
from torchrl_agent.convert.checks import check_archive, find_activation
from torchrl_agent.convert.moments import moments_of, take_over
from torchrl_agent.convert.networks import absorb_rounding, correspondence, model_settings
from torchrl_agent.convert.normalization import Normalization, joined, read_normalization
from torchrl_agent.convert.pairs import fill
from torchrl_agent.convert.run_files import as_overrides, check_overrides, check_world, write_run
from torchrl_agent.convert.settings import hyperparameters
from torchrl_agent.core import keys
from torchrl_agent.experiment import Experiment
from torchrl_agent.modules.specs import group_spec
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
    check_overrides(overrides, model)
    kind = _choose_algorithm(archive, overrides)
    words = [f"algorithm={class_path(kind)}", *as_overrides(settings, kind), *overrides]
    experiment = Experiment.load(config, *words, trust=trust)
    acts = f"{archive.heads} actions" if archive.action_size is None else f"{archive.action_size} numbers"
    shapes = check_world(model, archive.observations, acts, experiment, config)
    pictures = [name for name, shape in shapes.items() if len(shape) == 3]
    experiment.model.perception.encoders = dict.fromkeys(pictures, "nature")
    if archive.algorithm == "A2C" and kind is not A2C:
        notes.append(f"A2C goes on as {kind.name.upper()}, with one epoch of one minibatch")
    learner = experiment.make_learner()
    learner.frames = frames
    if keys.ACTION_MASK in group_spec(learner.env).keys():
        notes.append("the world masks actions: where Stable-Baselines3 chose an illegal one, the run takes a legal one")
    with understanding(model):
        notes.append(_copy(learner, archive, normalization))
    experiment.run.name = run_name or experiment.run.name
    origin = {"model": model.name, "algorithm": archive.algorithm, "stable_baselines3": archive.version}
    return write_run(learner, origin, notes), notes


def _copy(learner: Learner, archive: Archive, normalization: Normalization) -> str:
    """Copy weights, moments, training state and statistics; return a note on the moments."""
    pairs = correspondence(learner.agent, archive)
    if archive.algorithm in layout.OFF_POLICY:
        off_policy.go_on(learner, archive, pairs)
    else:
        fill(pairs.pairs(), archive.policy)
    note = take_over(learner, pairs.pairs(), moments_of(archive), archive.optimizer)
    statistics = joined(normalization.statistics, [str(key) for key in learner.agent.normalizer.in_keys])
    learner.set_normalization_stats(statistics)
    if normalization.observations:
        absorb_rounding(learner.agent, statistics)
    return note


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
