"""The oracle, and a field in which nothing is alive."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from envs import ArenaEnv
from envs.toolkit.records import map_record


@pytest.fixture(scope="session")
def oracle():
    """The module next to this file; loaded by hand, because test folders are no packages."""
    path = Path(__file__).with_name("oracle.py")
    spec = importlib.util.spec_from_file_location("arena_oracle", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def state():
    """Of two worlds in which nothing is alive, the ship neither."""
    state = map_record(torch.clone, ArenaEnv(num_envs=2).state)
    for value in (state.spawners.health, state.enemies.health, state.shots.life, state.enemy_shots.life):
        value.zero_()
    state.ship.health.zero_()
    return state
