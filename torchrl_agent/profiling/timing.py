"""How long a call takes, measured the same way by every benchmark."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

WARMUP = 4
"""Calls before the clock starts: first calls compile, and CUDA graphs are captured at the fourth."""
ROUNDS = 3
LARGE = 1024
"""Rows and columns of the matrices whose product the machine's peak is measured with; a few of them fit into caches."""


def seconds_per_call(function: Callable[[], Any], seconds: float, device: torch.device) -> float:
    """Of the fastest of three rounds that take at least ``seconds`` together, after warming up."""
    for _ in range(WARMUP):
        function()
    best = float("inf")
    for _ in range(ROUNDS):
        synchronize(device)
        start, calls = time.perf_counter(), 0
        while calls == 0 or time.perf_counter() - start < seconds / ROUNDS:
            function()
            calls += 1
            synchronize(device)
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def peak_flops(seconds: float, device: torch.device) -> float:
    """Operations per second of a product of two large matrices in float32, with the threads and in the precision of
    products that the process has: what the machine is good for at most.
    """
    matrix = torch.rand(LARGE, LARGE, device=device)
    return 2 * LARGE**3 / seconds_per_call(lambda: matrix @ matrix, seconds, device)


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
