"""A film of a policy playing, for worlds that can be drawn (that have ``draw(world) -> image``)."""

from __future__ import annotations

from pathlib import Path

import torch
from tensordict.nn import TensorDictModuleBase
from torchrl.envs import EnvBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from envs.film import grid, write_film
from torchrl_agent import keys


@torch.no_grad()
def film_policy(
    env: EnvBase, policy: TensorDictModuleBase, path: Path, steps: int = 900, every: int = 3, deterministic: bool = True
) -> Path | None:
    """Play all worlds of ``env`` side by side and write the film; None if the world cannot be drawn.

    Args:
        env: a world with few rows.
        policy: writes actions.
        path: ``.gif``, or ``.mp4`` with the extra ``video``.
        steps: longest film, in steps of the world; it ends early when every world has finished an episode.
        every: draw each so many steps.
        deterministic: take the most likely action.
    """
    if not hasattr(env, "draw"):
        return None
    mode = ExplorationType.DETERMINISTIC if deterministic else ExplorationType.RANDOM
    root, frames, worlds = env.reset(), [], range(env.batch_size[0])
    finished = torch.zeros(env.batch_size, dtype=torch.bool, device=env.device)
    with set_exploration_type(mode):
        for step in range(steps):
            if step % every == 0:
                frames.append(grid([env.draw(world) for world in worlds]))
            played, root = env.step_and_maybe_reset(policy(root))
            finished |= played.get((keys.NEXT, keys.DONE)).squeeze(-1)
            if bool(finished.all()):
                break
    return write_film(frames, path)
