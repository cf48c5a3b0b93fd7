"""Transforms of rewards and returns for learning: a team's return, potential-based shaping."""

from __future__ import annotations

import torch
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.data import Composite, Unbounded
from torchrl.envs import Compose, EnvBase, TransformedEnv
from torchrl.envs.transforms import Transform

from torchrl_agent.core import keys


class TeamReturn(Transform):
    """Compute the return of a world of several agents: the mean of theirs, which TorchRL's ``RewardSum`` sums up.

    Args:
        group: key of the agents' tensordict.
    """

    def __init__(self, group: str) -> None:
        key = keys.TORCHRL_STATISTICS[keys.EPISODE_RETURN]
        super().__init__(in_keys=[(group, key)], out_keys=[key])

    def transform_observation_spec(self, observation_spec: Composite) -> Composite:
        """Add the spec of the world's return [..., 1]."""
        observation_spec[self.out_keys[0]] = Unbounded((*observation_spec.shape, 1), device=observation_spec.device)
        return observation_spec

    def _apply_transform(self, returns: Tensor) -> Tensor:
        return returns.mean(-2)

    def _reset(self, tensordict: TensorDictBase, tensordict_reset: TensorDictBase) -> TensorDictBase:
        return self._call(tensordict_reset)


class PotentialShaping(Transform):
    """Add ``scale * (gamma * potential' - potential)`` to rewards, which changes no optimal policy (Ng, Harada and
    Russell 1999) as long as ``gamma`` is the learner's discount; :func:`check_shaping` checks that.

    The potential after a terminal step counts as 0.

    Args:
        potential: key of the potential, [..., 1].
        reward: key of the reward, [..., 1].
        gamma: the learner's discount.
        scale: weight of the shaping.
    """

    keeps_ends = True
    """True as the transform does not change the ends of episodes (see ``envs/base/transformed.py``)."""

    def __init__(self, potential: NestedKey, reward: NestedKey, gamma: float, scale: float = 1.0) -> None:
        super().__init__(in_keys=[reward], out_keys=[reward])
        self.potential, self.gamma, self.scale = potential, gamma, scale

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        before, after = tensordict.get(self.potential), next_tensordict.get(self.potential)
        over = next_tensordict.get("terminated")
        over = over.reshape(over.shape[0], *[1] * (after.ndim - 1))
        reward = next_tensordict.get(self.in_keys[0])
        shaped = reward + self.scale * (self.gamma * torch.where(over, 0.0, after) - before)
        return next_tensordict.set(self.out_keys[0], shaped)


def check_shaping(env: EnvBase, gamma: float) -> None:
    """Raise ValueError if a world's potential-based shaping has another discount than the learner."""
    while isinstance(env, TransformedEnv):
        parts = env.transform if isinstance(env.transform, Compose) else [env.transform]
        for part in parts:
            if isinstance(part, PotentialShaping) and part.gamma != gamma:
                raise ValueError(
                    f"potential-based shaping has gamma {part.gamma} but the learner has {gamma}: shaping with another "
                    "discount changes the task, use the same."
                )
        env = env.base_env
