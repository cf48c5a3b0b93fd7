"""The oracle, for tests that compare with it."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Small batches gain nothing from threads, and on a busy machine threads that wait for each other cost minutes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def oracle():
    """The module next to this file; loaded by hand, because test folders are no packages."""
    path = Path(__file__).with_name("oracle.py")
    spec = importlib.util.spec_from_file_location("arena_oracle", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
