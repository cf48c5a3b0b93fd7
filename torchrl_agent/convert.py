"""Runs made of Stable-Baselines3's models, and Stable-Baselines3's models made of runs (docs/stable_baselines3.md)."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchrl_agent import keys
from torchrl_agent.experiment import Experiment
from torchrl_agent.learner import Learner
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.networks import ACTIVATIONS
from torchrl_agent.models.specs import action_heads, group_spec, observation_shapes
from torchrl_agent.sb3_reader import (
    EPSILON,
    HYPERPARAMETERS,
    PPO_HYPERPARAMETERS,
    Archive,
    Normalization,
    find_activation,
    read_archive,
    read_normalization,
)
from torchrl_agent.sb3_writer import linear_layers, to_sb3
from torchrl_agent.train import new_run
from torchrl_agent.training.checkpoint import save_checkpoint, write_atomically, write_json
from torchrl_agent.transforms import set_statistics

CLIP = "model.clip_observations"
"""The one setting of the model that a JSON file of statistics leaves open."""


def add_arguments(verb: argparse.ArgumentParser) -> None:
    """The two directions of ``torchrl-agent convert``."""
    ways = verb.add_subparsers(dest="way", required=True, metavar="sb3|to-sb3", parser_class=type(verb))

    way = ways.add_parser("sb3", help="make a run of a Stable-Baselines3 model (PPO or A2C, MlpPolicy)")
    way.add_argument("model", metavar="MODEL.zip", type=Path)
    way.add_argument("--vecnormalize", type=Path, metavar="FILE", help="its statistics: .pkl (with --trust) or .json")
    way.add_argument("--trust", action="store_true", help="read a .pkl, which executes what its author put into it")
    way.add_argument("--config", default="arena", help="configuration of the world it was trained in (arena)")
    way.add_argument("--run-name", metavar="NAME", help="name of the run's folder")
    way.add_argument("--activation", choices=tuple(ACTIVATIONS), help="where the model does not say (tanh)")
    way.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="changes of the configuration")
    way.set_defaults(convert=_from)

    way = ways.add_parser("to-sb3", help="write a run's policy as a Stable-Baselines3 PPO model")
    way.add_argument("run_folder", metavar="RUN", type=Path, help="a run folder or a checkpoint file")
    way.add_argument("output", metavar="OUTPUT.zip", type=Path)
    way.add_argument("--checkpoint", choices=("last", "best"), default="last")
    way.set_defaults(convert=_to)


def run(parsed: argparse.Namespace) -> None:
    """Convert, then say what was assumed and where the result is."""
    paths, notes = parsed.convert(parsed)
    for note in notes:
        print(f"note: {note}.")
    for path in paths:
        print(path)


def _from(parsed: argparse.Namespace) -> tuple[list[Path], list[str]]:
    folder, notes = from_sb3(
        parsed.model,
        parsed.config,
        parsed.overrides,
        parsed.run_name,
        parsed.vecnormalize,
        parsed.trust,
        parsed.activation,
    )
    return [folder], notes


def _to(parsed: argparse.Namespace) -> tuple[list[Path], list[str]]:
    return to_sb3(parsed.run_folder, parsed.output, parsed.checkpoint)


def from_sb3(
    model: Path,
    config: str,
    overrides: Sequence[str] = (),
    run_name: str | None = None,
    vecnormalize: Path | None = None,
    trust: bool = False,
    activation: str | None = None,
) -> tuple[Path, list[str]]:
    """Make a run, with one checkpoint, of a PPO or A2C model; returns its folder, and what was assumed or could not be
    taken over.

    Args:
        model: what ``model.save`` wrote.
        config: the configuration of the world that the model was trained in.
        overrides: changes of it, stronger than the model's own hyper-parameters.
        run_name: name of the run's folder; by default that of the configuration and the time.
        vecnormalize: its statistics, as ``VecNormalize.save`` wrote them or as our JSON.
        trust: read ``vecnormalize`` even if that executes code.
        activation: the activation function, where the model does not say.

    Raises:
        ValueError: something is missing, unsupported, contradictory or does not fit the world.
    """
    archive = read_archive(model)
    normalization = _normalization(archive, vecnormalize, trust)
    function, how = find_activation(archive, activation)
    notes = [f"the activation function is {function} ({how})"]
    theirs = _hyperparameters(archive, normalization, notes)
    _check_overrides(overrides, model)
    experiment = Experiment.load(config, *theirs, *overrides, *_model(archive, normalization, function))
    _check_world(archive, experiment, config, notes)
    learner = Learner(experiment)
    _copy_layers(archive.layers("policy"), learner.agent.actor)
    _copy_layers(archive.layers("value"), learner.agent.critic)
    statistics = {**learner.statistics(), **normalization.statistics}
    set_statistics(learner.agent.normalizer, learner.ppo.scaler, statistics)
    if normalization.observations:
        _absorb_rounding(learner.agent, statistics)
    learner.frames = int(archive.data.get("num_timesteps") or 0)
    notes.append("the optimiser starts afresh, its moments are not taken over")
    experiment.run.name = run_name or experiment.run.name
    return _write_run(learner, archive, notes), notes


def _normalization(archive: Archive, path: Path | None, trust: bool) -> Normalization:
    if path is not None:
        return read_normalization(path, trust)
    if archive.normalized:
        raise ValueError(
            f"{archive.path} was trained behind VecNormalize: give its statistics with --vecnormalize FILE, without "
            "them its policy sees numbers that mean nothing to it."
        )
    return Normalization({})


def _hyperparameters(archive: Archive, normalization: Normalization, notes: list[str]) -> list[str]:
    """Overrides that say how the model was trained; adds to ``notes`` what cannot be read."""
    names = {**HYPERPARAMETERS, **(PPO_HYPERPARAMETERS if archive.algorithm == "PPO" else {})}
    found: dict[str, Any] = {}
    for name, ours in names.items():
        try:
            found[ours] = archive.number(name)
        except LookupError:
            notes.append(f"{name} cannot be read without executing it: {ours} is the configuration's")
    if "ppo.learning_rate.initial" in found:
        found.update({"ppo.learning_rate.schedule": "constant", "ppo.learning_rate.warmup": 0.0})
    frames = int(found.get("ppo.rollout_steps") or 0) * int(found.get("world.num_envs") or 0)
    if archive.algorithm == "A2C":
        found.update({"ppo.num_epochs": 1, "ppo.minibatch_size": frames})
        notes.append("A2C goes on as PPO with one epoch of one minibatch, which is the same but for Adam and clipping")
    wanted = int(found.get("ppo.minibatch_size") or 0)
    if frames and wanted and frames % wanted:
        fitting = max(size for size in range(1, min(wanted, frames) + 1) if frames % size == 0)
        found["ppo.minibatch_size"] = fitting
        notes.append(
            f"ppo.minibatch_size is {fitting}, since {wanted} does not divide the {frames} frames of a rollout"
        )
    found["ppo.scale_rewards"] = normalization.rewards
    found["ppo.clip_rewards"], found[CLIP] = normalization.clip_rewards, normalization.clip_observations
    if normalization.gamma is None and normalization.statistics:
        notes.append(f"{CLIP} and ppo.clip_rewards are 10, VecNormalize's default, unless you say otherwise: assumed")
    if normalization.gamma not in (None, found.get("ppo.gamma")):
        notes.append(f"VecNormalize had gamma {normalization.gamma}: rewards are scaled with ppo.gamma from now on")
    found["total_frames"] = max(1, int(archive.data.get("num_timesteps") or 0))
    return [f"{name}={_hydra(value)}" for name, value in found.items()]


def _model(archive: Archive, normalization: Normalization, activation: str) -> list[str]:
    """Overrides that make our agent the same networks."""
    modules = ("perception", "world_model", "social_model", "manager")
    found = {
        "hidden_sizes": archive.hidden_sizes("policy"),
        "activation": activation,
        "normalize_observations": normalization.observations,
        "shared_trunk": False,
        "centralised_critic": False,
        "memory": "none",
        **{f"{module}.enabled": False for module in modules},
    }
    return [f"model.{name}={_hydra(value)}" for name, value in found.items()]


def _check_overrides(overrides: Sequence[str], model: Path) -> None:
    """Raise ValueError for one that would change the networks."""
    for text in overrides:
        name = text.lstrip("+~").split("=")[0]
        if name.split(".")[0] == "model" and name != CLIP:
            raise ValueError(f"{text} was asked for, but {model} decides what the model is: leave it out.")


def _hydra(value: Any) -> str:
    """A value as Hydra's overrides spell it."""
    words = {"None": "null", "True": "true", "False": "false"}
    return words.get(str(value), str(value))


