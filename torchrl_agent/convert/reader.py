"""Conversion of a Stable-Baselines3 model to a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchrl_agent import keys
from torchrl_agent.algorithms.algorithm import Algorithm
from torchrl_agent.algorithms.dqn import DQN
from torchrl_agent.algorithms.registry import class_path, find_algorithm
from torchrl_agent.convert import deep_q
from torchrl_agent.convert.archive import Archive, find_activation, read_archive, understanding
from torchrl_agent.convert.networks import absorb_rounding, fill, model_settings
from torchrl_agent.convert.normalization import Normalization, read_normalization
from torchrl_agent.core.checkpoint import save_checkpoint, write_json
from torchrl_agent.experiment import Experiment
from torchrl_agent.experiment.config_files import write_config
from torchrl_agent.modules.specs import action_bounds, action_heads, group_spec, observation_shapes
from torchrl_agent.runs.folder import new_run, run_folder
from torchrl_agent.runs.locks import Locks
from torchrl_agent.training.learner import Learner
from torchrl_agent.transforms import set_statistics

HYPERPARAMETERS = {
    "gamma": "algorithm.gamma",
    "gae_lambda": "algorithm.lmbda",
    "ent_coef": "algorithm.entropy_coeff",
    "vf_coef": "algorithm.critic_coeff",
    "max_grad_norm": "algorithm.max_grad_norm",
    "normalize_advantage": "algorithm.normalize_advantage",
    "n_steps": "algorithm.rollout_steps",
    "n_envs": "world.num_envs",
    "learning_rate": "algorithm.learning_rate.initial",
}
"""Stable-Baselines3's names and this project's, for PPO and A2C."""
PPO_HYPERPARAMETERS = {
    "n_epochs": "algorithm.num_epochs",
    "clip_range": "algorithm.clip_epsilon",
    "clip_range_vf": "algorithm.clip_value",
    "target_kl": "algorithm.target_kl",
    "batch_size": "algorithm.minibatch_size",
}
"""Hyper-parameters that only PPO has."""
KNOWN = {
    "PPO": HYPERPARAMETERS | PPO_HYPERPARAMETERS,
    "RecurrentPPO": HYPERPARAMETERS | PPO_HYPERPARAMETERS,
    "A2C": HYPERPARAMETERS,
    "DQN": deep_q.HYPERPARAMETERS,
}
"""Hyper-parameters converted from a model, by its algorithm."""
GOES_ON = {
    "A2C": "A2C goes on as PPO with one epoch of one minibatch, which is the same but for Adam and clipping",
    "DQN": "DQN goes on as DQN with an empty replay, which fills first",
}
"""Notes on the algorithms that are not PPO."""
CLIP = "model.clip_observations"
"""The one setting of the model that a JSON file of statistics does not determine."""


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
        model: file written by ``model.save`` of PPO, A2C, DQN or RecurrentPPO.
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
    notes: list[str] = []
    normalization = _normalization(archive, vecnormalize, trust, notes)
    with understanding(model):
        function, how = find_activation(archive, activation)
        notes.append(f"the activation function is {function} ({how})")
        frames = max(0, int(archive.data.get("num_timesteps") or 0))
        settings = {
            **_hyperparameters(archive, normalization, notes),
            "total_frames": max(1, frames),
            **{f"model.{name}": value for name, value in model_settings(archive).items()},
            "model.activation": function,
            "model.normalize_observations": normalization.observations,
        }
    _check_overrides(overrides, model)
    kind = _choose_algorithm(archive, overrides)
    words = [f"algorithm={class_path(kind)}", *_as_overrides(settings, kind), *overrides]
    experiment = Experiment.load(config, *words, trust=trust)
    _check_world(archive, experiment, config, notes)
    learner = experiment.make_learner()
    learner.frames = frames
    with understanding(model):
        if archive.algorithm == "DQN":
            deep_q.go_on(learner, archive)
        else:
            fill(learner.agent, archive)
    statistics = {**learner.statistics(), **normalization.statistics}
    set_statistics(learner.agent.normalizer, learner.algorithm.scaler, statistics)
    if normalization.observations:
        absorb_rounding(learner.agent, statistics)
    notes.append("the optimizer starts afresh, its moments are not taken over")
    experiment.run.name = run_name or experiment.run.name
    return _write_run(learner, archive, notes), notes


def _as_overrides(settings: dict[str, Any], kind: type[Algorithm]) -> list[str]:
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
    if archive.algorithm == "DQN":
        notes.append("a DQN does not say whether it was trained behind VecNormalize: assumed not, as no file was given")
    return Normalization({})


def _hyperparameters(archive: Archive, normalization: Normalization, notes: list[str]) -> dict[str, Any]:
    """Return the model's hyper-parameters by this project's names; add notes on those unreadable or different."""
    found: dict[str, Any] = {}
    for name, ours in KNOWN[archive.algorithm].items():
        try:
            found[ours] = archive.number(name)
        except LookupError:
            notes.append(f"{name} cannot be read without executing it: {ours} is the configuration's")
    if "algorithm.learning_rate.initial" in found:
        found |= {"algorithm.learning_rate.schedule": "constant", "algorithm.learning_rate.warmup": 0.0}
    if archive.algorithm in GOES_ON:
        notes.append(GOES_ON[archive.algorithm])
    if archive.algorithm == "DQN":
        found |= deep_q.to_ours(archive, int(found.get("world.num_envs") or 1), notes)
    else:
        _fit_minibatches(archive, found, notes)
    clip = "algorithm.clip_rewards"
    found["algorithm.scale_rewards"] = normalization.rewards
    found[clip], found[CLIP] = normalization.clip_rewards, normalization.clip_observations
    if normalization.gamma is None and normalization.statistics:
        notes.append(f"{CLIP} and {clip} are 10, VecNormalize's default, unless you say otherwise: assumed")
    if normalization.gamma not in (None, found.get("algorithm.gamma")):
        notes.append(
            f"VecNormalize had gamma {normalization.gamma}: rewards are scaled with algorithm.gamma from now on"
        )
    return found


def _fit_minibatches(archive: Archive, found: dict[str, Any], notes: list[str]) -> None:
    """Give ``found`` a minibatch size that divides a rollout, and holds whole sequences if the policy is recurrent."""
    steps = int(found.get("algorithm.rollout_steps") or 0)
    frames = steps * int(found.get("world.num_envs") or 0)
    if archive.algorithm == "A2C":
        found |= {"algorithm.num_epochs": 1, "algorithm.minibatch_size": frames}
    wanted = int(found.get("algorithm.minibatch_size") or 0)
    least = steps if archive.algorithm == "RecurrentPPO" else 1
    if not (frames and wanted) or (frames % wanted == 0 and wanted % least == 0):
        return
    fitting = [size for size in range(least, frames + 1, least) if frames % size == 0]
    size = max((size for size in fitting if size <= wanted), default=fitting[0])
    found["algorithm.minibatch_size"] = size
    notes.append(
        f"algorithm.minibatch_size is {size}, since batches of {wanted} do not make up the {frames} frames of a rollout"
    )


def _check_overrides(overrides: Sequence[str], model: Path) -> None:
    """Raise ValueError for an override that would change the networks."""
    for text in overrides:
        name = text.lstrip("+~").split("=")[0]
        if name.split(".")[0] in ("model", "pretrained") and name != CLIP:
            raise ValueError(f"{text} was asked for, but {model} decides what the model is: leave it out.")


def _choose_algorithm(archive: Archive, overrides: Sequence[str]) -> type[Algorithm]:
    """Return the algorithm that continues the model: DQN for action values, PPO for a policy, or the requested one.

    Raises:
        ValueError: the algorithm does not train the kind of networks that the model holds.
    """
    default = "dqn" if archive.algorithm == "DQN" else "ppo"
    asked = [text.split("=", 1)[1] for text in overrides if text.split("=")[0] in ("algorithm", "algorithm._target_")]
    kind = find_algorithm(asked[-1] if asked else default)
    if issubclass(kind, DQN) != (default == "dqn"):
        held = "action values" if default == "dqn" else "a policy"
        raise ValueError(f"algorithm={asked[-1]} was asked for, but {archive.path} holds {held}: leave it out.")
    return kind


def _hydra(value: Any) -> str:
    """Return a value as it is written in Hydra's overrides."""
    words = {"None": "null", "True": "true", "False": "false"}
    return words.get(str(value), str(value))


