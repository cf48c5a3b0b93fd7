"""Messages from one process of a training to another, of tensors on the CPU."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed
from torch.utils._pytree import tree_map

FRAMES, TICKETS, WORLDS = 1, 2, 3
"""Kinds of messages."""
WHILE_IT_LIVES = timedelta(days=30)
"""Longest wait of an actor for the learner, which may evaluate, or save, for longer than any rollout takes."""


class Outbox:
    """Messages in flight, which must stay in memory until they are sent.

    Args:
        size: largest number of messages in flight.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._sent: deque[tuple[distributed.Work, Tensor]] = deque()

    def send(self, message: Tensor, ranks: Iterable[int], kind: int) -> None:
        """Begin to send a tensor on the CPU; waits only if more than ``size`` messages are in flight."""
        self._sent += [(distributed.isend(message, rank, tag=kind), message) for rank in ranks]
        self.wait(self._size)

    def wait(self, left: int = 0) -> None:
        """Wait until at most ``left`` messages are in flight."""
        while len(self._sent) > left:
            self._sent.popleft()[0].wait()


def send(value: Any, rank: int, kind: int, mail: Outbox) -> None:
    """Begin to send tensors and plain values."""
    file = io.BytesIO()
    torch.save(value, file)
    contents = torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)
    mail.send(torch.tensor([len(contents)]), [rank], kind)
    mail.send(contents, [rank], kind)


def receive(rank: int, kind: int) -> Any:
    """Wait for tensors and plain values."""
    size = torch.empty(1, dtype=torch.int64)
    distributed.irecv(size, rank, tag=kind).wait()
    contents = torch.empty(int(size), dtype=torch.uint8)
    distributed.irecv(contents, rank, tag=kind).wait()
    return torch.load(io.BytesIO(contents.numpy().tobytes()), weights_only=True)


def wait(work: distributed.Work) -> None:
    """Wait for a message of the learner, :data:`WHILE_IT_LIVES`."""
    work.wait(WHILE_IT_LIVES)


def on_cpu(values: Any) -> Any:
    """Tensors, or dicts of them, on the CPU."""
    return tree_map(lambda value: value.cpu() if isinstance(value, Tensor) else value, values)


def pack(values: Iterable[Tensor]) -> Tensor:
    """Tensors as one row of bytes on the CPU."""
    rows = [value.detach().contiguous().reshape(-1).view(torch.uint8).cpu() for value in values]
    return torch.cat(rows)


def unpack(packed: Tensor, values: Iterable[Tensor]) -> None:
    """Write packed bytes into tensors of the same shapes and types, in their order."""
    begin = 0
    for value in values:
        end = begin + value.numel() * value.element_size()
        contents = packed[begin:end].clone()  # begins where any type may
        value.copy_(contents.view(value.dtype).view(value.shape))
        begin = end
