"""From a name in a configuration to what it names: the only way, taken after the configuration was checked."""

from __future__ import annotations

import functools
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

SETTINGS = ("_target_", "_args_", "_partial_", "_recursive_", "_convert_")
"""Keys of a target that are no arguments, as Hydra has them."""


class Call(NamedTuple):
    """A call of the command line."""

    trust: bool = False
    """Every configuration that it reads is trusted."""
    folder: str | None = None
    """Modules that are trusted are also imported from here, where no other folder has them."""


NO_CALL = Call()
CALL: ContextVar[Call] = ContextVar("CALL", default=NO_CALL)


@contextmanager
def calling(trust: bool, folder: str | None) -> Iterator[None]:
    """A context with the trust of a :class:`Call`."""
    token = CALL.set(Call(trust, folder))
    try:
        yield
    finally:
        CALL.reset(token)


def find(path: str) -> Any:
    """The class or function at a dotted path.

    Raises:
        Exception: any that an import raises.
    """
    return pkgutil.resolve_name(path)


def search_present_folder() -> None:
    """Let modules of the user's own be imported from the folder in which the command was given."""
    folder = CALL.get().folder
    if folder is not None and folder not in sys.path:
        sys.path.append(folder)


def build(config: Mapping[str, Any], *arguments: Any) -> Any:
    """The object of ``{_target_: PATH, **named}``, made as ``PATH(*arguments, **named)``.

    Args:
        config: named arguments may hold further targets, which are made first. ``_args_`` are positional arguments;
            ``_partial_: true`` gives a function that makes the object; ``_recursive_: false`` leaves arguments as they
            are.
        *arguments: positional arguments before those.

    Raises:
        Exception: any that importing or making it raises.
    """
    inner = _built if config.get("_recursive_", True) else lambda value: value
    positional = [inner(value) for value in config.get("_args_", ())]
    named = {name: inner(value) for name, value in config.items() if name not in SETTINGS}
    make = functools.partial(find(config["_target_"]), *arguments, *positional, **named)
    return make if config.get("_partial_") else make()


def _built(value: Any) -> Any:
    """A value with its targets made."""
    if isinstance(value, Mapping):
        return build(value) if "_target_" in value else {name: _built(each) for name, each in value.items()}
    return [_built(each) for each in value] if isinstance(value, list) else value
