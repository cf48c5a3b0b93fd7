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
"""Names of files until they are complete: those that remain were being written by a killed process."""


class HeldError(ValueError):
    """Another process, or another training of this one, holds a run's folder."""


class Locks:
    """Run folders that no other training may write in, until they are closed or the process has ended in any way."""

    def __init__(self) -> None:
        self._files = ExitStack()
        self._held: set[Path] = set()
        self.closed = False

    def __enter__(self) -> Locks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def hold(self, folder: Path) -> None:
        """Hold an existing folder; holding it again has no effect.

        Raises:
            HeldError: another training holds it.
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
        """Release all of them."""
        self.closed = True
        self._held.clear()
        self._files.close()


def clean(folder: Path) -> None:
    """Delete what killed processes had not finished writing in a run's folder, which is held."""
    for place in (folder, folder / "checkpoints"):
        for path in place.iterdir():
            if path.is_file() and _UNFINISHED.fullmatch(path.name):
                path.unlink()


def _locked(file: IO[bytes]) -> bool:
    """Lock an open file; True if it was free, and also if the file system has no locks."""
    if sys.platform == "win32":
        import msvcrt  # Windows alone has it

        file.seek(2**30)  # beyond the end: a locked byte could not be read by other processes
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
