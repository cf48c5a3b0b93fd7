"""Rules of a town and of its curriculum's stages, and the settings that may differ between worlds."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from envs.base.curriculum import Stage
from envs.town.checks import check_rules
from envs.town.levels import load_level
from envs.town.people import People
from envs.town.rules import Rules, Settings


def level_settings(rules: Rules, people: People) -> Settings:
    """Return the settings of a stage's rules for every world, with the given people."""
    num_envs, device = people.money.shape[-1], people.money.device

    def column(values: list[float], dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device).unsqueeze(-1).repeat(1, num_envs)

    return Settings(
        depletion=column([rules.depletion])[0],
        width=column([rules.width], torch.int32)[0],
        height=column([rules.height], torch.int32)[0],
        initial=column([meter.initial for meter in rules.meters.values()]),
        deployed=column([float(kind in rules.deployed) for kind in rules.kinds]),
        people=people,
    )


def make_rules(level: str | Path, rules: Rules | dict[str, Any] | None, num_agents: int | None) -> Rules:
    """Return the rules of a level with changes, or the given rules; with ``num_agents`` agents unless it is None."""
    changes = {} if num_agents is None else {"num_agents": num_agents}
    if not isinstance(rules, Rules):
        return load_level(level, **{**(rules or {}), **changes})
    rules = dataclasses.replace(rules, **changes)  # type: ignore[arg-type]
    check_rules(rules)
    return rules


def stage_rules(stage: Stage, rules: Rules) -> Rules:
    """Return the rules of a stage: settings that may differ between worlds from its level, the rest from ``rules``."""
    level = rules if stage.level is None else load_level(stage.level)
    if level.kinds != rules.kinds or level.meter_names != rules.meter_names:
        raise ValueError(
            f"stage {stage.name!r} has level {level.name} with other affordances or meters than {rules.name}: a "
            "curriculum needs the same content."
        )
    missing = set(level.deployed) - set(rules.deployed)
    if missing:
        raise ValueError(
            f"stage {stage.name!r} has level {level.name} with {', '.join(sorted(missing))}, which level {rules.name} "
            "lacks: begin from the richer level."
        )
    meters = {
        name: dataclasses.replace(rules.meters[name], initial=meter.initial) for name, meter in level.meters.items()
    }
    mixed = dataclasses.replace(
        rules,
        width=level.width,
        height=level.height,
        meters=meters,
        deployed=level.deployed,
        depletion=level.depletion * stage.difficulty.get("depletion", 1.0),
    )
    check_rules(mixed)
    cells, needed = mixed.width * mixed.height, rules.population + rules.num_places
    if mixed.random_layout and needed > cells:
        raise ValueError(
            f"stage {stage.name!r}: its {cells} cells hold no {needed} places and agents of level {rules.name}, whose "
            "places it deals out: give it a larger map, or begin from a level with fewer places."
        )
    return mixed
