"""Asking a run to stop: Ctrl-C and SIGTERM wait until the iteration that is under way has finished."""

from __future__ import annotations

import logging
import signal
import threading
from typing import Any

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
        if threading.current_thread() is threading.main_thread():
            found = {number: signal.getsignal(number) for number in SIGNALS}
            self._before = {
                number: handler for number, handler in found.items() if handler not in (None, signal.SIG_IGN)
            }
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
            log.warning("stopping when this iteration has finished; asked once more, at once")
        else:
            self.__exit__()
            signal.raise_signal(number)
