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
from torchrl_agent.convert.moments import FRESH, set_moments
from torchrl_agent.convert.networks import PLAIN, linear_layers
from torchrl_agent.convert.normalization import Normalization, read_normalization
from torchrl_agent.convert.pairs import Pair, fill, layer_pairs, moments_to_ours
from torchrl_agent.convert.reader import as_overrides, write_run
from torchrl_agent.core.checkpoint import find_checkpoint, load_checkpoint, write_atomically, write_json
from torchrl_agent.core.run_names import find_run
from torchrl_agent.experiment import Experiment
from torchrl_agent.models.agent import Agent
from torchrl_agent.modules.specs import action_bounds, action_heads, observation_shapes
from torchrl_agent.runs.load import load_agent
from torchrl_agent.transforms import read_statistics

KEYS = ("policy_state_dict", "optimizer_state_dict", "num_timesteps")
SHARED, OWN = "shared_net", ("0", "2")


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
        weights, frames = content[KEYS[0]], max(0, int(content[KEYS[2]]))
        settings = {**_model(weights), **_settings(content, normalization, frames), "model.activation": activation}
    words = as_overrides(settings, PPO)
    experiment = Experiment.load(config, *words, *overrides, trust=trust)
    if experiment.algorithm_class.name != "ppo":
        raise ValueError(
            f"{file} was trained with PPO, but the configuration has {experiment.algorithm_class.name}: "
            "use algorithm=ppo."
        )
    _check_world(file, weights, experiment, config)
    learner = experiment.make_learner()
    learner.frames = frames
    with understanding(file):
        pairs = _pairs(learner.agent, bool(_shared(weights)))
        if {pair.name for pair in pairs} != set(weights):
            raise ValueError(f"{file} holds other layers than an ActorCritic of the trainer: use a file that it wrote.")
        fill(pairs, weights)
        notes.append(_take_over(learner, pairs, content))
    known = {name: _flat(value, name) for name, value in normalization.statistics.items()}
    learner.set_normalization_stats(known)
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
    checkpoint = find_checkpoint(find_run(run), which)
    experiment, agent = load_agent(checkpoint, "cpu", trust=trust)
    _check(run, experiment, agent)
    saved = load_checkpoint(checkpoint)
    shared, notes = experiment.model.shared_trunk, []
    weights = _joined(agent, shared, lambda each: each.detach())
    state = (
        {} if experiment.frozen else _moments(agent, shared, saved["algorithm"].get("optimizer", {}).get("state", {}))
    )
    if not state:
        notes.append(f"{FRESH}, the run has no moments of Adam")
    adam = torch.optim.Adam([nn.Parameter(each) for each in weights.values()], eps=experiment.algorithm.adam_epsilon)
    adam.param_groups[0]["lr"] = experiment.algorithm.learning_rate.initial
    content = {KEYS[0]: weights, KEYS[1]: {**adam.state_dict(), "state": state}, KEYS[2]: saved["frames"]}
    sizes = [
        value.shape[0] for name, value in weights.items() if name.endswith("weight") and not name.startswith("critic")
    ]
    notes.append(f"load it into ActorCritic(obs_dim, {sizes[-1]}, hidden_sizes={tuple(sizes[:-1])})")
    path = output if output.suffix == ".pt" else output.with_name(f"{output.name}.pt")
    return _write(path, content, checkpoint), notes


def _moments(agent: Agent, shared: bool, saved: dict[int, dict[str, Tensor]]) -> dict[int, dict[str, Tensor]]:
    """State of the trainer's Adam, of that of a run by the numbers of the agent's parameters; empty if it has none."""
    states = {each: saved.get(index, {}) for index, each in enumerate(agent.parameters())}
    if any("exp_avg" not in state for state in states.values()):
        return {}
    steps = next(iter(states.values()))["step"].clone()
    means = _joined(agent, shared, lambda each: states[each]["exp_avg"])
    squares = _joined(agent, shared, lambda each: states[each]["exp_avg_sq"])
    rows = zip(means.values(), squares.values(), strict=True)
    return {
        index: {"step": steps.clone(), "exp_avg": mean, "exp_avg_sq": square}
        for index, (mean, square) in enumerate(rows)
    }


