"""The folder in which PyTorch keeps compiled code, so that the next process finds it: the user's own, of bounded size,
instead of a temporary one that is gone after a restart.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
MOST_BYTES = 4 << 30
"""Largest size; beyond it the files that were written first are deleted until half of it is left."""


def own_folder() -> Path:
    """Return this project's folder of compiled code in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "torchrl_agent" / "compiled"


def cache_folder() -> Path:
    """Return the folder of compiled code: PyTorch's variable if it is set, else :func:`own_folder`."""
    chosen = os.environ.get(VARIABLE)
    return Path(chosen) if chosen else own_folder()


def keep_compiled_code() -> None:
    """Let PyTorch keep compiled code in :func:`own_folder`; where that cannot be made, or another is chosen, in its
    own.
    """
    if os.environ.get(VARIABLE):
        return
    try:
        own_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return
    os.environ[VARIABLE] = str(own_folder())


def files_of(folder: Path) -> list[tuple[float, int, Path]]:
    """Time of writing, bytes and path of each file in a folder, the oldest first."""
    found = []
    for path in folder.rglob("*"):
        try:
            status = path.lstat()
        except FileNotFoundError:  # another process has finished with it
            continue
        if not path.is_dir():
            found.append((status.st_mtime, status.st_size, path))
    return sorted(found)


def shrink(most: int = MOST_BYTES) -> None:
    """Delete the oldest files of :func:`own_folder` until half of ``most`` bytes are left, if there are more than
    ``most``.
    """
    files = files_of(own_folder())
    total = sum(size for _, size, _ in files)
    if total <= most:
        return
    for _, size, path in files:
        if total <= most // 2:
            return
        with suppress(OSError):  # another process deletes too
            path.unlink()
        total -= size


def clear() -> None:
    """Delete all compiled code.

    Raises:
        ValueError: it is kept in a folder of the user's choice, which may hold other things.
    """
    if cache_folder() != own_folder():
        raise ValueError(f"{VARIABLE} names {cache_folder()}, which is not this project's own: delete it yourself.")
    shutil.rmtree(own_folder(), ignore_errors=True)
