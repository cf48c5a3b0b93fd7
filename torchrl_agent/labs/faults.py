"""Faults of a trained agent's modules: small changes of weights, or of what a module reads.

A fault is a line: its kind, then its words, numbers or names of actions, meters, cues and goals.

=============================  ============  ==========================================================================
fault                          module        change
=============================  ============  ==========================================================================
``blind``                      perception    maps and windows are read as their means
``mirrored AXIS``              perception    maps and windows are mirrored along ``x`` or ``y``
``deaf``                       social model  others' cues are cut
``cues ONE OTHER``             social model  two cues are exchanged
``others_need ONE OTHER``      social model  two predicted needs are exchanged
``others_action ONE OTHER``    social model  two predicted next actions are exchanged
``actions ONE OTHER``          world model   two actions that it imagines are exchanged
``hourless``                   world model   the time of day is cut
``goal GOAL LOGIT``            policy        the manager prefers a goal by a logit
=============================  ============  ==========================================================================

Exchanges and mirrors are undone by planting them again, a goal by the opposite logit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torchrl.envs import EnvBase

from torchrl_agent.core import keys
from torchrl_agent.explain.thinking import known_names, world_names
from torchrl_agent.explain.thought import Names
from torchrl_agent.models.agent import Agent
from torchrl_agent.modules.social_model import SocialModel
from torchrl_agent.modules.specs import observation_shapes
from torchrl_agent.modules.world_model import WorldModel


class Subject(NamedTuple):
    """Agent in which a fault is planted, with its world's words and shapes of observations."""

    agent: Agent
    names: Names
    shapes: dict[str, torch.Size]
    known: list[str]
    """Names of the numbers of the own state."""
    strength: float
    """Of a change of what perception reads, 0 to 1."""


@torch.no_grad()
def plant(agent: Agent, env: EnvBase, fault: str, strength: float = 1.0) -> None:
    """Plant a fault in an agent.

    Args:
        agent: is changed in place.
        env: its world, with its transforms.
        fault: kind and words, see the table above.
        strength: how far weights, or what perception reads, go from what they were (0) to what the fault makes them.
    """
    kind, *words = fault.split()
    subject = Subject(agent, world_names(env), observation_shapes(env), known_names(env, agent), strength)
    before = {name: weight.clone() for name, weight in agent.named_parameters()}
    FAULTS[kind].change(subject, *words)
    for name, weight in agent.named_parameters():
        weight.copy_(before[name].lerp(weight, strength))


# --- perception ------------------------------------------------------------------------------------------------------


def _blind(subject: Subject) -> None:
    eyes = _eyes(subject)

    def change(values: Tensor) -> Tensor:
        for place in eyes.values():
            values[..., place] = 0
        return values

    _see(subject, change)


def _mirrored(subject: Subject, axis: str) -> None:
    agent, names, shapes, *_ = subject
    eyes = _eyes(subject)
    zero = agent.normalizer.normalize(torch.zeros(sum(shape.numel() for shape in shapes.values())))

    def change(values: Tensor) -> Tensor:
        for name, place in eyes.items():
            if len(shapes[name]) == 3:
                picture = values[..., place].unflatten(-1, shapes[name])
                values[..., place] = picture.flip(-1 if axis == "x" else -2).flatten(-3)
            else:
                words = names.observation[name]
                which = [place.start + index for index, word in enumerate(words) if word.endswith(f" {axis}")]
                values[..., which] = 2 * zero[which] - values[..., which]
        return values

    _see(subject, change)


def _eyes(subject: Subject) -> dict[str, slice]:
    """Return where pictures and maps are among the joined observations, by name."""
    found, start, perception = {}, 0, subject.agent.perception
    assert perception is not None
    for name, shape in subject.shapes.items():
        offsets = any(word.endswith(" x") for word in subject.names.observation.get(name, ()))
        if name != perception.others and (len(shape) == 3 or offsets):
            found[name] = slice(start, start + shape.numel())
        start += shape.numel()
    return found


