"""What has moved is found where it was for one release, with a warning that says where it is."""

from __future__ import annotations

import functools
import importlib
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar, cast

from typing_extensions import override

MODULES = {
    f"envs.{old}": [f"envs.{new}" for new in news]
    for old, news in {
        "chance": ["toolkit.chance"],
        "drawing": ["toolkit.drawing"],
        "film": ["toolkit.film"],
        "geometry": ["toolkit.geometry"],
        "gym": ["adapters.gymnasium_vector"],
        "gym_actions": ["adapters.gymnasium_actions"],
        "gym_make": ["adapters.gymnasium_make"],
        "gym_single": ["adapters.gymnasium_single"],
        "gym_spaces": ["adapters.gymnasium_spaces"],
        "multi_agent": ["libs.vmas", "libs.pettingzoo"],
        "pettingzoo": ["adapters.pettingzoo"],
        "raster": ["toolkit.raster"],
        "records": ["toolkit.records"],
        "registration": ["adapters.gymnasium_registration"],
        "sb3": ["adapters.sb3"],
        "transformed_world": ["transformed"],
        "vector_gym": ["libs.gymnasium"],
    }.items()
}
CLASSES = {
    "PettingZooWorld": "VectorPettingZooEnv",
    "TransformedWorld": "BranchlessTransformedEnv",
    "VmasWorld": "VectorVmasEnv",
}


def install(modules: Mapping[str, Sequence[str]], classes: Mapping[str, str]) -> None:
    """Let modules be imported by their old names.

    Args:
        modules: for each old name the modules that hold what was in it.
        classes: new names by old ones, where they differ.
    """
    sys.meta_path.append(MovedModules(modules, classes))


def look_up(old: str, places: Sequence[str], name: str, classes: Mapping[str, str] = CLASSES) -> Any:
    """What was ``old.name``."""
    new = classes.get(name, name)
    for place in places:
        module = importlib.import_module(place)
        if hasattr(module, new):
            warnings.warn(f"{old}.{name} is now {place}.{new}.", DeprecationWarning, stacklevel=3)
            return getattr(module, new)
    raise AttributeError(f"module {old!r} has no attribute {name!r}")


class MovedModules(MetaPathFinder, Loader):
    """Finds and makes modules of old names, which are empty and look up what they are asked for."""

    def __init__(self, modules: Mapping[str, Sequence[str]], classes: Mapping[str, str]) -> None:
        self.modules, self.classes = modules, classes

    @override
    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in self.modules else None

    @override
    def exec_module(self, module: ModuleType) -> None:
        old, places = module.__name__, self.modules[module.__name__]

        def find(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return look_up(old, places, name, self.classes)

        module.__dict__["__getattr__"] = find


Constructor = TypeVar("Constructor", bound=Callable)


def old_arguments(init: Constructor) -> Constructor:
    """A world's constructor that still takes ``device`` and ``seed`` by position, and ``desynchronise`` for what is
    ``desynchronize`` now, with a warning.
    """

    @functools.wraps(init)
    def construct(self: Any, *arguments: Any, **named: Any) -> None:
        first, positional, more = arguments[:1], arguments[1:3], arguments[3:]
        result = ["takes device and seed by keyword: write device=, seed="] if positional else []
        if "desynchronise" in named:
            named["desynchronize"] = named.pop("desynchronise")
            result.append("has desynchronize= for desynchronise=: write it so")
        for old in result:
            warnings.warn(
                f"{type(self).__name__} {old}.",
                DeprecationWarning,
                stacklevel=3 if type(self).__init__ is construct else 2,  # TorchRL's metaclass stands between
            )
        init(self, *first, *more, **dict(zip(("device", "seed"), positional, strict=False)), **named)

    return cast(Constructor, construct)
