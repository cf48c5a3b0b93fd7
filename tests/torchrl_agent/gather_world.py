"""Gather: fetch food on a grid of 5 x 5 cells; each piece that is eaten appears anew at a random place."""

from typing import NamedTuple

import torch
from torch import Tensor
from torchrl.data import Bounded, Categorical, Composite

from envs import World

SIDE, MAX_STEPS = 5, 40
STREAM_AGENT, STREAM_FOOD = 0, 1


class Settings(NamedTuple):
    """All worlds are alike."""


class State(NamedTuple):
    """Agent and food, [2, N] each; what the last step gave, [N]."""

    place: Tensor
    food: Tensor
    eaten: Tensor
    step: Tensor


class GatherEnv(World):
    """Five actions, to stay or to go; 1 for each piece of food. Everything that matters is in sight."""

    def __init__(self, num_envs=1, *, device=None, seed=0):
        super().__init__(num_envs, device=device, seed=seed)
        seen = Bounded(-1.0, 1.0, (num_envs, 4), device=self.device)
        actions = Categorical(5, shape=(num_envs,), dtype=torch.int64, device=self.device)
        self._build(Composite(observation=seen, shape=(num_envs,), device=self.device), actions, midway=False)

    def settings(self):
        return Settings()

    def spawn(self, settings, chance, midway):
        place = torch.floor(chance.uniform(STREAM_AGENT, 2) * SIDE)
        food = torch.floor(chance.uniform(STREAM_FOOD, 2) * SIDE)
        zero = torch.zeros_like(place[0])
        return State(place, food, zero, zero)

    def advance(self, state, action, chance):
        dx = (action == 1).float() - (action == 2).float()
        dy = (action == 3).float() - (action == 4).float()
        place = (state.place + torch.stack([dx, dy])).clamp(0, SIDE - 1)
        eaten = (place == state.food).all(0).float()
        new = torch.floor(chance.uniform(STREAM_FOOD, 2) * SIDE)
        food = torch.where(eaten.bool(), new, state.food)
        return State(place, food, eaten, state.step + 1)

    def observe(self, state):
        return {"observation": torch.cat([state.place, state.food]).movedim(0, -1) / SIDE}

    def outcome(self, state):
        over = state.step >= MAX_STEPS
        return state.eaten, torch.zeros_like(over), over