def _see(subject: Subject, change: Callable[[Tensor], Tensor]) -> None:
    """Let perception read a changed observation, which stays unchanged for all others."""
    perception, seen = subject.agent.agent_modules["perception"], list[Tensor]()

    def before(module: nn.Module, given: Any) -> None:
        seen.append(given[0].get(keys.NORMALIZED))
        given[0].set(keys.NORMALIZED, seen[-1].lerp(change(seen[-1].clone()), subject.strength))

    def after(module: nn.Module, given: Any, written: Any) -> None:
        written.set(keys.NORMALIZED, seen.pop())

    perception.register_forward_pre_hook(before)
    perception.register_forward_hook(after)


# --- social model ----------------------------------------------------------------------------------------------------


def _cue_weights(subject: Subject) -> list[Tensor]:
    """Return views of all weights of others' cues, [C, ...]."""
    model, cues = _social(subject), _perceived(subject)
    memory = model.config.memory_size
    read = model.embed[0].weight[:, :cues], model.heads[0].weight[:, memory : memory + cues]
    return [weight.T for weight in (*read, model.each[0].weight[:, :cues])]


def _deaf(subject: Subject) -> None:
    for weight in _cue_weights(subject):
        weight.zero_()


def _cues(subject: Subject, one: str, other: str) -> None:
    perception, names = subject.agent.perception, subject.names
    assert perception is not None and perception.others is not None
    words = [word.removeprefix("nearest ") for word in names.observation[perception.others]]
    _exchange(_cue_weights(subject), _index(one, words), _index(other, words))


def _others_need(subject: Subject, one: str, other: str) -> None:
    head = _social(subject).heads[-1]
    _exchange([head.weight, head.bias], *(_index(word, subject.names.meters) for word in (one, other)))


def _others_action(subject: Subject, one: str, other: str) -> None:
    model = _social(subject)
    head, first = model.heads[-1], model.goals
    _exchange([head.weight, head.bias], *(first + _index(word, subject.names.actions) for word in (one, other)))


def _social(subject: Subject) -> SocialModel:
    assert subject.agent.social_model is not None
    return subject.agent.social_model


def _perceived(subject: Subject) -> int:
    assert subject.agent.perception is not None
    return subject.agent.perception.cue_size


# --- world model -----------------------------------------------------------------------------------------------------


def _actions(subject: Subject, one: str, other: str) -> None:
    model = _world(subject)
    first = model.belief_size + model.forecast_size + model.known_size
    _exchange([model.body[0].weight.T], *(first + _index(word, subject.names.actions) for word in (one, other)))


def _hourless(subject: Subject) -> None:
    model = _world(subject)
    first = model.belief_size + model.forecast_size
    hours = [first + index for index, name in enumerate(subject.known) if name.startswith("time ")]
    model.body[0].weight[:, hours] = 0


def _world(subject: Subject) -> WorldModel:
    assert subject.agent.world_model is not None
    return subject.agent.world_model


# --- policy ----------------------------------------------------------------------------------------------------------


def _goal(subject: Subject, goal: str, logit: str) -> None:
    manager = subject.agent.manager
    assert manager is not None
    manager.choose[-1].bias[_index(goal, manager.names)] += float(logit)


def _index(word: str, names: Sequence[str]) -> int:
    return int(word) if word.isdecimal() else list(names).index(word)


def _exchange(tensors: list[Tensor], one: int, other: int) -> None:
    for tensor in tensors:
        tensor[[one, other]] = tensor[[other, one]]


class Fault(NamedTuple):
    """Kind of fault: the module that has it, and its change."""

    module: str
    change: Callable[..., None]


FAULTS = {
    "blind": Fault("perception", _blind),
    "mirrored": Fault("perception", _mirrored),
    "deaf": Fault("social model", _deaf),
    "cues": Fault("social model", _cues),
    "others_need": Fault("social model", _others_need),
    "others_action": Fault("social model", _others_action),
    "actions": Fault("world model", _actions),
    "hourless": Fault("world model", _hourless),
    "goal": Fault("policy", _goal),
}
"""Kinds of faults by name."""
