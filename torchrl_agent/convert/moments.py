"""Moments of optimizers, taken over in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from torchrl_agent.convert import layout
from torchrl_agent.convert.archive import Archive
from torchrl_agent.convert.pairs import Pair, moments_to_ours, moments_to_theirs
from torchrl_agent.training.learner import Learner

FRESH = "the optimizer starts afresh"
_ADAM = {"betas": [0.9, 0.999], "weight_decay": 0, "amsgrad": False}
_RMSPROP = {"momentum": 0, "centered": False, "weight_decay": 0}


def take_over(learner: Learner, archive: Archive, pairs: list[Pair]) -> str:
    """Give a learner the moments of a model's optimizers; returns a note on what was done."""
    theirs, options = _by_name(archive)
    ours = learner.algorithm.updater.optimizer
    kind = "square_avg" if isinstance(ours, torch.optim.RMSprop) else "exp_avg"
    if not theirs:
        return f"{FRESH}, the model has no moments"
    if any(kind not in state for state in theirs.values()):
        return f"{FRESH}, as the model was trained with another one"
    usual = _RMSPROP if kind == "square_avg" else _ADAM
    unlike = [name for name, value in usual.items() if _plain(options.get(name, value)) != value]
    if unlike:
        return f"{FRESH}, as that of the model has another {unlike[0]}"
    try:
        found = moments_to_ours(pairs, theirs)
    except KeyError as error:
        return f"{FRESH}, the model has no moments of {error.args[0]}"
    temperature, state = getattr(learner.agent, "log_alpha", None), theirs.get("log_ent_coef")
    if temperature is not None and state is not None:
        found[temperature] = {name: torch.as_tensor(value).reshape(()) for name, value in state.items()}
    set_moments(learner, found)
    return "the moments of the optimizer are taken over"


def set_moments(learner: Learner, moments: Mapping[nn.Parameter, Mapping[str, Any]]) -> None:
    """Give the optimizer of a learner these moments, by parameter."""
    updater = learner.algorithm.updater
    state = updater.state_dict()
    places = {parameter: index for index, parameter in enumerate(updater.parameters)}
    state["optimizer"]["state"].update({places[parameter]: dict(each) for parameter, each in moments.items()})
    updater.load_state_dict(state)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _by_name(archive: Archive) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return the optimizers' states by the names of the weights, and the options of the first."""
    owners = {
        "policy.optimizer": "q_net." if archive.algorithm == "DQN" else "",
        "actor.optimizer": "actor.",
        "critic.optimizer": "critic.",
    }
    result: dict[str, dict[str, Any]] = {}
    options: dict[str, Any] = {}
    for name, optimizer in archive.optimizers.items():
        names = [each for each in archive.policy if each.startswith(owners.get(name, "-"))]
        names = [each for each in names if not each.startswith(layout.EXTRACTORS)]
        names = ["log_ent_coef"] if name == "ent_coef_optimizer" else names
        (group,) = optimizer["param_groups"]
        options = options or group
        if len(names) != len(group["params"]):
            return {}, {}
        states = [optimizer["state"].get(index, {}) for index in group["params"]]
        result.update({each: state for each, state in zip(names, states, strict=True) if state})
    return result, options


def write_moments(model: Any, pairs: list[Pair], agent: Any, checkpoint: Mapping[str, Any]) -> str:
    """Give a model of Stable-Baselines3 the moments of a run's checkpoint; returns a note on what was done."""
    saved = checkpoint["algorithm"].get("optimizer", {}).get("state", {})  # a shipped agent has none
    parameters = [each for each in agent.parameters() if each.requires_grad]
    moments = {parameter: saved[index] for index, parameter in enumerate(parameters) if index in saved}
    try:
        found = moments_to_theirs(pairs, moments)
    except KeyError:
        return f"{FRESH}, the run has no moments of all weights"
    for owner in (model.policy, getattr(model.policy, "actor", None), getattr(model.policy, "critic", None)):
        optimizer = getattr(owner, "optimizer", None)
        if optimizer is None:
            continue
        names = {parameter: name for name, parameter in model.policy.named_parameters()}
        for parameter in optimizer.param_groups[0]["params"]:
            optimizer.state[parameter] = found[names[parameter]]
    if (temperature := getattr(agent, "log_alpha", None)) is not None and temperature in moments:
        state = {name: torch.as_tensor(value).clone() for name, value in moments[temperature].items()}
        state = {name: value.reshape(() if name == "step" else (1,)) for name, value in state.items()}
        model.ent_coef_optimizer.state[model.log_ent_coef] = state
    return "the moments of the optimizer are taken over"
