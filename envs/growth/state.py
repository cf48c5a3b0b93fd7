"""State of a batch of growing networks. Every tensor has the world axis last.

F input features, C features of the host, S slots, R hidden units of a module, K classes, N worlds.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from envs.growth.rules import MAX_RANK, Rules
from envs.toolkit.chance import Chance
from envs.toolkit.records import every, map_record

STREAM_LEVEL, STREAM_START, STREAM_FAULT, STREAM_BATCH, STREAM_HOST, STREAM_MODULE = 0, 1, 2, 1 << 8, 1 << 12, 1 << 14
"""Streams of random numbers: hidden level and noise, first step, faults, minibatches, weights of hosts and modules."""
RECENT = 5
"""Number of past losses and accuracies that are observed."""
EMBEDDING_GAIN = 1.5
"""Factor of the first layer's initial weights: a one-hot input is sparser than He's initialization assumes."""


class Host(NamedTuple):
    """Weights of a host: an embedding, a residual layer before each slot, and a classifier."""

    embedding: Tensor
    """[F, C, N]"""
    block: Tensor
    """[S, C, C, N]"""
    block_bias: Tensor
    """[S, C, N]"""
    classifier: Tensor
    """[C, K, N]"""
    classifier_bias: Tensor
    """[K, N]"""


class Modules(NamedTuple):
    """Weights of the modules in all slots, as large as the largest blueprint; smaller ones are masked."""

    down: Tensor
    """[S, C, 3, R, N]: from the features of the left neighbor, the position and the right one to the hidden units."""
    down_bias: Tensor
    """[S, R, N]"""
    up: Tensor
    """[S, R, C, N]; zero at germination, so that a fresh module is the identity."""
    gate: Tensor
    """[S, C, N]: weights of the gate with which the operator ``gate`` multiplies alpha."""


class Weights(NamedTuple):
    """Weights of a host and its modules, or something of the same shapes."""

    host: Any
    """:class:`Host`, or ``OwnWeights`` (envs/growth/hosts.py)"""
    modules: Modules


class Adam(NamedTuple):
    """Moments of the gradients (Kingma and Ba 2015) and the number of updates."""

    first: Weights
    second: Weights
    host_updates: Tensor
    """[N]"""
    slot_updates: Tensor
    """[S, N]"""


class Twin(NamedTuple):
    """Host without modules that began with the same weights and is trained on the same minibatches."""

    host: Any
    first: Any
    second: Any


class Slots(NamedTuple):
    """Lifecycle of the slots, [S, N] each."""

    stage: Tensor
    blueprint: Tensor
    operator: Tensor
    alpha: Tensor
    start: Tensor
    """Alpha at which the present change of alpha began."""
    target: Tensor
    mode: Tensor
    curve: Tensor
    steepness: Tensor
    tempo: Tensor
    """Number of steps in which the module is to be blended in."""
    total: Tensor
    """Number of steps of the present change of alpha."""
    done: Tensor
    """Number of steps of it that are over."""
    stage_age: Tensor
    age: Tensor
    """Number of steps since germination."""
    contribution: Tensor
    """Accuracy minus the accuracy without this module."""
    velocity: Tensor
    """Exponential mean of the contribution's changes."""
    measured: Tensor
    """Number of steps since the contribution was measured; -1 if it never was."""
    norm: Tensor
    """Norm of the last gradient before clipping; -1 if there was none."""
    health: Tensor
    """1 for a normal gradient, 0.5 for a vanishing one, 0.2 for an exploding one, 0 for one that is not finite; -1 if
    there was none."""
    previous_health: Tensor
    ratio: Tensor
    """Exponential mean of the module's gradient norm over the host's, per square root of parameters; -1 if none."""
    born_at: Tensor
    """Accuracy at germination."""
    stage_began_at: Tensor
    """Accuracy when the present stage began."""


class Measures(NamedTuple):
    """Results of the last evaluation, [N] each."""

    loss: Tensor
    accuracy: Tensor
    bare: Tensor
    """Accuracy with all modules off."""
    committed: Tensor
    """Accuracy with permanent modules alone."""
    twin: Tensor
    """Accuracy of the twin."""
    losses: Tensor
    """Losses of the last steps, [RECENT, N], the latest last; -1 where there were none."""
    accuracies: Tensor
    """Likewise."""


class Guard(NamedTuple):
    """State of the governor."""

    losses: Tensor
    """Losses of the last healthy checks, [history, N], the latest last."""
    count: Tensor
    """Number of healthy checks, [N]."""
    streak: Tensor
    """Number of divergent checks in a row, [N]."""
    saved: Weights
    """Weights after a healthy check."""
    saved_permanent: Tensor
    """Slots that were permanent then, bool [S, N]."""
    panics: Tensor
    """True if the last check rolled the host back, bool [N]."""


class Tally(NamedTuple):
    """Counts of an episode, [N] each."""

    operation: Tensor
    """Last operation that took effect."""
    success: Tensor
    """True if the last operation was carried out as given."""
    germinated: Tensor
    pruned: Tensor
    kept: Tensor
    """Number of modules made permanent."""
    operations: Tensor
    rent: Tensor
    """Rent of the last step, before its weight."""
    rent_total: Tensor
    rollbacks: Tensor
    reward: Tensor
    earned: Tensor
    """Sum of the rewards."""


class Course(NamedTuple):
    """Course of the episode, T steps, for pictures; -1 for steps that have not been."""

    accuracy: Tensor
    """[T, N]"""
    twin: Tensor
    """[T, N]"""
    stage: Tensor
    """int8 [T, S, N]"""
    alpha: Tensor
    """[T, S, N]"""


