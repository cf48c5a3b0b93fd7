"""Resolution of a configuration's targets to objects: the only way to them, taken after the configuration's check."""

from __future__ import annotations

import functools
import logging
import pkgutil
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

logger = logging.getLogger(__name__)

SETTINGS = ("_target_", "_args_", "_partial_", "_recursive_", "_convert_")
"""Keys of a target that are not arguments, as in Hydra."""


class Call(NamedTuple):
    """Settings of a command-line call."""

    trust: bool = False
    """True if every configuration that it reads is trusted."""
    folder: str | None = None
    """Folder from which trusted modules are also imported, if no other folder has them."""


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


OF_PYTHON = "python:"
"""Prefix of names that this process gave to objects that no import finds."""
OBJECTS: dict[str, Any] = {}
"""Those objects, by their names."""
_PROCESS = secrets.token_hex(4)
"""Part of those names, so that a name saved by another process never refers to an object of this one."""


def name_object(thing: Any) -> str:
    """Return the import path of a class or function, or a name that refers to it in this process alone."""
    path = f"{getattr(thing, '__module__', None)}.{getattr(thing, '__qualname__', None)}"
    try:
        if not path.startswith("__main__.") and find(path) is thing:
            return path
    except Exception:  # resolving an invalid path may raise anything
        logger.debug("%s is at no path", thing)
    title = getattr(thing, "__name__", type(thing).__name__)
    known = [name for name, each in OBJECTS.items() if each is thing]
    name = known[0] if known else f"{OF_PYTHON}{title}_{_PROCESS}_{len(OBJECTS)}"
    OBJECTS[name] = thing
    return name


def find(path: str) -> Any:
    """Return the class or function at a dotted path, or one that :func:`name_object` named.

    Raises:
        ValueError: it was named in another process.
        Exception: any that an import raises.
    """
    if not path.startswith(OF_PYTHON):
        return pkgutil.resolve_name(path)
    if path not in OBJECTS:
        raise ValueError(
            f"{path} was an object of another Python process: put it into a module, and name that in its place, such "
            "as world._target_=my_module.MyWorld."
        )
    return OBJECTS[path]


def search_present_folder() -> None:
    """Allow imports of the user's own modules from the folder in which the command was given."""
    folder = CALL.get().folder
    if folder is not None and folder not in sys.path:
        sys.path.append(folder)


def build(config: Mapping[str, Any], *arguments: Any) -> Any:
    """Build the object of ``{_target_: PATH, **named}``, as ``PATH(*arguments, **named)``.

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
    """Return a value with its targets built."""
    if isinstance(value, Mapping):
        return build(value) if "_target_" in value else {name: _built(each) for name, each in value.items()}
    return [_built(each) for each in value] if isinstance(value, list) else value
