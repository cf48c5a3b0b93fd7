"""For all tests."""

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Small batches gain nothing from threads, and on a busy machine threads that wait for each other cost minutes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
