"""Packages that must be imported to register their worlds with Gymnasium, by prefixes of the worlds' ids."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import re

import gymnasium

PACKAGES = (
    (r"ALE/", "ale_py", "atari"),
    (r"MinAtar/", "minatar.gym", "minatar"),
    (r"MiniGrid-|BabyAI-", "minigrid", "minigrid"),
    (
        r"(highway|merge|roundabout|parking|intersection|racetrack|exit|lane-keeping|two-way|u-turn)-",
        "highway_env",
        "cars",
    ),
    (r"(Fetch|HandReach|HandManipulate|PointMaze|AntMaze|Adroit|FrankaKitchen)", "gymnasium_robotics", "robotics"),
    (r"dm_control/", "shimmy", "dm_control"),
    (r"popgym-", "popgym", "popgym"),
)
"""Prefix of an id (regular expression), the module that registers it, and this project's extra with the package."""


def import_package(env_name: str) -> None:
    """Import the package that registers a world, if it is one of :data:`PACKAGES`.

    Raises:
        ValueError: it is not installed; the sentence gives the command.
    """
    for beginning, module, extra in PACKAGES:
        if env_name not in gymnasium.registry and re.match(beginning, env_name):
            package = module.partition(".")[0]
            if importlib.util.find_spec(package) is None:
                raise ValueError(
                    f"{env_name} is a world of the package {package}: pip install 'torchrl-agent[{extra}]'."
                )
            with contextlib.redirect_stderr(io.StringIO()):  # notes for their own developers
                found = importlib.import_module(module)
            if hasattr(found, "register_envs"):
                found.register_envs()