def _check_world(archive: Archive, experiment: Experiment, config: str, notes: list[str]) -> None:
    """Raise ValueError unless the world shows and takes what the model knows."""
    world = experiment.make_world(evaluation=True, num_envs=1)
    shapes, heads = observation_shapes(world), action_heads(world)
    if [list(shape) for shape in shapes.values()] != [[archive.observation_size]] or heads != archive.heads:
        shown = ", ".join(f"{key} {list(shape)}" for key, shape in shapes.items())
        raise ValueError(
            f"{archive.path} sees {archive.observation_size} numbers and chooses among {archive.heads} actions, but "
            f"the world of configuration {config} shows {shown} and takes {heads}: name the world it was trained in "
            "with --config and overrides."
        )
    if keys.ACTION_MASK in group_spec(world).keys():
        notes.append("the world masks actions: where Stable-Baselines3 chose an illegal one, the run takes a legal one")


def _copy_layers(layers: Iterable[tuple[Tensor, Tensor]], network: nn.Module) -> None:
    for (weight, bias), layer in zip(layers, linear_layers(network), strict=True):
        with torch.no_grad():
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)


@torch.no_grad()
def _absorb_rounding(agent: Agent, statistics: dict[str, Any]) -> None:
    """Put into the first layers' biases what the mean lost when it became float32.

    Stable-Baselines3 keeps float64: of a feature that hardly varies, the rounding of the mean divided by the deviation
    is large enough to change probabilities in the fifth decimal.
    """
    mean, variance = (torch.tensor(statistics[f"obs_{name}"], dtype=torch.float64) for name in ("mean", "var"))
    lost = (agent.normalizer.running.mean.cpu().double() - mean) * torch.rsqrt(variance + EPSILON)
    for network in (agent.actor, agent.critic):
        first = linear_layers(network)[0]
        first.bias += (first.weight.cpu().double() @ lost).to(first.bias)


def _write_run(learner: Learner, archive: Archive, notes: list[str]) -> Path:
    """The run's folder: configuration, checkpoint, and where it comes from."""
    experiment = learner.experiment
    folder = new_run(experiment)
    text = experiment.to_yaml()
    write_atomically(folder / "config.yaml", lambda path: path.write_text(text))
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
    return folder
