"""Records of the configurations that this user trusts on this machine, kept outside of runs.

A record is a file whose name is the hash of a configuration's text. A changed configuration has another hash, and a
copy of a run on another machine has no record there.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from pathlib import Path

logger = logging.getLogger(__name__)


def records() -> Path | None:
    """Return the folder of the records: in XDG_CONFIG_HOME, else in the system's folder of user settings; None for a
    user without a home folder.
    """
    below_home = {"win32": "AppData/Roaming", "darwin": "Library/Application Support"}.get(sys.platform, ".config")
    try:
        above = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / below_home)
    except RuntimeError:
        return None
    return above / "torchrl_agent" / "trusted" if above.is_absolute() else None


def is_recorded(text: str) -> bool:
    """True if the user trusts a configuration with this text."""
    folder = records()
    try:
        return folder is not None and (folder / _hash(text)).is_file()
    except OSError:
        return False


def record(text: str, path: Path) -> None:
    """Record trust in a configuration with this text; ``path`` is written for a reader of the records."""
    folder = records()
    try:
        if folder is None:
            raise OSError("there is no home folder")
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / _hash(text)).write_text(f"{path.absolute()}\n", encoding="utf-8")
    except OSError as error:
        logger.warning("%s is not remembered as trusted (%s): give --trust again when you open it", path, error)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