class State(NamedTuple):
    """Growing networks with their twins, what was measured of them, and the difficulty of their worlds."""

    weights: Weights
    adam: Adam
    twin: Twin
    slots: Slots
    measures: Measures
    guard: Guard
    tally: Tally
    course: Course
    level: Tensor
    """Hidden level of the task, int64 [N]."""
    noise: Tensor
    """Standard deviation of the input noise, [N]."""
    step: Tensor
    """Number of steps, [N]."""


Record = TypeVar("Record")


def world_first(record: Record) -> Record:
    """Move the world axis of each tensor to the front, where matrix products need it."""
    return map_record(lambda value: value.movedim(-1, 0).contiguous(), record)


def world_last(record: Record) -> Record:
    """Move the world axis of each tensor to the end, where the state keeps it."""
    return map_record(lambda value: value.movedim(0, -1).contiguous(), record)


def spawn(like: Tensor, chance: Chance, rules: Rules, features: int, classes: int, levels: int) -> State:
    """Make fresh hosts without modules.

    Args:
        like: float32 [N], for its shape and device.
        chance: random numbers of the worlds.
        rules: rules of the world.
        features: number of input features F.
        classes: number of classes K.
        levels: number of hidden levels of the task.
    """
    level, noise = chance.uniform(STREAM_LEVEL, 2)
    low, high = rules.noise
    own = rules.host
    host = _draw_host(like, chance, rules, features, classes) if isinstance(own, str) else own.draw(chance)
    weights = Weights(host, _no_modules(like, rules))
    zeros = map_record(torch.zeros_like, weights)
    slots, worlds = rules.slots, like.shape[-1]
    return State(
        weights=weights,
        adam=Adam(zeros, zeros, torch.zeros_like(like), like.new_zeros(slots, worlds)),
        twin=Twin(host, zeros.host, zeros.host),
        slots=dormant(like.new_zeros(slots, worlds)),
        measures=_nothing_measured(like, classes),
        guard=_fresh_guard(like, weights, rules),
        tally=every(Tally, torch.zeros_like(like))._replace(
            operation=torch.zeros_like(like, dtype=torch.int64), success=torch.ones_like(like)
        ),
        course=_no_course(like, rules),
        level=(level * levels).long(),
        noise=low + (high - low) * noise,
        step=torch.zeros_like(like),
    )


def dormant(like: Tensor) -> Slots:
    """Return empty slots; ``like`` is float32 [S, N]."""
    zeros, never = torch.zeros_like(like), torch.full_like(like, -1.0)
    whole = torch.zeros_like(like, dtype=torch.int64)
    numbers = dict.fromkeys(Slots._fields, zeros)
    numbers |= dict.fromkeys(("stage", "blueprint", "operator", "mode", "curve"), whole)
    numbers |= dict.fromkeys(("measured", "norm", "health", "previous_health", "ratio"), never)
    return Slots(**numbers)


def draw_module(chance: Chance, rules: Rules, like: Modules) -> Modules:
    """Draw the weights of one fresh module per world, each [1, ..., N] of the shapes of ``like``."""
    width, taps, units = like.down.shape[1:4]
    numbers = _draw(chance, STREAM_MODULE, width * taps * units).view(1, width, taps, units, -1)
    zeros = [torch.zeros_like(value[:1]) for value in like]
    return Modules(*zeros)._replace(down=numbers * math.sqrt(6 / (width * taps)))


def _draw_host(like: Tensor, chance: Chance, rules: Rules, features: int, classes: int) -> Host:
    """Draw weights uniformly with the standard deviation of He et al. (2015); the classifier's are smaller."""
    width, slots = rules.width, rules.slots
    sizes = features * width, slots * width * width, width * classes
    embedding, block, classifier = _draw(chance, STREAM_HOST, sum(sizes)).split(sizes)
    return Host(
        embedding.view(features, width, -1) * (EMBEDDING_GAIN * math.sqrt(6 / features)),
        block.view(slots, width, width, -1) * math.sqrt(6 / width),
        like.new_zeros(slots, width, like.shape[-1]),
        classifier.view(width, classes, -1) * 0.5,
        like.new_zeros(classes, like.shape[-1]),
    )


def _draw(chance: Chance, stream: int, count: int) -> Tensor:
    """Draw numbers in [-1, 1), [count, N]."""
    return chance.uniform(stream, count, width=count // 256 + 1) * 2 - 1


def _no_modules(like: Tensor, rules: Rules) -> Modules:
    slots, width, worlds = rules.slots, rules.width, like.shape[-1]
    return Modules(
        like.new_zeros(slots, width, 3, MAX_RANK, worlds),
        like.new_zeros(slots, MAX_RANK, worlds),
        like.new_zeros(slots, MAX_RANK, width, worlds),
        like.new_zeros(slots, width, worlds),
    )


def _nothing_measured(like: Tensor, classes: int) -> Measures:
    chance_level, never = torch.full_like(like, 1 / classes), like.new_full((RECENT, *like.shape), -1.0)
    loss = torch.full_like(like, math.log(classes))
    return Measures(loss, chance_level, chance_level, chance_level, chance_level, never, never)


def _no_course(like: Tensor, rules: Rules) -> Course:
    values = like.new_full((rules.max_steps, *like.shape), -1.0)
    slots = like.new_full((rules.max_steps, rules.slots, *like.shape), -1.0)
    return Course(values, values, slots.to(torch.int8), slots)


def _fresh_guard(like: Tensor, weights: Weights, rules: Rules) -> Guard:
    none = like.new_zeros(rules.slots, like.shape[-1], dtype=torch.bool)
    zeros = torch.zeros_like(like)
    return Guard(like.new_zeros(rules.history, like.shape[-1]), zeros, zeros, weights, none, none[0])
