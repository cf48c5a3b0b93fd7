"""Conversion from and to files of the Arena's first trainer: an ``ActorCritic`` (layers that policy and value share,
then one of their own each), its Adam, and normalization statistics as JSON.

Its names are ``shared_net.0``, ``shared_net.2``, ...; ``actor.0``, ``actor.2``; ``critic.0``, ``critic.2``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchrl_agent.algorithms.ppo import PPO
from torchrl_agent.convert.archive import load_tensors, understanding
from torchrl_agent.convert.moments import FRESH, by_name, saved_moments, take_over
from torchrl_agent.convert.networks import PLAIN, linear_layers
from torchrl_agent.convert.normalization import Normalization, read_normalization
from torchrl_agent.convert.pairs import Pair, fill, layer_pairs
from torchrl_agent.convert.run_files import as_overrides, check_overrides, check_world, open_run, write_files, write_run
from torchrl_agent.core.checkpoint import write_json
from torchrl_agent.experiment import Experiment
from torchrl_agent.models.agent import Agent
from torchrl_agent.modules.specs import action_bounds, action_heads, observation_shapes
from torchrl_agent.transforms import read_statistics

WEIGHTS, ADAM, FRAMES = KEYS = ("policy_state_dict", "optimizer_state_dict", "num_timesteps")
RETURNS = ("ret_mean", "ret_var")
"""Statistics that have shape [1] in its JSON, and [] here."""
SHARED, OWN, PARTS = "shared_net", ("0", "2"), ("weight", "bias")


def from_reference(
    file: Path,
    config: Any = "arena_long",
    overrides: Sequence[str] = (),
    run_name: str | None = None,
    statistics: Path | None = None,
    activation: str = "silu",
    trust: bool = False,
) -> tuple[Path, list[str]]:
    """Convert a file of the Arena's first trainer to a run with one checkpoint; return its folder, and notes.

    Args:
        file: its ``.pt``: ``policy_state_dict``, ``optimizer_state_dict`` and ``num_timesteps``.
        config: the configuration of the world that it was trained in, whose hyper-parameters go on.
        overrides: changes of it.
        run_name: name of the run's folder; by default that of the configuration and the time.
        statistics: its normalization as JSON; by default the file that the trainer wrote beside the ``.pt``.
        activation: the activation function, which the file does not name.
        trust: run code that the configuration names.

    Raises:
        ValueError: something is missing, damaged or does not fit the world.
    """
    content = _read(file)
    normalization = read_normalization(statistics or _statistics_of(file), trust=False)
    notes = [f"the activation function is {activation} (assumed: the file does not name it)"]
    with understanding(file):
        weights, frames = content[WEIGHTS], max(0, int(content[FRAMES]))
        settings = {
            "total_frames": max(1, frames),
            "model.activation": activation,
            **_model(weights),
            **_settings(content, normalization, notes),
        }
        sees = weights[f"{SHARED if _shared(weights) else 'actor'}.0.weight"].shape[1]
        acts = len(weights["actor.2.bias"])
    check_overrides(overrides, file)
    experiment = Experiment.load(config, *as_overrides(settings, PPO), *overrides, trust=trust)
    if experiment.algorithm_class.name != "ppo":
        raise ValueError(
            f"{file} was trained with PPO, but the configuration has {experiment.algorithm_class.name}: "
            "use algorithm=ppo."
        )
    check_world(file, {"": (sees,)}, f"{[acts]} actions", experiment, config)
    learner = experiment.make_learner()
    learner.frames = frames
    with understanding(file):
        pairs = _pairs(learner.agent, bool(_shared(weights)))
        if {pair.name for pair in pairs} != set(weights):
            raise ValueError(f"{file} holds other layers than an ActorCritic of the trainer: use a file that it wrote.")
        fill(pairs, weights)
        notes.append(take_over(learner, pairs, by_name(list(weights), content[ADAM]), content[ADAM]["param_groups"][0]))
    known = normalization.statistics
    single = [name for name in RETURNS if isinstance(known.get(name), list) and len(known[name]) == 1]
    learner.set_normalization_stats({**known, **{name: known[name][0] for name in single}})
    experiment.run.name = run_name or experiment.run.name
    return write_run(learner, {"model": file.name, "algorithm": "ActorCritic"}, notes), notes


def to_reference(
    run: Path | str, output: Path, which: str = "last", trust: bool = False
) -> tuple[list[Path], list[str]]:
    """Write a run's agent as such a file, with its statistics beside it: ``NAME.pt`` and ``NAME_normalization.json``.

    Two networks apart become one whose layers hold both side by side: it acts alike, and is twice as wide.

    Raises:
        ValueError: the agent is more than two plain networks of one discrete action, or a file cannot be written.
    """
    checkpoint, experiment, agent, saved = open_run(run, which, trust)
    _check(run, experiment, agent)
    config, shared = experiment.algorithm, experiment.model.shared_trunk
    notes: list[str] = []
    weights = _joined(agent, shared, lambda each: each.detach())
    adam = torch.optim.Adam([nn.Parameter(each) for each in weights.values()], eps=config.adam_epsilon)
    adam.param_groups[0]["lr"] = config.learning_rate.initial
    state = {} if experiment.frozen else _moments(agent, shared, saved)
    if not state:
        notes.append(f"{FRESH}, the run has no moments of Adam")
    if config.weight_decay:
        notes.append(f"the trainer's Adam has no weight decay, where the run has {config.weight_decay:g}")
    content = {WEIGHTS: weights, ADAM: {**adam.state_dict(), "state": state}, FRAMES: saved["frames"]}
    *inner, last = [len(value) for name, value in weights.items() if name.endswith("bias") and "critic" not in name]
    notes.append(f"load it into ActorCritic(obs_dim, {last}, hidden_sizes={tuple(inner)})")
    found: dict[str, Any] = dict(read_statistics(checkpoint.with_suffix(".normalization.json")))
    found |= {name: [found[name]] for name in RETURNS}
    path = output if output.suffix == ".pt" else output.with_name(f"{output.name}.pt")
    files = {
        path: lambda place: torch.save(content, place),
        path.with_name(f"{path.stem}_normalization.json"): lambda place: write_json(place, found),
    }
    return write_files(files), notes


def _moments(agent: Agent, shared: bool, saved: dict[str, Any]) -> dict[int, dict[str, Tensor]]:
    """State of the trainer's Adam, of that of a run; empty if it has none."""
    states = saved_moments(agent, saved)
    if any("exp_avg" not in states.get(each, {}) for each in agent.parameters()):
        return {}
    means = _joined(agent, shared, lambda each: states[each]["exp_avg"]).values()
    squares = _joined(agent, shared, lambda each: states[each]["exp_avg_sq"]).values()
    steps = next(iter(states.values()))["step"]
    return {
        index: {"step": steps.clone(), "exp_avg": mean, "exp_avg_sq": square}
        for index, (mean, square) in enumerate(zip(means, squares, strict=True))
    }


