"""Worlds of Gymnasium as users write them: with masks, figures, slow, dear and broken ones."""

from __future__ import annotations

import copy
import os
import time
from contextlib import contextmanager

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

FOUR = Discrete(4)


class Masked(gymnasium.Env):
    """Its only legal action is the number of the step, modulo 4; raises at any other. Says so where ``where`` says."""

    def __init__(self, where="observation", action_space=FOUR, legal=None, render_mode=None):
        self.where, self.action_space, self.legal, self.render_mode = where, action_space, legal, render_mode
        box, mask = Box(-1, 1, (3,)), Box(0, 1, (4,), np.int8)
        self.observation_space = Dict(seen=box, action_mask=mask) if where == "observation" else box
        if where not in ("observation", "info"):
            setattr(self, where, self.mask)

    def mask(self):
        mask = np.zeros(4, np.int8)
        mask[self.count % 4] = 1
        return mask if self.legal is None else np.asarray(self.legal, np.int8)

    def shown(self):
        seen = np.zeros(3, np.float32)
        return {"seen": seen, "action_mask": self.mask()} if self.where == "observation" else seen

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.shown(), {"action_mask": self.mask()} if self.where == "info" else {}

    def step(self, action):
        assert self.mask()[action], f"{action} is illegal"
        self.count += 1
        info = {"action_mask": self.mask()} if self.where == "info" else {}
        return self.shown(), 1.0, False, self.count == 9, info


class TwoHeads(Masked):
    """Of two heads the second may not choose what the step forbids."""

    def __init__(self, **kwargs):
        super().__init__(where="info", action_space=MultiDiscrete([2, 2]), **kwargs)

    def mask(self):
        return np.array([1, 1, self.count % 2, 1 - self.count % 2], np.int8)

    def step(self, action):
        assert action[1] == 1 - self.count % 2
        self.count += 1
        return self.shown(), 1.0, False, self.count == 9, {"action_mask": self.mask()}


class Reporter(gymnasium.Env):
    """Reports figures in ``info``; its steps count what they were repeated for. Ends after ``length`` steps."""

    observation_space, action_space = Box(0, 100, (1,), np.float32), Discrete(2)

    def __init__(self, length=4, render_mode=None):
        self.length, self.render_mode = length, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.count += 1
        over = self.count == self.length
        info = {"speed": self.count, "is_success": over, "text": "words", "many": np.zeros(3)}
        return np.full(1, self.count, np.float32), 1.0, over, False, info

    def render(self):
        return np.full((8, 9, 3), self.count, np.uint8)


class Lengths(Reporter):
    """Episodes of this world are of the length that its seed says: even ones 5 steps, odd ones 20."""

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.length = 5 if seed % 2 == 0 else 20
        return super().reset(seed=seed)


class Broken(gymnasium.Env):
    """Does something wrong once it has been played for ``after`` steps."""

    observation_space, action_space = Box(-1, 1, (3,)), Discrete(2)

    def __init__(self, fault, after=60, render_mode=None):
        self.fault, self.after, self.played, self.render_mode = fault, after, 0, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.fault == "reset":
            return {}["nothing"], {}
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.played += 1
        seen = np.zeros(3, np.float32)
        if self.played > self.after:
            if self.fault == "raises":
                raise ZeroDivisionError
            if self.fault == "dies":
                os._exit(1)
            if self.fault == "hangs":
                time.sleep(60)
            if self.fault == "shape":
                seen = np.zeros(4, np.float32)
            if self.fault == "type":
                seen = np.array(["a", "b", "c"])
        return seen, 0.0, False, False, {}


class Drawn(Reporter):
    """Is drawn, shows what ``seen`` is and takes what ``taken`` is; ids of it are registered by :func:`registered`."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012

    def __init__(self, seen=None, taken=FOUR, render_mode=None):
        super().__init__(length=6, render_mode=render_mode)
        self.observation_space = Box(-1, 1, (3,)) if seen is None else copy.deepcopy(seen)
        self.action_space = taken

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        _, reward, over, cut, info = super().step(action)
        return self.observation_space.sample(), reward, over, cut, info


KINDS = {
    "Vector-v0": {},
    "Picture-v0": {"seen": Box(0, 255, (16, 16, 3), np.uint8)},
    "Parts-v0": {"seen": Dict(camera=Box(0, 255, (16, 16, 3), np.uint8), speed=Box(-1, 1, (2,)))},
    "Numbers-v0": {"taken": Box(-1, 1, (2,))},
    "Heads-v0": {"taken": MultiDiscrete([3, 2])},
    "Mixed-v0": {"taken": Dict(kind=Discrete(3), push=Box(-1, 1, (2,)))},
}
"""Kinds of worlds by what they show and take, by their ids."""


@contextmanager
def registered():
    """These worlds by their ids."""
    for name, options in KINDS.items():
        gymnasium.register(name, Drawn, kwargs=options)
    try:
        yield
    finally:
        for name in KINDS:
            gymnasium.registry.pop(name, None)
