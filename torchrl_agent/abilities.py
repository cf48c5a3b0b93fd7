"""What a world can do beyond TorchRL's ``EnvBase``, asked of worlds that nobody here wrote without disturbing them."""

from __future__ import annotations

from typing import Any

from torchrl.envs import EnvBase, TransformedEnv


def ability(env: EnvBase, name: str, default: Any = None) -> Any:
    """An attribute or method of a world or of what it is wrapped in, or ``default``.

    Only what a class or the object itself declares is asked for. ``hasattr`` would ask a
    :class:`~torchrl.envs.ParallelEnv`'s processes, which end when the attribute is missing.

    Args:
        env: any TorchRL environment.
        name: such as ``draw``, ``players`` or ``branchless`` (see ``docs/worlds.md``).
        default: for worlds that do not have it.
    """
    while True:
        if name in vars(env) or hasattr(type(env), name):
            return getattr(env, name, default)
        if not isinstance(env, TransformedEnv):
            return default
        env = env.base_env


def world_name(env: EnvBase) -> str:
    """Name of a world's class, whatever transforms it has."""
    return world_name(env.base_env) if isinstance(env, TransformedEnv) else type(env).__name__
