"""A world of Gymnasium's that notes which copies of it are open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import gymnasium
import numpy as np
from gymnasium.error import DependencyNotInstalled
from gymnasium.spaces import Box, Discrete

NAME = "Counting-v0"
OPEN: list[Counting] = []
MADE: list[int] = []
"""A number for each that was ever made."""


class Counting(gymnasium.Env):
    """Shows how often it was stepped; draws it as the brightness of its picture, 20 a step."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012

    def __init__(self, render_mode=None, action_space=None, drawn=True, paints=np.uint8):
        self.render_mode, self.drawn, self.paints = render_mode, drawn, paints
        self.observation_space = Box(0, 100, (2,), np.float32)
        self.action_space = Discrete(3, start=5) if action_space is None else action_space
        self.actions = []
        OPEN.append(self)
        MADE.append(len(MADE))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.actions.append(action)
        self.count += 1
        return np.full(2, self.count, np.float32), 1.0, False, self.count == 9, {}

    def render(self):
        if not self.drawn:
            raise DependencyNotInstalled("pencil is not installed")
        return None if self.paints is None else np.full((4, 6, 3), 20 * self.count, self.paints)

    def close(self):
        OPEN.remove(self)


@contextmanager
def registered() -> Iterator[None]:
    """The world by its name, none of it open."""
    gymnasium.register(NAME, Counting, order_enforce=False)
    OPEN.clear()
    MADE.clear()
    try:
        yield
    finally:
        del gymnasium.registry[NAME]
