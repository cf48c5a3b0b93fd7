"""The oracle, and scenes: Arena worlds whose state is written by hand."""

import dataclasses
import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from tensordict import TensorDict

from envs import ArenaEnv
from envs.arena.rules import RULES

NEVER = 10_000
"""A cooldown that no test waits for."""


def load_oracle():
    """The module next to this file; by hand, because test folders are no packages."""
    path = Path(__file__).with_name("oracle.py")
    spec = importlib.util.spec_from_file_location("arena_oracle", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def oracle():
    return load_oracle()


class Scene:
    """Equal Arena worlds, empty but for one quiet spawner in a corner; read through world 0.

    The shaping's trackers have not started (so shaping is 0 in the first step) and nothing spawns or shoots unless told
    to.
    """

    def __init__(self, style=1, observation="classic", num_envs=1, seed=0, spawner=True, **changes):
        rules = dataclasses.replace(RULES["classic"], **changes)
        self.env = ArenaEnv(num_envs, seed=seed, style=style, observation=observation, rules=rules)
        self.env.reset()
        self.put(self.state.spawners, health=0.0, cooldown=NEVER)
        if spawner:
            self.spawner(1500, 1200)

    @property
    def state(self):
        return self.env.state

    @staticmethod
    def put(record, slot=slice(None), **values):
        for name, value in values.items():
            getattr(record, name)[slot] = value

    def ship(self, **values):
        self.put(self.state.ship, **values)

    def progress(self, **values):
        self.put(self.state.progress, **values)

    def enemy(self, x, y, health=10.0, speed=0.0, cooldown=NEVER):
        """Add an enemy at the end of the list; at rest and peaceful unless told otherwise."""
        slot = len(self.enemies)
        self.put(self.state.enemies, slot, x=x, y=y, health=health, speed=speed, cooldown=cooldown)

    def spawner(self, x, y, health=100.0, cooldown=NEVER):
        slot = len(self.spawners)
        self.put(self.state.spawners, slot, x=x, y=y, health=health, cooldown=cooldown)

    def shot(self, x, y, vx=0.0, vy=0.0, life=50):
        """Add a projectile of the ship, younger than those added before."""
        for value in self.state.shots:
            value.copy_(value.roll(-1, 0))
        self.put(self.state.shots, -1, x=x, y=y, vx=vx, vy=vy, life=life)

    def enemy_shot(self, x, y, vx=0.0, vy=0.0, life=50):
        slot = self.state.enemy_shots.life.shape[0] - 1 - len(self.enemy_shots)
        self.put(self.state.enemy_shots, slot, x=x, y=y, vx=vx, vy=vy, life=life)

    def start_trackers(self):
        """As after a quiet step: the shaping compares with the state as it is now."""
        total = self.state.spawners.health.sum(0)
        self.progress(tracking=1, tracked_spawners=total, tracked_health=self.state.ship.health)

    def rows(self, record, alive, world=0):
        """The living rows of a record, in list order, as tuples with names."""
        kept = alive[:, world].nonzero().flatten().tolist()
        return [type(record)(*(value[row, world].item() for value in record)) for row in kept]

    @property
    def enemies(self):
        return self.rows(self.state.enemies, self.state.enemies.health > 0)

    @property
    def spawners(self):
        return self.rows(self.state.spawners, self.state.spawners.health > 0)

    @property
    def shots(self):
        return self.rows(self.state.shots, self.state.shots.life > 0)

    @property
    def enemy_shots(self):
        return self.rows(self.state.enemy_shots, self.state.enemy_shots.life > 0)

    def step(self, action=0):
        """Play one step; the ``next`` tensordict."""
        actions = torch.full(self.env.batch_size, action, dtype=torch.int64)
        return self.env.step(TensorDict({"action": actions}, batch_size=self.env.batch_size))["next"]

    def look(self):
        """The observation of world 0 now, as a list (or one per group)."""
        seen = {key: value[0].tolist() for key, value in self.env.observe(self.state).items()}
        return seen["observation"] if len(seen) == 1 else seen


@pytest.fixture
def scene():
    """Make a :class:`Scene`."""
    return Scene