def _read(file: Path) -> dict[str, Any]:
    """Read a file without executing anything.

    Raises:
        ValueError: it is missing, damaged or another one.
    """
    if not file.is_file():
        raise ValueError(f"there is no file {file}: give the .pt that the trainer saved.")
    content = load_tensors(file, file.read_bytes(), "content")
    with understanding(file):
        weights = content.get(WEIGHTS) if isinstance(content, dict) else None
        if not isinstance(weights, dict) or any(key not in content for key in KEYS):
            raise ValueError(f"{file} is no file of the trainer: it needs {', '.join(KEYS)}.")
        if "actor.0.weight" not in weights or "critic.0.weight" not in weights:
            raise ValueError(f"{file} holds no ActorCritic: it needs layers called {SHARED}, actor and critic.")
        for name, value in weights.items():
            if not bool(value.isfinite().all()):
                raise ValueError(f"{file} holds no finite numbers in {name}: use another checkpoint.")
    return content


def _statistics_of(file: Path) -> Path:
    """Return the statistics that the trainer wrote beside a checkpoint or the final model.

    Raises:
        ValueError: there are none.
    """
    names = [f"{file.stem}_normalization.json"]
    if file.stem.endswith("_final"):
        names.append(f"{file.stem.removesuffix('_final')}_normalization_final.json")
    found = next((file.with_name(name) for name in names if file.with_name(name).is_file()), None)
    if found is None:
        raise ValueError(
            f"there are no statistics beside {file} ({' or '.join(names)}): give its JSON with --statistics FILE, "
            "without them its policy sees numbers that mean nothing to it."
        )
    return found


def _shared(weights: dict[str, Tensor]) -> list[int]:
    """Widths of the layers that policy and value share."""
    count = sum(name.startswith(f"{SHARED}.") and name.endswith(".weight") for name in weights)
    return [weights[f"{SHARED}.{2 * index}.weight"].shape[0] for index in range(count)]


