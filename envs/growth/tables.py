"""Constants of the growth world that are looked up by index, as tensors on the device."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from envs.growth.rules import (
    BLUEPRINTS,
    CURVES,
    OPERATIONS,
    PLACEHOLDERS,
    RELEVANT,
    SPEEDS,
    STEEPNESS,
    STYLES,
    TARGETS,
    TEMPOS,
    Rules,
    head_sizes,
)


class Tables(NamedTuple):
    """Columns by blueprint, style, tempo, target, speed and curve; float32 unless stated."""

    rank: Tensor
    """Hidden units by blueprint."""
    taps: Tensor
    scales: Tensor
    """True for blueprints that multiply the features, bool."""
    parameters: Tensor
    """Number of parameters by blueprint."""
    style_curve: Tensor
    """int64"""
    style_operator: Tensor
    """int64"""
    style_steepness: Tensor
    tempo: Tensor
    target: Tensor
    speed: Tensor
    curve: Tensor
    """int64"""
    steepness: Tensor
    useful: Tensor
    """Number of modules that pay, by the hidden level; the level itself where that is not known."""
    relevant: Tensor
    """True for the values of heads that can matter, by operation, bool [6, sum of head sizes]."""
    placeholder: Tensor
    """True for the placeholder of each head, bool [sum of head sizes]; for all operations in the last head."""


def make_tables(rules: Rules, useful: list[float], device: torch.device) -> Tables:
    """Make the tables; ``useful`` is the number of modules that pay by level."""

    def column(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device)

    def index(values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    return Tables(
        rank=column([blueprint.rank for blueprint in BLUEPRINTS]),
        taps=column([blueprint.taps for blueprint in BLUEPRINTS]),
        scales=torch.tensor([blueprint.kind == "scale" for blueprint in BLUEPRINTS], device=device),
        parameters=column([module_size(number, rules) for number in range(len(BLUEPRINTS))]),
        style_curve=index([curve for _, curve, _ in STYLES]),
        style_operator=index([operator for _, _, operator in STYLES]),
        style_steepness=column([STEEPNESS] * len(STYLES)),
        tempo=column(list(TEMPOS)),
        target=column(list(TARGETS)),
        speed=column(list(SPEEDS)),
        curve=index([curve for _, curve, _ in CURVES]),
        steepness=column([steepness for _, _, steepness in CURVES]),
        useful=column(useful),
        **_heads(rules, device),
    )


def module_size(blueprint: int, rules: Rules) -> int:
    """Return the number of parameters that a blueprint uses; the memory of a slot is that of the largest."""
    rank, inputs = BLUEPRINTS[blueprint].rank, rules.width * (3 if BLUEPRINTS[blueprint].taps else 1)
    return inputs * rank + rank + rank * rules.width


def _heads(rules: Rules, device: torch.device) -> dict[str, Tensor]:
    """Return relevance and placeholders over the values of all heads in a row."""
    sizes, relevant, placeholder = head_sizes(rules.slots), [], []
    for head, size in enumerate(sizes):
        last = head == len(sizes) - 1
        placeholder += [last or value == PLACEHOLDERS[head] for value in range(size)]
    for operation in range(len(OPERATIONS)):
        heads = (*RELEVANT[operation], len(sizes) - 1)
        relevant.append([head in heads for head, size in enumerate(sizes) for _ in range(size)])
    return {
        "relevant": torch.tensor(relevant, device=device),
        "placeholder": torch.tensor(placeholder, device=device),
    }
