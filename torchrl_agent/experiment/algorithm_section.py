"""The section of a configuration that belongs to the algorithm: its keys are those of its class."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from torchrl_agent.algorithms.algorithm import AlgorithmConfig
from torchrl_agent.algorithms.registry import class_path, find_algorithm
from torchrl_agent.experiment.overrides import Override, fitted, hint_at, parse_override

SECTION, TARGET, TUNED = "algorithm", "_target_", "tuned"
DEFAULT = "ppo"
Change = tuple[str, Any]
"""Key and value that an override sets; the key is dotted."""


def separate(words: Iterable[str]) -> tuple[list[Change], list[Override]]:
    """Overrides of the algorithm, and the others."""
    changes: list[Change] = []
    others = []
    for override in map(parse_override, words):
        key, value = override.key, override.value
        if value is None or key.split(".")[0] not in (SECTION, TUNED):
            others.append(override)
        elif "." in key or key == TUNED:
            changes.append((key, fitted(value, Any, key) if value.startswith("{") else value))
        else:
            read = fitted(value, Any, key)
            given = read if isinstance(read, dict) else {TARGET if key == SECTION else "": read}
            changes += [(f"{key}.{name}".rstrip("."), each) for name, each in given.items()]
    return changes, others


def choose_algorithm(
    plain: dict[str, Any], changes: list[Change], path: Path
) -> tuple[DictConfig, list[dict[str, Any]], list[Change]]:
    """The section of the chosen algorithm with its class's defaults, and the changes of it, the weakest first: those
    tuned to the world, those of the file, those of the overrides. Removes the sections from ``plain``.
    """
    written = plain.pop(SECTION)
    written = {TARGET: written} if not isinstance(written, dict) else written
    of_file = find_algorithm(written.get(TARGET) or DEFAULT)
    asked = [value for key, value in changes if key == f"{SECTION}.{TARGET}"]
    kind = find_algorithm(fitted(asked[-1], str, SECTION)) if asked else of_file
    if kind is not of_file:  # of the keys for another algorithm keep the discount, or those of all algorithms
        shared = {"gamma"} if written.get(TARGET) else {each.name for each in dataclasses.fields(AlgorithmConfig)}
        written = {name: value for name, value in written.items() if name in shared}
    section = OmegaConf.structured(kind.config_class)
    own = {**written, TARGET: class_path(kind)}
    plain[TUNED] = _suiting(plain[TUNED], changes, path)
    suiting = [row for name, row in plain[TUNED].items() if find_algorithm(str(name)) is kind]
    named = [change for change in changes if change[0].startswith(f"{SECTION}.") and change[0] != f"{SECTION}.{TARGET}"]
    return section, [*suiting, own], named


def _suiting(rows: Any, changes: list[Change], path: Path) -> dict[str, dict[str, Any]]:
    """Hyper-parameters tuned to the world, by algorithm, with overrides applied."""
    tuned = OmegaConf.create({TUNED: rows})
    for key, value in changes:
        section, _, rest = key.partition(".")
        if section == TUNED:
            name, _, inner = rest.partition(".")
            hint = hint_at(find_algorithm(name).config_class, inner)[0] if inner else Any
            OmegaConf.update(tuned, key, fitted(value, hint, key))
    plain: Any = OmegaConf.to_container(tuned)
    rows = plain[TUNED]
    sections = {TUNED: rows}
    sections |= {f"{TUNED}.{name}": row for name, row in rows.items()} if isinstance(rows, dict) else {}
    for key, section in sections.items():
        if not isinstance(section, dict):
            raise ValueError(f"configuration {path.stem}: {key} is {section}: give keys, such as {TUNED}.ppo.gamma.")
    return rows
