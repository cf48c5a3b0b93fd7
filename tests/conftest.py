"""For all tests."""

import pytest
import torch


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
