"""The folder in which PyTorch keeps compiled code, so that the next process finds it: the user's own, of bounded size,
instead of a temporary one that is gone after a restart.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
MOST_BYTES = 4 << 30
"""Largest size; beyond it the files that were written first are deleted until half of it is left."""


def cache_folder() -> Path:
    """Return the folder of compiled code: PyTorch's variable if it is set, else one in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get(VARIABLE) or Path(base) / "torchrl_agent" / "compiled").expanduser()


def keep_compiled_code() -> None:
    """Let PyTorch keep compiled code in :func:`cache_folder`, which is shrunk if it has become too large; where the
    folder cannot be made PyTorch uses its own.
    """
    if os.environ.get(VARIABLE):
        return
    folder = cache_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        shrink(folder, MOST_BYTES)
    except OSError:
        return
    os.environ[VARIABLE] = str(folder)


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


def shrink(folder: Path, most: int) -> None:
    """Delete the oldest files until half of ``most`` bytes are left, if there are more than ``most``."""
    files = files_of(folder)
    total = sum(size for _, size, _ in files)
    if total <= most:
        return
    for _, size, path in files:
        path.unlink(missing_ok=True)
        total -= size
        if total <= most // 2:
            return


def clear() -> None:
    """Delete all compiled code."""
    shutil.rmtree(cache_folder(), ignore_errors=True)
