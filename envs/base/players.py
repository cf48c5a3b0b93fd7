"""Random policy for every world."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase

from envs.base.contract import GROUP


class RandomPlayer(TensorDictModuleBase):
    """Policy of uniformly random actions: legal ones, where the world shows an ``action_mask``."""

    def __init__(self, env: Any) -> None:
        super().__init__()
        self.__dict__["env"] = env  # not as a submodule: a policy does not own its world
        mask = "action_mask" if env.num_agents is None else (GROUP, "action_mask")
        self.in_keys = [mask] if mask in env.observation_spec.keys(True) else []
        self.out_keys = [env.action_key]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the actions."""
        spec = self.env.full_action_spec[self.env.action_key]
        if not self.in_keys:
            return tensordict.set(self.env.action_key, spec.rand())
        several = getattr(spec, "nvec", None)
        heads = [spec.space.n] if several is None else several.reshape(-1, spec.shape[-1])[0].tolist()
        masks = tensordict.get(self.in_keys[0]).split(heads, -1)
        choices = [torch.where(mask, torch.rand(mask.shape, device=mask.device), -1.0).argmax(-1) for mask in masks]
        return tensordict.set(self.env.action_key, choices[0] if several is None else torch.stack(choices, -1))