def _check_world(archive: Archive, experiment: Experiment, config: Any, notes: list[str]) -> None:
    """Raise ValueError unless the world's observations and actions are the model's."""
    world = experiment.make_world(evaluation=True, num_envs=1)
    shapes, bounds = observation_shapes(world), action_bounds(world)
    taken = f"{action_heads(world)} actions" if bounds is None else f"{len(bounds[0])} numbers"
    known = f"{archive.heads} actions" if archive.log_std is None else f"{len(archive.log_std)} numbers"
    if [list(shape) for shape in shapes.values()] != [[archive.observation_size]] or taken != known:
        shown = ", ".join(f"{key} {list(shape)}" for key, shape in shapes.items())
        raise ValueError(
            f"{archive.path} sees {archive.observation_size} numbers and acts by {known}, but the world of "
            f"configuration {config} shows {shown} and takes {taken}: name the world it was trained in with --config "
            "and overrides."
        )
    if keys.ACTION_MASK in group_spec(world).keys():
        notes.append("the world masks actions: where Stable-Baselines3 chose an illegal one, the run takes a legal one")


def _write_run(learner: Learner, archive: Archive, notes: list[str]) -> Path:
    """Write the run's folder: configuration, checkpoint and origin."""
    experiment = learner.experiment
    with Locks() as locks:
        folder = new_run(experiment, locks)
        _write_into(folder, learner, archive, notes)
    return run_folder(experiment)


def _write_into(folder: Path, learner: Learner, archive: Archive, notes: list[str]) -> None:
    experiment = learner.experiment
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
    origin = {"model": archive.path.name, "algorithm": archive.algorithm, "stable_baselines3": archive.version}
    write_json(folder / "converted.json", {**origin, "notes": notes})
