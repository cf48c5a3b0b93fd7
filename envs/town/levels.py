"""Rules of levels and of a curriculum's stages, from YAML: ``content.yaml`` has the content of all towns, a level
selects and changes parts.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from envs.base.curriculum import Stage
from envs.toolkit.names import did_you_mean
from envs.toolkit.plain_yaml import read_yaml
from envs.town.checks import check_rules
from envs.town.people import People
from envs.town.rules import Affordance, Cascade, Character, Cue, Meter, Modulation, Reward, Rules, Settings

HERE = Path(__file__).parent
LEVELS = tuple(sorted(path.stem for path in (HERE / "levels").glob("*.yaml")))
"""Names of the levels that come with the project."""
SECTIONS = ("meters", "modulations", "cascades", "actions", "affordances", "cues", "rewards")
"""Sections of a content file."""
OWN = (
    "extends",
    "content",
    "affordances",
    "meters",
    "actions",
    "cues",
    "reward",
    "capacity",
    "unlimited",
    "characters",
)
"""Keys of a level that are not fields of :class:`Rules`, or have another form there."""


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


def load_level(level: str | Path, **changes: Any) -> Rules:
    """Load the rules of a level.

    A level is a mapping of :class:`Rules`' plain fields and of

    - ``extends``: another level, whose keys it takes over; ``content``: a file like content.yaml, beside the level;
    - ``affordances``: ``all``, a list of kinds, or a mapping of kinds to changed fields (new kinds are allowed);
    - ``meters``: changed fields by meter; ``actions``: those of the content that are enabled;
    - ``cues``: those in use, and ``characters``: those that residents may have, lists or mappings to changed fields;
    - ``capacity``: seats of every place except the kinds in ``unlimited``;
    - ``reward``: a name of the content's rewards, or a mapping of :class:`~envs.town.rules.Reward`'s fields.

    Args:
        level: one of :data:`LEVELS`, or the path of a YAML file.
        changes: keys that replace the level's.

    Raises:
        ValueError: a key or value is missing, unknown or impossible; the sentence names it.
    """
    path = _find(level)
    where = f"town {path.stem}"
    for name in ("extends", "content"):
        if name in changes:
            raise ValueError(f"{where}: {name} can be said in a level's file only.")
    raw = {**_read_level(path), **changes}
    _check_keys(raw, where)
    plain = {name: value for name, value in raw.items() if name not in OWN}
    rules = _build(Rules, {**plain, "name": path.stem, **_parts(raw, _read_content(raw, where), where)}, where)
    check_rules(rules)
    return rules


def _check_keys(raw: dict[str, Any], where: str) -> None:
    derived = ("name", "deployed", "enabled", "modulations", "cascades")
    fields = {field.name for field in dataclasses.fields(Rules) if field.init and field.name not in derived}
    _refuse_unknown(raw, fields | set(OWN), where)
    for name in ("lesson", "width", "height", "max_steps", "affordances", "reward"):
        if name not in raw:
            raise ValueError(f"{where}: {name} is missing: say it, or extend another level.")


def _read_content(raw: dict[str, Any], where: str) -> dict[str, Any]:
    content = _read(Path(raw.get("content", HERE / "content.yaml")))
    for section in SECTIONS:
        if section not in content:
            raise ValueError(f"{where}: its content has no {section}: begin from envs/town/content.yaml.")
    return content


def _parts(raw: dict[str, Any], content: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the fields of :class:`Rules` that a level takes from the content."""

    def build(kind: type, entries: dict[str, Any], what: str = "") -> dict[str, Any]:
        return {name: _build(kind, value, f"{where}, {what}{name}") for name, value in entries.items()}

    chosen, reward = raw["affordances"], raw["reward"]
    affordances = build(Affordance, _merged(content["affordances"], _chosen(chosen, where), where))
    if isinstance(reward, str):
        reward = _entry(content["rewards"], reward, "reward", where)
    characters = _picked(content.get("characters") or {}, raw.get("characters"), "character", where)
    return {
        "meters": build(Meter, _merged(content["meters"], raw.get("meters") or {}, where), "meter "),
        "modulations": [_build(Modulation, value, f"{where}, modulations") for value in content["modulations"]],
        "cascades": [_build(Cascade, value, f"{where}, cascades") for value in content["cascades"]],
        "affordances": _seated(affordances, raw, where),
        "deployed": list(affordances) if chosen == "all" else list(chosen),
        "actions": content["actions"],
        "enabled": list(raw.get("actions", [])),
        "cues": build(Cue, _picked(content["cues"], raw.get("cues"), "cue", where), "cue "),
        "characters": build(Character, characters, "character "),
        "reward": _build(Reward, reward, f"{where}, reward"),
    }


def _chosen(chosen: Any, where: str) -> dict[str, Any]:
    """Return the changes of the affordances that a level deploys."""
    if chosen != "all" and not (isinstance(chosen, list | dict) and chosen):
        raise ValueError(f"{where}: affordances is {chosen!r}: give all, or a list or mapping of at least one kind.")
    if isinstance(chosen, list) and len(set(chosen)) < len(chosen):
        twice = next(kind for kind in chosen if chosen.count(kind) > 1)
        raise ValueError(f"{where}: {twice} is there twice: use its count for several places.")
    return chosen if isinstance(chosen, dict) else {}


