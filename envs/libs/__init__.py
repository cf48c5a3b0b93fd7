"""Worlds of other libraries as batched TorchRL environments: Gymnasium's, VMAS's, PettingZoo's."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

GROUP = "agents"
"""Name of the one group that all agents of a world are in."""

LEAST_PIXELS = 64
"""Least length of a picture's longer side [pixels]; smaller pictures are enlarged."""


def require(package: str, extra: str) -> None:
    """Raise ValueError with the command to install a package, if it is missing."""
    if importlib.util.find_spec(package) is None:
        raise ValueError(f"{package} is not installed: pip install 'torchrl-agent[{extra}]'.")


def to_device(array: NDArray, device: torch.device) -> torch.Tensor:
    """Copy an array to a device. To a GPU from pinned memory: the host goes on while the copy runs, and may overwrite
    the array.
    """
    value = torch.from_numpy(array)
    return value.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else value.to(device, copy=True)


class Drawn:
    """Mixin for worlds whose library renders them: they have ``draw`` if made with ``render_mode="rgb_array"``."""

    film_arguments = {"render_mode": "rgb_array"}  # noqa: RUF012
    """Arguments with which a world can be drawn."""
    live_arguments = {"render_mode": "human"}  # noqa: RUF012
    """Arguments with which a world opens a window of its own."""
    render_mode: str | None

    @property
    def draw(self) -> Callable[[int], NDArray[np.uint8]]:
        """Function ``draw(world)`` that returns a picture of one world's present state, uint8 [height, width, 3].

        Raises:
            ValueError: (when called) the world gives no picture, for example because a package or a display is missing.
        """
        if self.render_mode != "rgb_array":
            raise AttributeError("a world that was made without render_mode='rgb_array' has no draw.")
        return self._draw

    def _draw(self, world: int = 0) -> NDArray[np.uint8]:
        raise NotImplementedError


def picture(name: str, render: Callable[..., Any], *arguments: Any) -> NDArray[np.uint8]:
    """Return a picture by a world's own ``render(*arguments)``, uint8 [height, width, 3].

    Raises:
        ValueError: it gives no picture; the sentence gives the reason.
    """
    try:
        drawn = np.asarray(render(*arguments))
    except Exception as error:  # of many kinds: a package or a display is missing
        reason = " ".join(str(error).split())
        fix = "set MUJOCO_GL to egl or osmesa where there is no display" if "OpenGL" in reason else "film another world"
        raise ValueError(f"{name} cannot be drawn ({type(error).__name__}: {reason}): {fix}.") from error
    if drawn.dtype.kind == "f" and drawn.ndim >= 2 and drawn.min() >= 0 and drawn.max() <= 1:  # as MinAtar's
        drawn = (drawn * 255).astype(np.uint8)
    if drawn.ndim == 2:
        drawn = np.stack([drawn] * 3, -1)
    if drawn.dtype == np.uint8 and drawn.ndim == 3 and max(drawn.shape[:2]) < LEAST_PIXELS:
        factor = -(-LEAST_PIXELS // max(drawn.shape[:2]))
        drawn = drawn.repeat(factor, 0).repeat(factor, 1)
    if drawn.dtype != np.uint8 or drawn.ndim != 3 or drawn.shape[-1] != 3:
        raise ValueError(
            f"{name} cannot be drawn: its render gives {drawn.dtype} of shape {drawn.shape}, no picture uint8 [height, "
            "width, 3]."
        )
    return drawn
