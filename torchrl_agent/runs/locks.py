"""Locks on run folders: one process at a time writes in a run, and in each member of a population."""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import IO

LOCK = ".lock"
"""A file that stays where it is as long as its folder does; all else in a run may be replaced."""


_UNFINISHED = re.compile(r"\..+(\.\d+|-[0-9a-f]{32}\.(gif|mp4))")
"""Names of files until they are whole: of those that stay a killed process was writing."""


class HeldError(ValueError):
    """Another process, or another training of this one, holds a run's folder."""


class Locks:
    """Run folders that nobody else may write in, until they are closed or the process has ended in any way."""

    def __init__(self) -> None:
        self._files = ExitStack()
        self._held: set[Path] = set()
        self.closed = False

    def __enter__(self) -> Locks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def hold(self, folder: Path) -> None:
        """Hold a folder that is there; again is no harm.

        Raises:
            HeldError: somebody else holds it.
            ValueError: nothing can be written in it.
        """
        if folder.absolute() in self._held:
            return
        try:
            file = self._files.enter_context((folder / LOCK).open("ab"))
        except OSError as error:
            raise ValueError(
                f"run {folder} cannot be written to ({error.strerror}): make its folder writable, or go on in a copy."
            ) from None
        if not _locked(file):
            raise HeldError(
                f"run {folder} is in use: stop the process that trains it (in Python, close() the generator) first."
            )
        self._held.add(folder.absolute())

    def close(self) -> None:
        """Let go of all of them."""
        self.closed = True
        self._held.clear()
        self._files.close()


def clean(folder: Path) -> None:
    """Take away what processes that were killed had not finished to write in a run's folder, which is held."""
    for place in (folder, folder / "checkpoints"):
        for path in place.iterdir():
            if path.is_file() and _UNFINISHED.fullmatch(path.name):
                path.unlink()


def _locked(file: IO[bytes]) -> bool:
    """Whether the lock on an open file was free, and is ours now; also where the file system knows no locks."""
    if sys.platform == "win32":
        import msvcrt  # Windows alone has it

        file.seek(2**30)  # beyond the end: a locked byte could not be read by anybody else
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    import fcntl  # Unix alone has it

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
