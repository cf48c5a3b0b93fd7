"""For all tests."""

import gc
import importlib.util
import os
import signal
import sys
import tempfile

import pytest
import torch

# Small batches gain nothing from threads, and on a busy machine threads that wait for each other cost minutes; so here,
# in what fixtures of whole files make, and in the processes that a test starts, such as a notebook's kernel.
os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)

# Records of trust and compiled code are not the user's, also in the processes that a test starts.
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(tempfile.gettempdir(), "torchinductor_tests"))
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="torchrl_agent_tests_")

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
def one_thread():
    """A test may choose another number of threads, for itself."""
    yield
    torch.set_num_threads(1)
