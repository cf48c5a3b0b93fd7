"""Check that ``envs`` is this project's package: another folder or package of that name may shadow or replace it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from torchrl_agent.core.errors import HiddenPackageError

OURS = Path(__file__).resolve().parents[2] / "envs"
"""Folder of the worlds: beside this package, in a clone as well as installed."""


def check_envs() -> None:
    """Raise HiddenPackageError if ``import envs`` would import anything but this project's worlds."""
    found = foreign_worlds()
    if found is not None:
        raise HiddenPackageError(
            f"{found} hides this project's package 'envs': rename it, or keep its folder off Python's path "
            "(PYTHONPATH, or the folder that Python is started in); if pip installed it, uninstall 'envs' and install "
            "torchrl-agent anew."
        )


def foreign_worlds() -> Path | None:
    """Return the path that shadows this project's worlds, or was installed over them; None if nothing does."""
    spec = importlib.util.find_spec("envs")
    if spec is None:
        return None
    places = [Path(place).resolve() for place in spec.submodule_search_locations or []]
    if OURS not in places:
        return Path(spec.origin) if spec.origin else places[0]
    first = OURS / "__init__.py"
    return None if "ArenaEnv" in first.read_text(encoding="utf-8") else first
