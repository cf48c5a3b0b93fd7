"""Gymnasium's worlds as batched TorchRL worlds, with true last observations."""

from __future__ import annotations

import importlib.util
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.error import DependencyNotInstalled
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import DtypeObservation, FlattenObservation, TransformAction
from numpy.typing import NDArray
from torchrl.envs import GymEnv
from typing_extensions import override

from envs.arguments import MOST_OBJECTS, checked_number
from envs.libs import Drawn, picture


class VectorGymEnv(Drawn, GymEnv):
    """:class:`~torchrl.envs.GymEnv` whose ``num_envs`` worlds step in this process and are reset by TorchRL.

    TorchRL 0.14.1 builds Gymnasium 1.x vector environments that reset themselves one step late: the last observation
    of an episode is lost, and a frame in which nothing is played follows it. Here neither happens, and small worlds
    such as CartPole step faster because no processes exchange messages.

    Observations that are not arrays (cards, numbers, several things at once) are flattened into a vector, whole numbers
    as one-hot codes. Discrete actions count from 0, whatever the first one is called in the world.

    Args:
        env_name: Gymnasium's id, such as ``CartPole-v1``; ``module:id`` imports the module first, as POPGym's worlds
            need it: ``popgym:popgym-RepeatPreviousEasy-v0``.
        num_envs: number of worlds.
        shown: numbers of the (vector) observation that agents get to see, such as [0, 2] for CartPole without its
            velocities; None for all.
        **kwargs: arguments of :class:`~torchrl.envs.GymEnv`, such as ``render_mode="rgb_array"``, with which the world
            can be drawn.

    Raises:
        ValueError: the world's package is not installed, or its actions are several things at once.
    """

    def __init__(self, env_name: str, num_envs: int = 1, *, shown: Sequence[int] | None = None, **kwargs: Any) -> None:
        module = env_name.rpartition(":")[0]
        if module and importlib.util.find_spec(module) is None:
            raise ValueError(f"{env_name} is a world of the package {module}, which is not installed: pip install it.")
        self.shown = shown
        kwargs.setdefault("categorical_action_encoding", True)
        super().__init__(env_name, num_envs=checked_number(num_envs, MOST_OBJECTS), **kwargs)
        self.render_mode = self._env.envs[0].render_mode

    @override
    def _draw(self, world: int = 0) -> NDArray[np.uint8]:
        try:
            return picture(self.env_name, self._env.envs[world].render)
        except ValueError as error:
            if isinstance(error.__cause__, DependencyNotInstalled):
                reason = " ".join(str(error.__cause__).split())
                raise ValueError(
                    f"{self.env_name} cannot be drawn: {reason}, or pip install 'torchrl-agent[render]'."
                ) from None
            raise

    def _get_batch_size(self, env: gymnasium.Env) -> torch.Size:
        """TorchRL's, of the one world that it makes to see which arguments the others take."""
        self._template = env
        return super()._get_batch_size(env)

    def _async_env(self, makers: Sequence[Callable], **kwargs: Any) -> SyncVectorEnv:
        self.__dict__.pop("_template").close()
        makers = [partial(_plain, maker) for maker in makers]
        if self.shown is not None:
            makers = [partial(_Shown, maker, list(self.shown)) for maker in makers]
        return SyncVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED, **kwargs)


def _plain(maker: Callable[[], gymnasium.Env]) -> gymnasium.Env:
    """A world that shows an array, and whose discrete actions count from 0 as TorchRL's do."""
    env = maker()
    action = env.action_space
    if not isinstance(action, (Box, Discrete, MultiBinary, MultiDiscrete)):
        env.close()
        raise ValueError(
            f"the actions of {env.spec.id if env.spec else env} are {action}: an agent takes one of several actions, "
            "or a vector of numbers; wrap the world in one that takes that, and register it under an id of its own."
        )
    if isinstance(action, Discrete) and action.start:
        env = TransformAction(env, partial(operator.add, action.start), Discrete(action.n))
    if isinstance(env.observation_space, Box):
        return env
    return DtypeObservation(FlattenObservation(env), np.float32)


class _Shown(gymnasium.ObservationWrapper):
    """A world that shows only some numbers of its vector observation."""

    def __init__(self, maker: Callable[[], gymnasium.Env], shown: list[int]) -> None:
        super().__init__(maker())
        space, self.numbers = self.env.observation_space, shown
        if not isinstance(space, Box) or len(space.shape) != 1 or not set(shown) <= set(range(space.shape[0])):
            raise ValueError(f"shown is {shown} but the observation is {space}: give indices of a vector.")
        self.observation_space = Box(space.low[shown], space.high[shown], dtype=space.dtype)

    def observation(self, observation: NDArray) -> NDArray:
        """The numbers shown."""
        return observation[self.numbers]
