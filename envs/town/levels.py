"""Reads towns from YAML: ``content.yaml`` is what every town is made of, a level says what it uses and changes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, get_args, get_type_hints

import yaml

from envs.town.checks import check_rules
from envs.town.rules import Affordance, Cascade, Cue, Meter, Modulation, Reward, Rules

HERE = Path(__file__).parent
LEVELS = tuple(sorted(path.stem for path in (HERE / "levels").glob("*.yaml")))
"""Levels that come with the project."""
OWN = ("extends", "content", "affordances", "meters", "actions", "cues", "reward", "capacity", "unlimited")
"""Keys of a level that are no fields of :class:`Rules`, or are written differently there."""


def load_level(level: str | Path, **changes: Any) -> Rules:
    """The rules of a level.

    A level is a mapping of :class:`Rules`' plain fields and of

    - ``extends``: another level, whose keys it takes over; ``content``: a file like content.yaml, beside the level;
    - ``affordances``: ``all``, a list of kinds, or a mapping of kinds to changed fields (new kinds are allowed);
    - ``meters``: changed fields by meter; ``actions``: those of the content that are enabled; ``cues``: those in use;
    - ``capacity``: seats of every place except the kinds in ``unlimited``;
    - ``reward``: a name of the content's rewards, or a mapping of :class:`~envs.town.rules.Reward`'s fields.

    Args:
        level: one of :data:`LEVELS`, or the path of a YAML file.
        changes: keys that replace the level's.

    Raises:
        ValueError: something is missing, unknown or impossible; the sentence names it.
    """
    path = _find(level)
    raw = {**_read_level(path), **changes}
    where = f"town {path.stem}"
    fields = {field.name for field in dataclasses.fields(Rules) if field.init} - {
        "name",
        "deployed",
        "enabled",
        "modulations",
        "cascades",
    }
    _refuse_unknown(raw, (fields | set(OWN)) - {"name"}, where)
    missing = [name for name in ("lesson", "width", "height", "max_steps", "affordances", "reward") if name not in raw]
    if missing:
        raise ValueError(f"{where}: {missing[0]} is missing: say it, or extend another level.")
    content = _read(path.parent / raw["content"] if "content" in raw else HERE / "content.yaml")
    plain = {name: value for name, value in raw.items() if name not in OWN}
    kinds = _merged(content["affordances"], raw["affordances"] if isinstance(raw["affordances"], dict) else {})
    affordances = {name: _build(Affordance, value, f"{where}, {name}") for name, value in kinds.items()}
    deployed = list(affordances) if raw["affordances"] == "all" else list(raw["affordances"])
    cues = {name: _entry(content["cues"], name, "cue", where) for name in raw.get("cues", [])}
    reward = raw["reward"]
    if isinstance(reward, str):
        reward = _entry(content["rewards"], reward, "reward", where)
    meters = _merged(content["meters"], raw.get("meters", {}))
    rules = _build(
        Rules,
        {
            **plain,
            "name": path.stem,
            "meters": {name: _build(Meter, value, f"{where}, meter {name}") for name, value in meters.items()},
            "modulations": [_build(Modulation, value, f"{where}, modulations") for value in content["modulations"]],
            "cascades": [_build(Cascade, value, f"{where}, cascades") for value in content["cascades"]],
            "affordances": _seated(affordances, raw),
            "deployed": deployed,
            "actions": content["actions"],
            "enabled": list(raw.get("actions", [])),
            "cues": {name: _build(Cue, value, f"{where}, cue {name}") for name, value in cues.items()},
            "reward": _build(Reward, reward, f"{where}, reward"),
        },
        where,
    )
    check_rules(rules)
    return rules


def _seated(affordances: dict[str, Affordance], raw: dict[str, Any]) -> dict[str, Affordance]:
    if "capacity" not in raw:
        return affordances
    unlimited = raw.get("unlimited", [])
    return {
        name: value if name in unlimited else dataclasses.replace(value, capacity=raw["capacity"])
        for name, value in affordances.items()
    }


def _find(level: str | Path) -> Path:
    path = HERE / "levels" / f"{level}.yaml"
    path = path if path.is_file() else Path(level)
    if not path.is_file():
        raise ValueError(f"level {str(level)!r} is unknown: use {', '.join(LEVELS)}, or the path of a YAML file.")
    return path


def _read_level(path: Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    if path in seen:
        raise ValueError(f"level {path.stem} extends itself: break the circle.")
    raw = _read(path)
    if "extends" not in raw:
        return raw
    parent = path.parent / f"{raw['extends']}.yaml"
    parent = parent if parent.is_file() else _find(raw["extends"])
    return {**_read_level(parent, (*seen, path)), **raw}


def _read(path: Path) -> dict[str, Any]:
    try:
        raw = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ValueError(f"{path} cannot be read ({' '.join(str(error).split())}): mend that place.") from None
    if not isinstance(raw, dict):
        raise ValueError(f"{path} holds no mapping: see envs/town/levels for examples.")
    return raw


def _merged(base: dict[str, dict], changes: dict[str, dict | None]) -> dict[str, dict]:
    return {name: {**base.get(name, {}), **(changes.get(name) or {})} for name in (*base, *(set(changes) - set(base)))}


def _entry(entries: dict[str, Any], name: str, what: str, where: str) -> Any:
    if name not in entries:
        raise ValueError(f"{where}: {what} {name!r} is unknown: use {', '.join(entries)}.")
    return entries[name]


def _refuse_unknown(raw: dict[str, Any], known: set[str], where: str) -> None:
    for name in raw:
        if name not in known:
            raise ValueError(f"{where}: {name!r} is unknown: use {', '.join(sorted(known))}.")


def _build(kind: type, raw: dict[str, Any], where: str) -> Any:
    """An object of a dataclass, its numbers checked for their kind."""
    if not isinstance(raw, dict):
        raise ValueError(f"{where}: {raw!r} is no mapping of {kind.__name__}'s fields.")
    hints = get_type_hints(kind)
    _refuse_unknown(raw, set(hints), where)
    for name, value in raw.items():
        allowed = [hint for hint in (get_args(hints[name]) or (hints[name],)) if isinstance(hint, type)]
        simple = [hint for hint in allowed if hint in (int, float, bool, str, type(None))]
        if hints[name] in (int, float, bool, str) or (
            simple and len(simple) == len(allowed) and not isinstance(value, dict | list)
        ):
            wide = (*simple, int) if float in simple else tuple(simple)
            if not isinstance(value, wide or (hints[name],)) or (isinstance(value, bool) and bool not in simple):
                raise ValueError(f"{where}: {name} is {value!r}: give {' or '.join(h.__name__ for h in simple)}.")
    try:
        return kind(**raw)
    except TypeError as error:
        raise ValueError(f"{where}: {str(error).split('__init__() ')[-1]}.") from None
