"""The oracle, for tests that compare with it."""

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def oracle():
    """The module next to this file; loaded by hand, because test folders are no packages."""
    path = Path(__file__).with_name("oracle.py")
    spec = importlib.util.spec_from_file_location("arena_oracle", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
