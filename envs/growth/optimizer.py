"""Training of all hosts, modules and twins on their own minibatches, by Adam with a learning rate for all.

The world axis is the first one of every tensor here, as in network.py.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.func import grad

from envs.growth.network import Mixture, loss, twin_loss
from envs.growth.rules import Rules
from envs.growth.state import STREAM_BATCH, Adam, Twin, Weights
from envs.growth.tasks import POOL, Task
from envs.toolkit.chance import Chance
from envs.toolkit.records import map_record

BETAS = 0.9, 0.99
EPSILON = 1e-4
VANISHING, EXPLODING = 1e-7, 10.0
"""Norm of a module's gradient below which it vanishes; multiple of the clipping norm beyond which it explodes."""

Record = TypeVar("Record")


class Trained(NamedTuple):
    """Networks after the minibatches of a step, and norms of the last gradient before clipping."""

    weights: Weights
    adam: Adam
    twin: Twin
    host_norm: Tensor
    """[N]"""
    slot_norm: Tensor
    """[N, S]"""


class Lesson(NamedTuple):
    """Inputs that decide the minibatches of the worlds."""

    level: Tensor
    """[N]"""
    noise: Tensor
    """[N]"""
    chance: Chance


class Data(NamedTuple):
    """Rows that worlds are trained or evaluated on."""

    inputs: Tensor
    """[N, B, L, F], or of any shape [N, B, ...] that a host of one's own takes"""
    labels: Tensor
    """[N, B]"""


def rows_at(task: Task, index: Tensor, level: Tensor, noise: Tensor) -> Data:
    """Return rows ``index`` [N, B] of a task, with each world's noise [N] and the labels of its level [N]."""
    inputs = task.inputs[index]
    inputs = inputs + like(noise, inputs) * task.noise[index]
    return Data(inputs, task.labels[index, level.unsqueeze(1)])


def train(moment: Trained, mixture: Mixture, active: Tensor, task: Task, lesson: Lesson, rules: Rules) -> Trained:
    """Train on ``rules.updates`` minibatches; modules only where ``active`` [N, S] is 1."""
    count = rules.updates * rules.batch_size
    drawn = lesson.chance.uniform(STREAM_BATCH, count, width=count // 256 + 1)
    index = (drawn * POOL).long().T.contiguous().view(-1, rules.updates, rules.batch_size)
    once = train_once_nested if isinstance(rules.host, str) else train_once
    for update in range(rules.updates):
        data = rows_at(task, index[:, update], lesson.level, lesson.noise)
        moment = once(moment, mixture, active, data, rules)
    return moment


def train_once(moment: Trained, mixture: Mixture, active: Tensor, data: Data, rules: Rules) -> Trained:
    """Take one step of Adam on one minibatch for each host, its modules and its twin."""
    (host, modules), adam, twin = moment.weights, moment.adam, moment.twin
    gradient = grad(loss)(moment.weights, *data, mixture, rules)
    twin_gradient = grad(twin_loss)(twin.host, *data, rules)
    host_norm, slot_norm, twin_norm = (
        world_norm(each, kept) for each, kept in ((gradient.host, 1), (gradient.modules, 2), (twin_gradient, 1))
    )
    host_updates, slot_updates = adam.host_updates + 1, adam.slot_updates + active
    of_hosts = Pace(host_updates, torch.ones_like(host_norm), rules.learning_rate)
    of_slots = Pace(slot_updates, active, rules.learning_rate)
    (first, more_first), (second, more_second) = adam.first, adam.second
    host, first, second = step(host, clipped(gradient.host, host_norm, rules), first, second, of_hosts)
    modules, more_first, more_second = step(
        modules, clipped(gradient.modules, slot_norm, rules), more_first, more_second, of_slots
    )
    twin = Twin(*step(twin.host, clipped(twin_gradient, twin_norm, rules), twin.first, twin.second, of_hosts))
    adam = Adam(Weights(first, more_first), Weights(second, more_second), host_updates, slot_updates)
    return Trained(Weights(host, modules), adam, twin, host_norm, slot_norm)


train_once_nested = torch.compiler.nested_compile_region(train_once)
""":func:`train_once`, compiled once for all minibatches of a step; not for a host of one's own, which holds tensors."""


class Pace(NamedTuple):
    """Progress of the optimizer, [N], or [N, S] for modules."""

    updates: Tensor
    """Number of updates, this one included."""
    active: Tensor
    """1 where there is one, else 0."""
    learning_rate: float


def step(weights: Record, gradient: Record, first: Record, second: Record, pace: Pace) -> tuple[Record, Record, Record]:
    """Return weights and both moments after a step of Adam (Kingma and Ba 2015, algorithm 1), where it is active."""
    beta, gamma = BETAS
    past = pace.updates.clamp_min(1)
    unbiased = torch.sqrt(1 - torch.exp(past * math.log(gamma))) / (1 - torch.exp(past * math.log(beta)))
    rate = pace.learning_rate * unbiased

    def moved(old: Tensor, new: Tensor, share: float) -> Tensor:
        return torch.where(like(pace.active, old) > 0, share * old + (1 - share) * new, old)

    def descended(w: Tensor, m: Tensor, v: Tensor) -> Tensor:
        return torch.where(like(pace.active, w) > 0, w - like(rate, w) * m / (torch.sqrt(v) + EPSILON), w)

    first = map_record(lambda m, g: moved(m, g, beta), first, gradient)
    second = map_record(lambda v, g: moved(v, g * g, gamma), second, gradient)
    return map_record(descended, weights, first, second), first, second


def world_norm(gradient: Any, kept: int) -> Tensor:
    """Compute the norm of a record's gradient over all but the first ``kept`` axes."""
    return torch.sqrt(sum(value.flatten(kept).square().sum(-1) for value in gradient))


def clipped(gradient: Record, norm: Tensor, rules: Rules) -> Record:
    """Scale a gradient down where its norm is above ``rules.clip``."""
    factor = (rules.clip / (norm + 1e-6)).clamp_max(1)
    return map_record(lambda value: value * like(factor, value), gradient)


def like(value: Tensor, other: Tensor) -> Tensor:
    """Append axes to ``value`` until it broadcasts over ``other``."""
    return value.view(*value.shape, *[1] * (other.ndim - value.ndim))