def _write(path: Path, content: dict[str, Any], checkpoint: Path) -> list[Path]:
    beside = path.with_name(f"{path.stem}_normalization.json")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda temporary: torch.save(content, temporary))
        found = read_statistics(checkpoint.with_suffix(".normalization.json"))
        write_json(
            beside, {**found, **{name: [found[name]] for name in ("ret_mean", "ret_var")}}
        )  # theirs have shape [1]
    except OSError:
        raise ValueError(f"{path} cannot be written: choose another place for OUTPUT.pt.") from None
    return [path, beside]


def _read(file: Path) -> dict[str, Any]:
    """Read a file without executing anything.

    Raises:
        ValueError: it is missing, damaged or another one.
    """
    if not file.is_file():
        raise ValueError(f"there is no file {file}: give the .pt that the trainer saved.")
    content = load_tensors(file, file.read_bytes(), "content")
    with understanding(file):
        weights = content.get(KEYS[0]) if isinstance(content, dict) else None
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


def _settings(content: dict[str, Any], normalization: Normalization, frames: int) -> dict[str, Any]:
    group = content[KEYS[1]]["param_groups"][0]
    return {
        "total_frames": max(1, frames),
        "algorithm.learning_rate.initial": float(group["lr"]) or 3e-4,
        "algorithm.learning_rate.schedule": "constant",
        "algorithm.learning_rate.warmup": 0.0,
        "algorithm.adam_epsilon": float(group.get("eps", 1e-5)),
        "algorithm.scale_rewards": normalization.rewards,
        "model.normalize_observations": normalization.observations,
    }


def _check_world(file: Path, weights: dict[str, Tensor], experiment: Experiment, config: Any) -> None:
    world = experiment.make_world(evaluation=True, num_envs=1)
    sees = weights[f"{SHARED}.0.weight" if _shared(weights) else "actor.0.weight"].shape[1]
    acts = weights["actor.2.weight"].shape[0]
    shapes = [list(shape) for shape in observation_shapes(world).values()]
    if shapes != [[sees]] or action_bounds(world) is not None or action_heads(world) != [acts]:
        raise ValueError(
            f"{file} sees {sees} numbers and takes one of {acts} actions, the world of configuration {config} shows "
            f"{shapes}: name the world it was trained in with --config and overrides, such as world.style=2."
        )


def _pairs(agent: Agent, shared: bool) -> list[Pair]:
    trunk = linear_layers(agent.encoder[-1]) if shared else []
    named = {f"{SHARED}.{2 * index}": layer for index, layer in enumerate(trunk)}
    for name, head in (("actor", agent.actor_head), ("critic", agent.critic_head)):
        named.update({f"{name}.{number}": each for number, each in zip(OWN, linear_layers(head), strict=True)})
    return [pair for name, layer in named.items() for pair in layer_pairs(name, layer)]


def _take_over(learner: Any, pairs: list[Pair], content: dict[str, Any]) -> str:
    adam = content[KEYS[1]]
    states = {name: adam["state"].get(index, {}) for index, name in enumerate(content[KEYS[0]])}
    if any("exp_avg" not in state for state in states.values()):
        return f"{FRESH}, the file has no moments of all weights"
    set_moments(learner, moments_to_ours(pairs, states))
    return "the moments of the optimizer are taken over"


def _flat(value: Any, name: str) -> Any:
    """A statistic of returns as a number: the trainer writes a list of one."""
    return value[0] if name.startswith("ret_") and isinstance(value, list) and len(value) == 1 else value


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
    heads = [linear_layers(agent.actor_head), linear_layers(agent.critic_head)]
    result: dict[str, Tensor] = {}
    if shared:
        return {pair.name: value(pair.ours).clone() for pair in _pairs(agent, shared)}
    *inner, _, _ = zip(*heads, strict=True)
    for index, (actor, critic) in enumerate(inner):
        both = [value(actor.weight), value(critic.weight)]
        result[f"{SHARED}.{2 * index}.weight"] = torch.cat(both) if index == 0 else torch.block_diag(*both)
        result[f"{SHARED}.{2 * index}.bias"] = torch.cat([value(actor.bias), value(critic.bias)])
    for half, (name, layers) in enumerate(zip(("actor", "critic"), heads, strict=True)):
        first = value(layers[-2].weight)
        if inner:
            beside = torch.zeros(len(first), inner[-1][1 - half].out_features)
            first = torch.cat([first, beside] if half == 0 else [beside, first], 1)
        result |= {f"{name}.0.weight": first.clone(), f"{name}.0.bias": value(layers[-2].bias).clone()}
        result |= {f"{name}.2.{part}": value(getattr(layers[-1], part)).clone() for part in ("weight", "bias")}
    return result
