"""Gymnasium's wrappers by their names, as configurations list them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium.error import DependencyNotInstalled

WRAPPERS = (
    *("AddRenderObservation", "AddWhiteNoise", "AtariPreprocessing", "ClipAction", "ClipReward", "DelayObservation"),
    *("DiscretizeAction", "DiscretizeObservation", "DtypeObservation", "FilterObservation", "FlattenObservation"),
    *("FrameStackObservation", "GrayscaleObservation", "MaxAndSkipObservation", "NormalizeObservation"),
    *("NormalizeReward", "ObstructView", "RepeatAction", "RescaleAction", "RescaleObservation", "ReshapeObservation"),
    *("ResizeObservation", "StickyAction", "TimeAwareObservation", "TimeLimit"),
)
"""Those that are made of numbers and words, and that write nothing."""


def wrapped(env: gymnasium.Env, wrappers: Sequence[str | Mapping[str, Any]]) -> gymnasium.Env:
    """A world in wrappers, the first one innermost.

    Args:
        env: the world.
        wrappers: names of ``gymnasium.wrappers``, or ``{name: arguments}``.

    Raises:
        ValueError: a wrapper is unknown, its arguments do not fit, or what it is put on is not what it is for.
    """
    for name, arguments in map(_named, wrappers):
        try:
            env = getattr(gymnasium.wrappers, name)(env, **arguments)
        except DependencyNotInstalled as error:
            raise ValueError(f"the wrapper {name} needs another package: {' '.join(str(error).split())}") from None
        except Exception as error:  # of many kinds, AssertionError among them
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(
                f"the wrapper {name} cannot be put here ({reason}): check its arguments, and the order of the wrappers."
            ) from None
    return env


def _named(wrapper: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A wrapper's name and arguments."""
    name, arguments = (wrapper, {}) if isinstance(wrapper, str) else next(iter(wrapper.items()), ("", {}))
    if not isinstance(wrapper, str) and len(wrapper) != 1:
        raise ValueError(f"wrappers holds {dict(wrapper)}: give each wrapper as NAME or {{NAME: {{ARGUMENT: VALUE}}}}.")
    if name not in WRAPPERS:
        raise ValueError(f"there is no wrapper {name!r}: use some of {', '.join(WRAPPERS)}.")
    return name, dict(arguments or {})
