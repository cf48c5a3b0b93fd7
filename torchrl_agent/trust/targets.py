"""From a name in a configuration to what it names: the only way, taken after the configuration was checked."""

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


OF_PYTHON = "python:"
"""Beginning of the names of objects that this process gave, and no import finds."""
OBJECTS: dict[str, Any] = {}
"""Those objects, by their names."""
_PROCESS = secrets.token_hex(4)
"""Part of those names, so that what another process has saved never means an object of this one."""


def name_object(thing: Any) -> str:
    """The path at which a class or function is found, or a name that stands for it in this process alone."""
    path = f"{getattr(thing, '__module__', None)}.{getattr(thing, '__qualname__', None)}"
    try:
        if not path.startswith("__main__.") and find(path) is thing:
            return path
    except Exception:  # whatever resolving a path that is none raises
        logger.debug("%s is at no path", thing)
    title = getattr(thing, "__name__", type(thing).__name__)
    known = [name for name, each in OBJECTS.items() if each is thing]
    name = known[0] if known else f"{OF_PYTHON}{title}_{_PROCESS}_{len(OBJECTS)}"
    OBJECTS[name] = thing
    return name


def find(path: str) -> Any:
    """The class or function at a dotted path, or one that :func:`name_object` named.

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
