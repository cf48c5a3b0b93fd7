"""Progress of long work: a bar on a terminal, periodic lines elsewhere.

Both are shown if this module's logger is enabled for INFO; the command enables that unless ``--quiet``.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

SECONDS = 20.0
"""Time between two lines."""

T = TypeVar("T")
log = logging.getLogger(__name__)


class Progress:
    """Progress display on standard error, which results are not written to.

    Args:
        unit: name of a step, in the singular.
        name: name of the work, where it is one of several.
        done: number of steps already done.
        leave: keep the bar when the work has ended; else it is removed.
    """

    def __init__(self, total: float, unit: str, name: str = "", done: float = 0, leave: bool = True) -> None:
        shown, terminal = log.isEnabledFor(logging.INFO), sys.stderr.isatty()
        bar = shown and terminal
        shape = {"unit_scale": True, "disable": not bar, "leave": leave}
        self._bar = tqdm(total=total, initial=done, desc=name or None, unit=unit, **shape)
        self._lines = shown and not terminal
        self._total, self._unit, self._name, self._done = total, unit, name, done
        self._said_done, self._said_at = done, time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the display."""
        self._bar.close()

    def reach(self, done: float, figures: dict[str, str] | None = None) -> None:
        """Report that ``done`` steps are done; ``figures`` are shown beside them."""
        self._done = done
        if self._lines and time.monotonic() - self._said_at >= SECONDS:
            log.info("%s", self._line(figures or {}))
            self._said_done, self._said_at = done, time.monotonic()
        elif not self._bar.disable:
            self._bar.set_postfix(figures or {}, refresh=False)
            self._bar.update(done - self._bar.n)

    def say(self, text: str) -> None:
        """Show a text, on a terminal until the next step is done."""
        if self._lines:
            log.info("%s", text)
        elif not self._bar.disable:
            self._bar.set_postfix_str(text)

    def over(self, work: Iterable[T]) -> Iterator[T]:
        """Yield the pieces of work, one step each."""
        with self:
            for done, piece in enumerate(work, 1):
                yield piece
                self.reach(done)

    def _line(self, figures: dict[str, str]) -> str:
        """Return a line of steps done, rate since the last line, figures, and time left at that rate."""
        rate = (self._done - self._said_done) / max(time.monotonic() - self._said_at, 1e-9)
        parts = [f"{self._done:,.0f} of {self._total:,.0f} {self._unit}s"]
        parts += [f"{format(rate, ',.0f' if rate >= 100 else '.3g')} {self._unit}s/s"]
        parts += [f"{name} {value}" for name, value in figures.items()]
        if rate > 0:
            parts.append(f"{tqdm.format_interval((self._total - self._done) / rate)} left")
        return (f"{self._name}: " if self._name else "") + ", ".join(parts)
