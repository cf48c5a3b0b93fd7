"""Base of the policies that read a world's record, and the random policy for every world."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from tensordict.utils import NestedKey
from torch import Tensor

from envs.base.contract import GROUP


class Player(TensorDictModuleBase):
    """Policy of one world, whose record it reads: call it while the world is in the state to act on.

    Args:
        env: the world that is stepped; it may be wrapped in transforms.
        in_keys: keys that it reads besides.
    """

    def __init__(self, env: Any, *in_keys: NestedKey) -> None:
        super().__init__()
        self.__dict__["env"] = env  # not as a submodule: a policy does not own its world
        self.in_keys, self.out_keys = list(in_keys), [env.action_key]


class RandomPlayer(Player):
    """Policy of uniformly random actions: legal ones, where the world shows an ``action_mask``."""

    def __init__(self, env: Any) -> None:
        mask = "action_mask" if env.num_agents is None else (GROUP, "action_mask")
        super().__init__(env, *([mask] if mask in env.observation_spec.keys(True) else []))

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the actions."""
        spec = self.env.full_action_spec[self.env.action_key]
        if not self.in_keys:
            return tensordict.set(self.env.action_key, spec.rand())
        several = getattr(spec, "nvec", None)
        heads = [spec.space.n] if several is None else several.reshape(-1, spec.shape[-1])[0].tolist()
        masks = tensordict.get(self.in_keys[0]).split(heads, -1)
        choices = [any_legal(mask) for mask in masks]
        return tensordict.set(self.env.action_key, choices[0] if several is None else torch.stack(choices, -1))


def any_legal(mask: Tensor) -> Tensor:
    """Draw a legal value from each row of a mask [..., values], int64 [...]."""
    return torch.where(mask, torch.rand(mask.shape, device=mask.device), -1.0).argmax(-1)
