"""Seeds of worlds, far enough apart that no two trainings or evaluations play the same games."""

from __future__ import annotations

import numpy as np
from torchrl.envs import EnvBase

from torchrl_agent import ranks
from torchrl_agent.abilities import ability


def world_seed(env: EnvBase, seed: int, *begun_at: int) -> int:
    """The seed to give a world for games that no other seed has.

    Worlds of Gymnasium, PettingZoo and TorchRL play row ``i`` with the seed that they are given plus ``i``, so that
    neighboring seeds share all games but one: they are given a hash. Branchless worlds hash every row themselves.

    Args:
        env: what will be given it.
        seed: of a training or an evaluation.
        begun_at: frames after which a training goes on with new games, if it does.
    """
    if ability(env, "branchless", False) and not begun_at:
        return seed
    hashed = np.random.SeedSequence(seed, spawn_key=begun_at).generate_state(1)
    return int(hashed[0]) >> 2  # room for a row's number below 2^31, where some worlds' seeds end


def own_seed(env: EnvBase, seed: int, *begun_at: int) -> int:
    """:func:`world_seed` for the worlds of this rank, which are rows of a set that all ranks play: worlds with a
    ``take_part`` know which, others are given the seed of their first row.
    """
    first = 0 if ability(env, "take_part") is not None else ranks.rank() * env.batch_size[0]
    return world_seed(env, seed, *begun_at) + first
