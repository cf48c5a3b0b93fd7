"""For all tests."""

import gc
import importlib.util
import signal
import sys

import pytest
import torch

if importlib.util.find_spec("pandas") is None:
    sys.modules["pandas"] = None  # TensorDict looks for it on the disk with every tensor that it is given


def pytest_collection_finish(session):
    """What was imported stays: looking at all of it for garbage, time and again, is a tenth of what tests cost."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """A test that is interrupted inside ``no_grad`` may leave gradients off: that is not for the next one to find."""
    torch.set_grad_enabled(True)


@pytest.fixture(autouse=True)
def interruptible():
    """A shell starts what runs in its background deaf to Ctrl-C, and Python then leaves it so."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """Small batches gain nothing from threads, and on a busy machine threads that wait for each other cost minutes; so
    here, and in the processes that a test starts, such as a notebook's kernel.
    """
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
