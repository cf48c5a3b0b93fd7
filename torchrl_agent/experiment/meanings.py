"""Meanings of the keys of a configuration, from the docstrings of the dataclasses that declare them."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import re
import textwrap
from typing import Any, get_origin

from torchrl_agent.experiment import Experiment
from torchrl_agent.experiment.algorithm_section import SECTION
from torchrl_agent.experiment.compose import CONFIGS
from torchrl_agent.experiment.overrides import field_hints, inner_hint, without_none


def meaning(kind: Any, name: str) -> str:
    """Docstring of a dataclass's field, own or inherited; for a section without one, the docstring of its class. Empty
    if there is none.
    """
    said = next((found[name] for each in kind.__mro__ if name in (found := _documented(each))), "")
    hint = field_hints(kind).get(name)
    return said or (_plain(hint.__doc__ or "") if dataclasses.is_dataclass(hint) else "")


def short_meaning(kind: Any, name: str) -> str:
    """First sentence of a field's docstring, with the field's choices."""
    said = _first_sentence(meaning(kind, name))
    choices = [field.metadata.get("choices", ()) for field in dataclasses.fields(kind) if field.name == name]
    words = ", ".join(str(choice) for choice in itertools.chain(*choices))
    return f"{said.removesuffix('.')}: {words}." if words else said


def explained(experiment: Experiment) -> str:
    """A configuration in full as YAML, with the meaning of each key behind it."""
    lines: list[str] = []
    path: list[str] = []
    for line, after in itertools.pairwise([*experiment.to_yaml().splitlines(), "end:"]):
        key = re.match(r"( *)([\w.]+):", line)
        said = ""
        if key:
            path = [*path[: len(key[1]) // 2], key[2]]
            said = _meaning_at(experiment, path)
        is_whole = re.match(r" *(- |[\w.]+:)", after)  # no comment stands within a text of several lines
        lines.append(f"{line}  # {said}" if said and is_whole else line)
    return "\n".join([*lines, ""])


def summary(name: str) -> str:
    """The first sentence of the comment that one of our configurations begins with."""
    lines = (CONFIGS / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    comment = itertools.takewhile(lambda line: line.startswith("#"), lines)
    return _first_sentence(" ".join(line.lstrip("# ") for line in comment))


def _meaning_at(experiment: Experiment, path: list[str]) -> str:
    """Short meaning of the key at a path, with the keys of the experiment's algorithm."""
    kind: Any = Experiment
    for name in path[:-1]:
        hint = type(experiment.algorithm) if (kind, name) == (Experiment, SECTION) else field_hints(kind).get(name, Any)
        kind = inner_hint(hint) if get_origin(without_none(hint)) is dict else hint
    return short_meaning(kind, path[-1]) if dataclasses.is_dataclass(kind) else ""


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
