"""Means over the processes of one machine by memory that they share: nobody has to be woken up, as through a socket."""

from __future__ import annotations

import mmap
import os
import platform
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

ACTIVE_SECONDS = 0.02
"""Who waits looks again and again for so long, then only every :data:`PAUSE_SECONDS`."""
PAUSE_SECONDS = 0.0005
LINE = 64
"""Bytes that belong to one processor at a time: what two write lies so far apart."""
ORDERED = ("x86_64", "AMD64")
"""Processors on which all see what another has written in the order in which it did."""


class LostError(RuntimeError):
    """Another process has ended, or did not come in time."""


class SharedMean:
    """The mean of a row of numbers of each process of this machine, the same bits in all.

    A turn is: write the own row, then the number of the turn; wait until all have written theirs; add up all rows.
    Rows of even and of odd turns lie apart: who writes its row of the next turn but one knows, as all have come to the
    next, that all have read this one.

    Args:
        pages: memory of :func:`size_of` bytes that all share, zeros at first.
        number: of this process.
        processes: an open ``pidfd`` of every other one, by its number.
        length: of a row, in float32.
        seconds: that a process waits for the others.
    """

    def __init__(self, pages: mmap.mmap, number: int, processes: dict[int, int], length: int, seconds: float) -> None:
        count = len(processes) + 1
        self._number, self._processes, self._seconds, self._turn = number, processes, seconds, 0
        self._turns = memoryview(pages)[: count * LINE].cast("q")
        rows = torch.frombuffer(pages, dtype=torch.float32, offset=count * LINE)
        self._rows = rows.view(2, count, -1)[..., :length]

    def __call__(self, row: Tensor) -> Tensor:
        """The mean of this row (float32 [length] on a CPU) and the others'.

        Raises:
            LostError: another process has ended, or did not come in time.
        """
        self._turn += 1
        rows = self._rows[self._turn % 2]
        rows[self._number].copy_(row)
        self._turns[self._place(self._number)] = self._turn
        for other in self._processes:
            self._wait_for(other)
        return rows.mean(0)

    def leave(self) -> None:
        """Tell the others that this process does not come again, by a number below 0."""
        self._turns[self._place(self._number)] = ~self._turn
        _close(self._processes)

    def _place(self, number: int) -> int:
        return number * LINE // self._turns.itemsize

    def _wait_for(self, other: int) -> None:
        turns, place, start = self._turns, self._place(other), time.monotonic()
        while (turn := turns[place]) < self._turn:
            if ~turn >= self._turn:  # it has come, and left since
                return
            waited = time.monotonic() - start
            if waited < ACTIVE_SECONDS:
                os.sched_yield()
                continue
            if turn < 0 or _ended(self._processes[other]):
                raise LostError(f"process {other} has ended.")
            if waited > self._seconds:
                raise LostError(f"process {other} did not come within {self._seconds:g} s.")
            time.sleep(PAUSE_SECONDS)


def size_of(count: int, length: int) -> int:
    """Bytes that so many processes with rows of this length share."""
    return count * LINE + 2 * count * -(-4 * length // LINE) * LINE


def share_mean(exchange: Callable[[Any], list[Any]], number: int, length: int, seconds: float) -> SharedMean | None:
    """What all processes make together; None in all of them if they cannot share memory, such as on two machines.

    Args:
        exchange: what each process gives, by their numbers; called by all of them the same number of times.
        number: of this process.
        length: of a row.
        seconds: that a process waits for the others.
    """
    everyone = exchange((_machine(), os.getpid()))
    size = size_of(len(everyone), length)
    if None in everyone[0] or any(machine != everyone[0][0] for machine, _ in everyone):
        return None
    memory = _create(size) if number == 0 else None
    # where there is no memory, all look for it in vain, and so all go on to the next exchange
    found = _open(Path(f"/proc/{everyone[0][1]}/fd/{exchange(memory)[0]}"), size, [pid for _, pid in everyone], number)
    fine = all(exchange(found is not None))
    if memory is not None:
        os.close(memory)
    if fine and found is not None:
        return SharedMean(found[0], number, found[1], length, seconds)
    _close(found[1] if found is not None else {})
    return None


def _ended(process: int) -> bool:
    """Whether there is no such process any more, by its open ``pidfd``."""
    ends = select.poll()  # select.select takes no descriptor above 1023
    ends.register(process, select.POLLIN)
    return bool(ends.poll(0))


def _create(size: int) -> int | None:
    """A descriptor of so many bytes of memory; None if this machine gives none."""
    try:
        memory = os.memfd_create("rows")
    except OSError:
        return None
    try:
        os.ftruncate(memory, size)
    except OSError:
        os.close(memory)
        return None
    return memory


def _open(path: Path, size: int, pids: list[int], number: int) -> tuple[mmap.mmap, dict[int, int]] | None:
    """Memory at a path, and every other process; None if there is something that may not be seen."""
    processes: dict[int, int] = {}
    try:
        with path.open("r+b") as file:
            pages = mmap.mmap(file.fileno(), size)
        for other, pid in enumerate(pids):
            if other != number:
                processes[other] = os.pidfd_open(pid)
    except OSError:
        _close(processes)
        return None
    return pages, processes


def _close(processes: dict[int, int]) -> None:
    for process in processes.values():
        os.close(process)


def _machine() -> str | None:
    """What processes have in common that share memory and see each other's numbers; None if it is not known how."""
    if platform.machine() not in ORDERED or not hasattr(os, "pidfd_open") or not hasattr(os, "memfd_create"):
        return None
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{started} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None
