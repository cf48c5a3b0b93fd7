"""Entry points of ``gymnasium.make`` and ``gymnasium.make_vec`` for the ids of
envs/adapters/gymnasium_registration.py.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from gymnasium.vector import AutoresetMode

from envs.adapters.gymnasium_single import GymnasiumEnv, check_render_mode
from envs.adapters.gymnasium_vector import GymnasiumVectorEnv
from envs.base.arguments import checked_seed
from envs.base.world import World


def make_single(world: str, render_mode: str | None = "rgb_array", **options: Any) -> GymnasiumEnv:
    """Make one world by name, with its own keyword arguments."""
    check_render_mode(render_mode)
    return GymnasiumEnv(_make_world(world, 1, options), render_mode)


def make_vector(
    world: str,
    num_envs: int = 1,
    render_mode: str | None = "rgb_array",
    autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
    **options: Any,
) -> GymnasiumVectorEnv:
    """Make ``num_envs`` worlds by name, with their own keyword arguments."""
    check_render_mode(render_mode)
    vector = GymnasiumVectorEnv(_make_world(world, num_envs, options), autoreset_mode)
    vector.render_mode = render_mode
    return vector


def _make_world(name: str, num_envs: int, options: dict[str, Any]) -> World:
    """Make the world, with one agent where their number can be chosen.

    Raises:
        TypeError: an option is unknown.
        ValueError: it is out of its range, or there would be several agents.
    """
    make = getattr(importlib.import_module(f"envs.{name}"), f"{name.capitalize()}Env")
    known = [
        option for option in inspect.signature(vars(make)["__init__"]).parameters if option not in ("self", "num_envs")
    ]
    known.append("compile")  # TorchRL takes it before the world is made
    for option in options:
        if option not in known:
            more = " (for several worlds use gymnasium.make_vec)" if option == "num_envs" else ""
            # worded as Python does: TorchRL's GymEnv looks for it where it offers its own frameskip
            raise TypeError(f"unexpected keyword argument {option!r}: the {name} takes {', '.join(known)}{more}.")
    if "num_agents" in known:
        options = {"num_agents": 1, **options}
    return make(num_envs=num_envs, **{**options, "seed": checked_seed(options.get("seed", 0))})
