"""Time of a call, measured the same way by every benchmark."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

WARMUP = 4
"""Number of calls before the clock starts: the first ones compile, and CUDA graphs are captured at the fourth."""
ROUNDS = 3
LARGE = 1024
"""Rows and columns of the matrices whose product measures the machine's peak; a few of them fit into caches."""


def seconds_per_call(function: Callable[[], Any], seconds: float, device: torch.device) -> float:
    """Return the seconds per call of the fastest of three rounds of at least ``seconds`` in sum, after a warm-up."""
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
    """Return the machine's peak: operations per second of a product of two large float32 matrices, with the process's
    threads and precision of products.
    """
    matrix = torch.rand(LARGE, LARGE, device=device)
    return 2 * LARGE**3 / seconds_per_call(lambda: matrix @ matrix, seconds, device)


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished all submitted work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
