"""Gymnasium's worlds as batched TorchRL worlds, with true last observations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torchrl.envs import GymEnv


class VectorGymEnv(GymEnv):
    """:class:`~torchrl.envs.GymEnv` whose ``num_envs`` worlds step in this process and are reset by TorchRL.

    TorchRL 0.14.1 builds Gymnasium 1.x vector environments that reset themselves one step late: the last observation
    of an episode is lost, and a frame in which nothing is played follows it. Here neither happens, and small worlds
    such as CartPole step faster because no processes exchange messages.

    Args:
        env_name: Gymnasium's id, such as ``CartPole-v1``.
        num_envs: number of worlds.
        **kwargs: arguments of :class:`~torchrl.envs.GymEnv`.
    """

    def __init__(self, env_name: str, num_envs: int = 1, **kwargs: Any) -> None:
        kwargs.setdefault("categorical_action_encoding", True)
        super().__init__(env_name, num_envs=num_envs, **kwargs)

    def _async_env(self, makers: Sequence[Callable], **kwargs: Any) -> SyncVectorEnv:
        return SyncVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED, **kwargs)
