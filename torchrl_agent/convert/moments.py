"""Moments of optimizers, taken over in both directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchrl_agent.convert import layout
from torchrl_agent.convert.archive import Archive
from torchrl_agent.convert.pairs import Pair, moments_to_ours, moments_to_theirs
from torchrl_agent.training.learner import Learner

FRESH = "the optimizer starts afresh"
TAKEN = "the moments of the optimizer are taken over"
State = Mapping[str, Any]
"""State of an optimizer for one parameter: moments and the number of steps."""


def take_over(learner: Learner, pairs: list[Pair], theirs: Mapping[str, State], options: State) -> str:
    """Give a learner the moments of another optimizer; return a note on what was done.

    Args:
        learner: the learner, whose optimizer has made no step.
        theirs: states by the names of the weights.
    """
    updater = learner.algorithm.updater
    rmsprop = isinstance(updater.optimizer, torch.optim.RMSprop)
    needed = {"step", "square_avg"} if rmsprop else {"step", "exp_avg", "exp_avg_sq"}
    if not theirs:
        return f"{FRESH}, the model has no moments"
    if any(not needed <= state.keys() for state in theirs.values()):
        return f"{FRESH}, as the model was trained with another one"
    ours = updater.optimizer.param_groups[0]
    unlike = [name for name in ("betas", "amsgrad", "momentum", "centered") if _differs(name, options, ours)]
    if options.get("weight_decay") and not options.get("decoupled_weight_decay"):
        unlike.append("weight_decay")  # it is part of the moments
    if unlike:
        return f"{FRESH}, as that of the model has another {unlike[0]}"
    numbers = [value for state in theirs.values() for value in state.values() if isinstance(value, Tensor)]
    if not all(bool(each.isfinite().all()) for each in numbers):
        return f"{FRESH}, as the moments of the model are not finite"
    try:
        found = moments_to_ours(pairs, theirs)
    except KeyError as error:
        return f"{FRESH}, the model has no moments of {error.args[0]}"
    temperature, state = getattr(learner.agent, "log_alpha", None), theirs.get("log_ent_coef")
    if temperature is not None and state is not None:
        found[temperature] = {name: torch.as_tensor(value).reshape(()) for name, value in state.items()}
    whole, places = updater.state_dict(), {each: index for index, each in enumerate(updater.parameters)}
    whole["optimizer"]["state"].update({places[parameter]: state for parameter, state in found.items()})
    updater.load_state_dict(whole)
    return TAKEN


def _differs(name: str, options: State, ours: State) -> bool:
    theirs, mine = (list(each) if isinstance(each, tuple) else each for each in (options.get(name), ours.get(name)))
    return None not in (theirs, mine) and theirs != mine


def by_name(names: Sequence[str], optimizer: Mapping[str, Any]) -> dict[str, State]:
    """Return an optimizer's states by the names of its parameters, in its order; empty if it has another number."""
    (group,) = optimizer["param_groups"]
    if len(names) != len(group["params"]):
        return {}
    states = {name: optimizer["state"].get(index) for name, index in zip(names, group["params"], strict=True)}
    return {name: state for name, state in states.items() if state}


def moments_of(archive: Archive) -> dict[str, State]:
    """Return the states of a model's optimizers by the names of the weights."""
    owners = {
        "policy.optimizer": "q_net." if archive.algorithm == "DQN" else "",
        "actor.optimizer": "actor.",
        "critic.optimizer": "critic.",
    }
    result: dict[str, State] = {}
    for name, optimizer in archive.optimizers.items():
        names = [each for each in archive.policy if each.startswith(owners.get(name, "-"))]
        names = [each for each in names if not each.startswith(layout.EXTRACTORS)]
        result |= by_name(["log_ent_coef"] if name == "ent_coef_optimizer" else names, optimizer)
    return result


def saved_moments(agent: nn.Module, checkpoint: Mapping[str, Any]) -> dict[nn.Parameter, State]:
    """Return the moments in a checkpoint by the agent's parameters."""
    saved = checkpoint["algorithm"].get("optimizer", {}).get("state", {})  # a shipped agent has none
    learning = (each for each in agent.parameters() if each.requires_grad)
    return {parameter: saved[index] for index, parameter in enumerate(learning) if index in saved}


def write_moments(model: Any, pairs: list[Pair], agent: nn.Module, checkpoint: Mapping[str, Any]) -> str:
    """Give a model of Stable-Baselines3 the moments of a run's checkpoint; returns a note on what was done."""
    moments = saved_moments(agent, checkpoint)
    try:
        found = moments_to_theirs(pairs, moments)
    except KeyError:
        return f"{FRESH}, the run has no moments of all weights"
    names = {parameter: name for name, parameter in model.policy.named_parameters()}
    owners = (model.policy, getattr(model.policy, "actor", None), getattr(model.policy, "critic", None))
    for owner in owners:
        optimizer: Any = getattr(owner, "optimizer", None)
        for parameter in optimizer.param_groups[0]["params"] if optimizer is not None else []:
            optimizer.state[parameter] = found[names[parameter]]
    if (temperature := getattr(agent, "log_alpha", None)) is not None and temperature in moments:
        state = {name: torch.as_tensor(value).clone() for name, value in moments[temperature].items()}
        state = {name: value.reshape(() if name == "step" else (1,)) for name, value in state.items()}
        model.ent_coef_optimizer.state[model.log_ent_coef] = state
    return TAKEN
