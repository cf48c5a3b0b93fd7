"""Every key of a configuration with its type, default and meaning, from the dataclasses that declare it."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import json
import math
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, get_args, get_origin

from omegaconf import MISSING

from torchrl_agent.algorithms.registry import ALGORITHMS
from torchrl_agent.experiment import Experiment, ExperimentFile
from torchrl_agent.experiment.algorithm_section import SECTION
from torchrl_agent.experiment.compose import CONFIGS
from torchrl_agent.experiment.overrides import field_hints, inner_hint, without_none

TYPES = {int: "whole number", float: "number", str: "text", bool: "true or false", dict: "keys", Any: "anything"}
TOP = """# Configuration

Every key of a configuration: `KEY=VALUE` on the command line, `KEY: VALUE` in a YAML file. `torchrl-agent configs`
lists the configurations that come with the project, and `torchrl-agent configs NAME` shows one with all its values. A
world's arguments, under `world`, are those of its class.

This page is made by `torchrl-agent configs --page > docs/configuration.md`.
"""


class Key(NamedTuple):
    """A key of a configuration."""

    name: str
    type: str
    default: str
    meaning: str


def keys_of(kind: Any, above: str = "") -> Iterator[Key]:
    """The keys of a section and of those in it, in the order in which they are declared.

    Args:
        kind: the section's dataclass.
        above: prefix of their names.
    """
    hints = field_hints(kind)
    for field in dataclasses.fields(kind):
        if kind is ExperimentFile and field.name == SECTION:
            continue
        name, hint = f"{above}{field.name}", hints[field.name]
        if dataclasses.is_dataclass(hint):
            yield from keys_of(hint, f"{name}.")
            continue
        yield Key(name, _type(hint, field.metadata), _default(field), meaning(kind, field.name))
        if dataclasses.is_dataclass(inner_hint(hint)):
            yield from keys_of(inner_hint(hint), f"{name}.NAME.")


def meaning(kind: Any, name: str) -> str:
    """Docstring of a dataclass's field, own or inherited; for a section without one, the docstring of its class. Empty
    if there is none.
    """
    said = next((found[name] for each in kind.__mro__ if name in (found := _documented(each))), "")
    hint = field_hints(kind).get(name)
    return said or (_plain(hint.__doc__ or "") if dataclasses.is_dataclass(hint) else "")


def page() -> str:
    """The page of all keys, in Markdown."""
    sections: dict[str, list[Key]] = {}
    for key in keys_of(ExperimentFile):
        sections.setdefault(_section(key.name), []).append(key)
    for algorithm in ALGORITHMS.values():
        sections[f"`{SECTION}={algorithm.name}`"] = list(keys_of(algorithm.config_class, f"{SECTION}."))
    return "\n".join([TOP, *(_table(title, keys) for title, keys in sections.items())])


def explained(experiment: Experiment) -> str:
    """A configuration in full as YAML, with the meaning of each key behind it."""
    lines: list[str] = []
    path: list[str] = []
    for line, after in itertools.pairwise([*experiment.to_yaml().splitlines(), "end:"]):
        key = re.match(r"( *)([\w.]+):", line)
        said = ""
        if key:
            path = [*path[: len(key[1]) // 2], key[2]]
            said = _first_sentence(_meaning_at(experiment, path))
        is_whole = re.match(r" *(- |[\w.]+:)", after)  # no comment stands within a text of several lines
        lines.append(f"{line}  # {said}" if said and is_whole else line)
    return "\n".join([*lines, ""])


def summary(name: str) -> str:
    """The first sentence of the comment that one of our configurations begins with."""
    lines = (CONFIGS / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    comment = itertools.takewhile(lambda line: line.startswith("#"), lines)
    return _first_sentence(" ".join(line.lstrip("# ") for line in comment))


def _section(name: str) -> str:
    section, dot, _ = name.partition(".")
    if section == "model" and name.count(".") > 1:
        section = name.rpartition(".")[0]
    return f"`{section}`" if dot else "Experiment"


def _table(title: str, keys: list[Key]) -> str:
    rows = [["key", "type", "default", "meaning"], ["---"] * 4]
    rows += [[f"`{key.name}`", key.type, key.default, key.meaning] for key in keys]
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    return "\n".join([f"## {title}\n", *(f"| {line} |" for line in lines), ""])


def _type(hint: Any, limits: Mapping[str, Any]) -> str:
    """A type in words, with its range or its choices."""
    kind, or_null = without_none(hint), ", or null" if without_none(hint) is not hint else ""
    if "choices" in limits:
        return f"{', '.join(map(str, limits['choices']))}{or_null}"
    if get_origin(kind) is list:
        words = f"list of {TYPES[get_args(kind)[0]]}s"
    else:
        words = TYPES.get(get_origin(kind) or kind, "keys")
    return f"{words}{_range(limits)}{or_null}"


def _range(limits: Mapping[str, Any]) -> str:
    names = {"least": "at least", "above": "above", "below": "below", "most": "at most"}
    shown = {word: limits[name] for name, word in names.items() if abs(limits.get(name, math.inf)) < 2**53}
    if (limits.get("least"), limits.get("most")) == (0, 1):
        return " within [0, 1]"
    words = ", ".join(f"{word} {bound:,}" for word, bound in shown.items())
    return f" {words}" if words else ""


def _default(field: dataclasses.Field) -> str:
    value = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    if value == MISSING:
        return "required"
    return f"`{json.dumps(value)}`" if value is None or isinstance(value, bool) else f"`{value}`"


def _meaning_at(experiment: Experiment, path: list[str]) -> str:
    """Meaning of the key at a path, with the keys of the experiment's algorithm."""
    kind: Any = Experiment
    for name in path[:-1]:
        hint = type(experiment.algorithm) if (kind, name) == (Experiment, SECTION) else field_hints(kind).get(name, Any)
        kind = inner_hint(hint) if get_origin(without_none(hint)) is dict else hint
    return meaning(kind, path[-1]) if dataclasses.is_dataclass(kind) else ""


@functools.cache
def _documented(kind: type) -> dict[str, str]:
    """Texts below the fields of a class, by the fields' names."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body  # type: ignore[attr-defined]
    except (OSError, TypeError):  # made without a file
        return {}
    return {
        ast.unparse(here.target): _plain(str(ast.literal_eval(after.value)))
        for here, after in itertools.pairwise(body)
        if isinstance(here, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    }


def _plain(text: str) -> str:
    """A docstring in one line, its code as Markdown has it."""
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", " ".join(text.split()))
    return text.replace("``", "`")


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", text, maxsplit=1)[0]
