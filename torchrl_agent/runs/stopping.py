"""Asking a run to stop: Ctrl-C and SIGTERM wait until the iteration that is under way has finished."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Ctrl-C; and what SLURM, ``docker stop`` and ``kill`` send first."""

log = logging.getLogger(__name__)


class DelayedSignals:
    """A context in which the first of :data:`SIGNALS` is only noted, as ``received``; the second one acts at once.

    Afterwards they act as before; :meth:`deliver` lets the one that was noted do what it would have done. Signals that
    were ignored stay ignored, and outside of Python's main thread, which alone gets signals, nothing is changed.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> DelayedSignals:
        self._before = {number: handler for number in SIGNALS if (handler := _replaceable(number)) is not None}
        for number in self._before:
            signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def deliver(self) -> None:
        """Raise the signal that was noted, if any: by default KeyboardInterrupt, or the end of the process."""
        number, self.received = self.received, None
        if number is not None:
            signal.raise_signal(number)

    def _note(self, number: int, frame: object) -> None:
        if self.received is None:
            self.received = number
            log.warning("stopping once this iteration has finished; a second signal stops at once")
        else:
            self.__exit__()
            signal.raise_signal(number)


class Terminated(BaseException):
    """SIGTERM has come; like KeyboardInterrupt it is no error for callers to catch on the way."""


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM raises Terminated in here, as Ctrl-C raises KeyboardInterrupt."""

    def terminate(number: int, frame: object) -> NoReturn:
        raise Terminated

    before = _replaceable(signal.SIGTERM)
    if before is not None:
        signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _replaceable(number: int) -> Any:
    """The handler of a signal, if Python may replace it and put it back; None for signals that are ignored, too."""
    if threading.current_thread() is not threading.main_thread():
        return None
    handler = signal.getsignal(number)
    return None if handler == signal.SIG_IGN else handler
