"""Optional attributes and methods of worlds beyond TorchRL's ``EnvBase``, read without side effects on any world."""

from __future__ import annotations

from typing import Any

import numpy as np
from torchrl.envs import EnvBase, TransformedEnv

from torchrl_agent.core import ranks


def ability(env: EnvBase, name: str, default: Any = None) -> Any:
    """Return an attribute or method of a world, or of the environment inside its transforms, or ``default``.

    Only attributes that the class or the object itself declares are read. ``hasattr`` would query the processes of
    a :class:`~torchrl.envs.ParallelEnv`, which end when the attribute is missing.

    Args:
        env: any TorchRL environment.
        name: such as ``draw``, ``players`` or ``branchless`` (see ``docs/howto/own_world.md``).
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


# --- seeds -----------------------------------------------------------------------------------------------------------


def world_seed(env: EnvBase, seed: int, *begun_at: int) -> int:
    """Return the seed to give a world, such that no other seed leads to the same games.

    Worlds of Gymnasium, PettingZoo and TorchRL seed row ``i`` with the given seed plus ``i``, so that neighboring
    seeds share all games but one: they are given a hash. Branchless worlds hash every row themselves.

    Args:
        env: the world that will be given the seed.
        seed: of a training or an evaluation.
        begun_at: frames after which a training resumes with new games, if it does.
    """
    if ability(env, "branchless", False) and not begun_at:
        return seed
    hashed = np.random.SeedSequence(seed, spawn_key=begun_at).generate_state(1)
    return int(hashed[0]) >> 2  # room for a row's number below 2^31, where some worlds' seeds end


def own_seed(env: EnvBase, seed: int, *begun_at: int) -> int:
    """Return :func:`world_seed` for the worlds of this rank, which are rows of a set that all ranks step: worlds with
    a ``take_shard`` know which rows, others are given the seed of their first row.
    """
    first = 0 if ability(env, "take_shard") is not None else ranks.rank() * env.batch_size[0]
    return world_seed(env, seed, *begun_at) + first
