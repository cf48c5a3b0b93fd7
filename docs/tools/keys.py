"""Tables of keys in the guides, from the dataclasses that declare the keys: ``make keys``.

A table stands below a line ``<!-- keys: SECTION -->`` and has a key, its default and its meaning. What a page has in a
fourth column is written by hand and stays.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from omegaconf import MISSING

from torchrl_agent.algorithms.actor_critic import ActorCriticConfig
from torchrl_agent.algorithms.algorithm import AlgorithmConfig
from torchrl_agent.algorithms.off_policy import OffPolicyConfig
from torchrl_agent.algorithms.registry import ALGORITHMS
from torchrl_agent.experiment import ExperimentFile
from torchrl_agent.experiment.algorithm_section import SECTION
from torchrl_agent.experiment.meanings import short_meaning
from torchrl_agent.experiment.overrides import field_hints, inner_hint

DOCS = Path(__file__).parents[1]
TABLE = re.compile(r"(<!-- keys: (.+) -->\n\n)((?:\|.*\n)*)")
TOP = "experiment"
SHARED = {
    "every algorithm": AlgorithmConfig,
    "ppo, a2c and impala": ActorCriticConfig,
    "dqn, sac and td3": OffPolicyConfig,
}
"""Sections that several algorithms have; an algorithm's own section has what it adds, and other defaults."""


class Key(NamedTuple):
    """A key of a configuration, with its default in YAML."""

    name: str
    default: str
    meaning: str


def main(docs: Path = DOCS) -> None:
    """Write every table of every guide anew."""
    for path in docs.rglob("*.md"):
        text = path.read_text(encoding="utf-8")
        if fill(text) != text:
            path.write_text(fill(text), encoding="utf-8")


def fill(text: str) -> str:
    """The text of a guide with fresh tables."""
    known = sections()
    return TABLE.sub(lambda found: found[1] + table(found[2], known[found[2]], found[3]), text)


def sections() -> dict[str, list[Key]]:
    """Keys by section, each key once."""
    result: dict[str, list[Key]] = {}
    for key in keys_of(ExperimentFile()):
        section = _section(key.name)
        result.setdefault(section, []).append(key._replace(name=key.name.removeprefix(f"{section}.")))
    algorithms = {f"{SECTION}={name}": algorithm.config_class for name, algorithm in ALGORITHMS.items()}
    return result | {name: _own(kind) for name, kind in (SHARED | algorithms).items()}


def keys_of(config: Any, above: str = "") -> Iterator[Key]:
    """Keys of a section and of those in it, in the order in which they are declared.

    Args:
        config: the section's dataclass, with its defaults.
        above: prefix of their names.
    """
    kind = type(config)
    for field in dataclasses.fields(kind):
        if field.name == "_target_" or (kind is ExperimentFile and field.name == SECTION):
            continue
        name, value, inner = f"{above}{field.name}", getattr(config, field.name), _inner(kind, field.name)
        if dataclasses.is_dataclass(value):
            yield from keys_of(value, f"{name}.")
            continue
        yield Key(name, _default(value), short_meaning(kind, field.name))
        if dataclasses.is_dataclass(inner):
            yield from keys_of(inner(), f"{name}.NAME.")


def table(section: str, keys: list[Key], old: str = "") -> str:
    """A table of keys in Markdown, with the fourth column of the table ``old``."""
    before = [row.strip("|").strip().split(" | ") for row in old.splitlines()]
    advice = {row[0]: row[3] for row in before if len(row) > 3}
    header, rows = [_title(section), "default", "meaning"], [[f"`{name}`", *rest] for name, *rest in keys]
    if advice:
        header, rows = [*header, before[0][3]], [[*row, advice.get(row[0], "")] for row in rows]
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join([*lines, ""])


def _title(section: str) -> str:
    if section == TOP:
        return "key"
    return f"key of {section}" if section in SHARED else f"key under `{section.partition('=')[0]}`"


def _section(name: str) -> str:
    first, dot, rest = name.partition(".")
    if first == "model" and "." in rest:
        return name.rpartition(".")[0]
    return first if dot else TOP


def _own(kind: type) -> list[Key]:
    """Keys that a section does not share, or has with another default or meaning."""
    shared: dict[str, Key] = {}
    for base in SHARED.values():
        if base in kind.__mro__[1:]:
            shared |= {key.name: key for key in keys_of(base())}
    return [key for key in keys_of(kind()) if shared.get(key.name) != key]


def _inner(kind: type, name: str) -> Any:
    """Dataclass of the values of a dictionary; anything else for other fields."""
    return inner_hint(field_hints(kind)[name])


def _default(value: Any) -> str:
    """A default in YAML, as code."""
    if value == MISSING:
        return "required"
    words = f"{value:_}" if type(value) is int and value >= 10_000 else yaml.safe_dump(value, default_flow_style=True)
    return f"`{words.splitlines()[0]}`"


if __name__ == "__main__":
    main()
