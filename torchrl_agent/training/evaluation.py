"""How good a policy is: the first episode of each world, fixed seeds, frozen statistics."""

from __future__ import annotations

from typing import Any

import torch
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.envs import EnvBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_agent import keys
from torchrl_agent.training.rollout import episode_entries

CHECK_EVERY = 50
"""Steps between two looks at whether every world has finished."""


@torch.no_grad()
def evaluate_policy(
    policy: TensorDictModuleBase, env: EnvBase, deterministic: bool = True, max_steps: int = 100_000
) -> dict[str, Tensor]:
    """Play until every world has finished its first episode; statistics of those episodes by name, each [N] on the CPU.

    Taking the first episode of each world, rather than the first N episodes to finish, keeps long episodes from being
    left out.

    Raises:
        ValueError: a world did not finish within ``max_steps``.
    """
    entries = episode_entries(env)
    mode = ExplorationType.DETERMINISTIC if deterministic else ExplorationType.RANDOM
    root = env.reset()
    finished = torch.zeros(env.batch_size, dtype=torch.bool, device=env.device)
    table = torch.zeros(*env.batch_size, len(entries), device=env.device)
    with set_exploration_type(mode):
        for step in range(max_steps):
            played, root = env.step_and_maybe_reset(policy(root))
            following = played.get(keys.NEXT)
            done = following.get(keys.DONE).squeeze(-1)
            values = torch.stack([following.get(key).squeeze(-1).float() for key in entries.values()], -1)
            table = torch.where((done & ~finished).unsqueeze(-1), values, table)
            finished = finished | done
            if step % CHECK_EVERY == CHECK_EVERY - 1 and bool(finished.all()):
                break
    if bool(finished.all()):
        return dict(zip(entries, table.cpu().unbind(-1), strict=True))
    raise ValueError(
        f"{int((~finished).sum())} worlds did not finish an episode within {max_steps} steps: the world needs a time "
        "limit."
    )


def summarise(episodes: dict[str, Tensor]) -> dict[str, Any]:
    """The figures people quote: ``return_mean``, ``return_std``, ``length_mean``, ``episodes``, ``win_rate`` and other
    means.
    """
    returns = episodes[keys.EPISODE_RETURN].double()
    summary: dict[str, Any] = {
        "episodes": returns.numel(),
        "return_mean": returns.mean().item(),
        "return_std": returns.std(correction=0).item(),
        "length_mean": episodes[keys.EPISODE_LENGTH].double().mean().item(),
    }
    if keys.EPISODE_WIN in episodes:
        summary["win_rate"] = episodes[keys.EPISODE_WIN].double().mean().item()
    known = (keys.EPISODE_RETURN, keys.EPISODE_LENGTH, keys.EPISODE_WIN, keys.EPISODE_COMPLETE, keys.EPISODE_STAGE)
    summary.update({name: value.double().mean().item() for name, value in episodes.items() if name not in known})
    return summary