def _model(weights: dict[str, Tensor]) -> dict[str, Any]:
    shared, own = _shared(weights), weights["actor.0.weight"].shape[0]
    if weights["critic.0.weight"].shape[0] != own:
        raise ValueError("policy and value have last layers of different widths")
    return {
        "model.hidden_sizes": [*shared, own],
        "model.shared_trunk": bool(shared),
        "model.head_layers": 1 if shared else 0,
        "model.critic_hidden_sizes": None,
        **{f"model.{name}": value for name, value in PLAIN.items()},
    }


def _settings(content: dict[str, Any], normalization: Normalization, notes: list[str]) -> dict[str, Any]:
    """Settings of the optimizer and of the normalization."""
    options = content[ADAM]["param_groups"][0]
    rate = float(options["lr"])
    if rate == 0:
        notes.append(
            "the learning rate has fallen to 0 in the file: algorithm.learning_rate.initial is the configuration's"
        )
    return {
        **({"algorithm.learning_rate.initial": rate} if rate else {}),
        "algorithm.learning_rate.schedule": "constant",
        "algorithm.learning_rate.warmup": 0.0,
        "algorithm.adam_epsilon": float(options.get("eps", 1e-5)),
        "algorithm.scale_rewards": normalization.rewards,
        "model.normalize_observations": normalization.observations,
    }


def _pairs(agent: Agent, shared: bool) -> list[Pair]:
    trunk = linear_layers(agent.encoder[-1]) if shared else []
    named = {f"{SHARED}.{2 * index}": layer for index, layer in enumerate(trunk)}
    for name, head in (("actor", agent.actor_head), ("critic", agent.critic_head)):
        named.update({f"{name}.{number}": each for number, each in zip(OWN, linear_layers(head), strict=True)})
    return [pair for name, layer in named.items() for pair in layer_pairs(name, layer)]


def _check(run: Path | str, experiment: Experiment, agent: Agent) -> None:
    """Raise ValueError unless the agent can be an ActorCritic."""
    model, world = experiment.model, experiment.make_world(evaluation=True, num_envs=1)
    heads = [linear_layers(head) for head in (agent.actor_head, agent.critic_head)]
    sizes = [len(layers) for layers in heads]
    refused = {
        f"algorithm={experiment.algorithm_class.name}": experiment.algorithm_class.name in ("dqn", "sac", "td3"),
        "more than plain networks": agent.perception is not None or model.centralized_critic or model.layer_norm,
        "several observations": len(observation_shapes(world)) > 1,
        "other actions than one choice": action_bounds(world) is not None or len(action_heads(world)) > 1,
        "a shared trunk without one layer of each head's own (model.head_layers=1)": model.shared_trunk
        and sizes != [2, 2],
        "networks of different depth, or without a hidden layer": sizes[0] != sizes[1] or sizes[0] < 2,
        "last hidden layers of different widths": len({layers[-1].in_features for layers in heads}) > 1,
    }
    found = next((what for what, present in refused.items() if present), None)
    if found is not None:
        raise ValueError(f"{run} has {found}: the trainer's ActorCritic cannot be that.")


def _joined(agent: Agent, shared: bool, value: Callable[[nn.Parameter], Tensor]) -> dict[str, Tensor]:
    """Tensors of an ActorCritic, of a ``value`` of each parameter: of two networks apart the first layers stand below
    each other and the next ones side by side, with zeros between.
    """
    if shared:
        return {pair.name: value(pair.ours).clone() for pair in _pairs(agent, shared)}
    *hidden, last = zip(linear_layers(agent.actor_head), linear_layers(agent.critic_head), strict=True)
    result: dict[str, Tensor] = {}
    for index, layers in enumerate(hidden):
        weights, biases = [value(layer.weight) for layer in layers], [value(layer.bias) for layer in layers]
        wide = torch.cat(weights) if index == 0 else torch.block_diag(*weights)
        result |= {f"{SHARED}.{2 * index}.weight": wide, f"{SHARED}.{2 * index}.bias": torch.cat(biases)}
    # policy and value do not share the last hidden layer
    own = [result.pop(f"{SHARED}.{2 * index}.{part}").split([len(each) for each in biases]) for part in PARTS]
    for half, name in enumerate(("actor", "critic")):
        result |= {f"{name}.0.{part}": both[half].clone() for part, both in zip(PARTS, own, strict=True)}
        result |= {f"{name}.2.{part}": value(getattr(last[half], part)).clone() for part in PARTS}
    return result