def _picked(base: dict[str, dict], chosen: Any, what: str, where: str) -> dict[str, dict]:
    """Return the entries of ``base`` in ``chosen``, a list, or a mapping to changed fields, which may add entries."""
    chosen = [] if chosen is None else chosen
    if not isinstance(chosen, list | dict):
        raise ValueError(f"{where}: {what}s is {chosen!r}: give a list of {what}s, or a mapping to changed fields.")
    changes = chosen if isinstance(chosen, dict) else {}
    for name in chosen:
        if not isinstance(name, str) or not changes.get(name):
            _entry(base, name, what, where)
    known = _merged(base, changes, where)
    return {name: known[name] for name in chosen}


def _seated(affordances: dict[str, Affordance], raw: dict[str, Any], where: str) -> dict[str, Affordance]:
    if "capacity" not in raw:
        return affordances
    unlimited, seats = raw.get("unlimited") or [], raw["capacity"]
    for name in unlimited:
        _entry(affordances, name, "affordance", where)
    _check_type(seats, int | None, "capacity", where)
    return {
        name: value if name in unlimited else dataclasses.replace(value, capacity=seats)
        for name, value in affordances.items()
    }


def _find(level: str | Path) -> Path:
    path = HERE / "levels" / f"{level}.yaml"
    path = path if path.is_file() else Path(level)
    if not path.is_file():
        raise ValueError(
            f"level {str(level)!r} is unknown{did_you_mean(level, LEVELS)}: use {', '.join(LEVELS)}, or the path of a "
            "YAML file."
        )
    return path


def _read_level(path: Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    if path in seen:
        raise ValueError(f"level {path.stem} extends itself: break the circle.")
    raw = _read(path)
    if "content" in raw:
        raw["content"] = str(path.parent / raw["content"])
    if "extends" not in raw:
        return raw
    parent = path.parent / f"{raw['extends']}.yaml"
    parent = parent if parent.is_file() else _find(raw["extends"])
    return {**_read_level(parent, (*seen, path)), **raw}


def _read(path: Path) -> dict[str, Any]:
    raw = read_yaml(path)
    if not isinstance(raw, dict):
        raise ValueError(f"{path} holds no mapping: see envs/town/levels for examples.")
    return raw


def _merged(base: dict[str, dict], changes: Any, where: str) -> dict[str, dict]:
    """Return the entries of ``base`` with changed fields, then the new ones in their own order."""
    for name, change in changes.items():
        if not isinstance(change, dict | None):
            raise ValueError(f"{where}: {name} is {change!r}: give a mapping of the fields to change.")
    names = [*base, *(name for name in changes if name not in base)]
    return {name: {**base.get(name, {}), **(changes.get(name) or {})} for name in names}


def _entry(entries: dict[str, Any], name: Any, what: str, where: str) -> Any:
    if not isinstance(name, str) or name not in entries:
        raise ValueError(f"{where}: {what} {name!r} is unknown{did_you_mean(name, entries)}: use {', '.join(entries)}.")
    return entries[name]


def _refuse_unknown(raw: dict[str, Any], known: set[str], where: str) -> None:
    for name in raw:
        if name not in known:
            raise ValueError(
                f"{where}: {name!r} is unknown{did_you_mean(name, known)}: use {', '.join(sorted(known))}."
            )


def _build(kind: type, raw: dict[str, Any], where: str) -> Any:
    """Make an object of a dataclass, with the type of every value checked."""
    if not isinstance(raw, dict):
        raise ValueError(f"{where}: {raw!r} is no mapping of {kind.__name__}'s fields.")
    hints = get_type_hints(kind)
    _refuse_unknown(raw, set(hints), where)
    for name, value in raw.items():
        _check_type(value, hints[name], name, where)
    try:
        return kind(**raw)
    except TypeError as error:
        raise ValueError(f"{where}: {str(error).split('__init__() ')[-1]}.") from None


def _check_type(value: Any, hint: Any, name: str, where: str) -> None:
    if not _fits(value, hint):
        raise ValueError(f"{where}: {name} is {value!r}: give {_in_words(hint)}.")


def _in_words(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(map(str, get_args(hint)))
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")


def _fits(value: Any, hint: Any) -> bool:
    kind, parts = get_origin(hint), get_args(hint)
    if kind is Literal:
        return value in parts
    if kind in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if kind is list:
        return isinstance(value, list) and all(_fits(item, parts[0]) for item in value)
    if kind is dict:
        return isinstance(value, dict) and all(_fits(k, parts[0]) and _fits(v, parts[1]) for k, v in value.items())
    if hint in (int, float):
        numeric = isinstance(value, int | float) if hint is float else isinstance(value, int)
        return numeric and not isinstance(value, bool) and math.isfinite(value)
    return isinstance(value, hint)
