"""Time of a call, measured the same way by every benchmark."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

WARMUP = 4
"""Number of calls before the clock starts: the first ones compile, and CUDA graphs are captured at the fourth."""
ROUNDS = 3


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


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished all submitted work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
