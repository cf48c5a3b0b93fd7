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
    *("NoopStart", "NormalizeReward", "ObstructView", "RepeatAction", "RescaleAction", "RescaleObservation"),
    *("ReshapeObservation", "ResizeObservation", "StickyAction", "TimeAwareObservation", "TimeLimit"),
)
"""Wrappers whose arguments are numbers and words, and that write no files."""


USUAL = {
    "noop_start": ("NoopStart", "most"),
    "max_and_skip": ("MaxAndSkipObservation", "skip"),
    "sticky_actions": ("StickyAction", "repeat_action_probability"),
    "gray": ("GrayscaleObservation", ""),
    "resize": ("ResizeObservation", "shape"),
    "frame_stack": ("FrameStackObservation", "stack_size"),
}
"""Keys for the usual wrappers, in the order of their application, with the argument that receives the value."""


class NoopStart(gymnasium.Wrapper):
    """Wrapper that begins episodes with a random number of no-op steps (Mnih et al. 2015, Methods).

    Args:
        env: a world whose action 0 does nothing.
        most: largest number of these steps; the smallest is 1.
    """

    def __init__(self, env: gymnasium.Env, most: int) -> None:
        super().__init__(env)
        self.most = most

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the world and return the observation after the no-op steps."""
        observation, info = self.env.reset(seed=seed, options=options)
        for _ in range(int(self.unwrapped.np_random.integers(1, self.most + 1))):
            observation, _, terminated, truncated, info = self.env.step(0)
            if terminated or truncated:
                observation, info = self.env.reset(options=options)
        return observation, info


def usual_wrappers(arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """Remove the keys of :data:`USUAL` from a world's arguments and return the wrappers that they stand for."""
    found = []
    for key, (name, argument) in USUAL.items():
        value = arguments.pop(key, None)
        if value:
            found.append({name: {argument: value} if argument else {}})
    return found


def wrapped(env: gymnasium.Env, wrappers: Sequence[str | Mapping[str, Any]]) -> gymnasium.Env:
    """Apply wrappers to a world, the first one innermost.

    Args:
        wrappers: names of ``gymnasium.wrappers``, or ``{name: arguments}``.

    Raises:
        ValueError: a wrapper is unknown, its arguments do not fit, or it cannot wrap the world in this place.
    """
    for name, arguments in map(_named, wrappers):
        try:
            kind = NoopStart if name == "NoopStart" else getattr(gymnasium.wrappers, name)
            env = kind(env, **arguments)
        except DependencyNotInstalled as error:
            raise ValueError(f"the wrapper {name} needs another package: {' '.join(str(error).split())}") from None
        except Exception as error:  # of many kinds, AssertionError among them
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(
                f"the wrapper {name} cannot be put here ({reason}): check its arguments, and the order of the wrappers."
            ) from None
    return env


def _named(wrapper: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a wrapper's name and arguments."""
    name, arguments = (wrapper, {}) if isinstance(wrapper, str) else next(iter(wrapper.items()), ("", {}))
    if not isinstance(wrapper, str) and len(wrapper) != 1:
        raise ValueError(f"wrappers holds {dict(wrapper)}: give each wrapper as NAME or {{NAME: {{ARGUMENT: VALUE}}}}.")
    if name not in WRAPPERS:
        raise ValueError(f"there is no wrapper {name!r}: use some of {', '.join(WRAPPERS)}.")
    return name, {key: tuple(value) if isinstance(value, list) else value for key, value in (arguments or {}).items()}
