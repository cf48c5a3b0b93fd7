"""Others' worlds for us, as batched TorchRL environments: Gymnasium's, VMAS's, PettingZoo's."""

from __future__ import annotations

import importlib.util

GROUP = "agents"
"""Name of the one group that all agents of a world are in."""


def require(package: str, extra: str) -> None:
    """Raise ValueError, saying what to install, if a package is not there."""
    if importlib.util.find_spec(package) is None:
        raise ValueError(f"{package} is not installed: pip install 'torchrl-agent[{extra}]'.")
