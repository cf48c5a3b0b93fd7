"""A world with just enough specs to make an agent for it, for arithmetic by hand."""

import torch
from torchrl.data import Binary, Categorical, Composite, Unbounded
from torchrl.envs import EnvBase


class Line(EnvBase):
    """One number is observed (and a mask, if wanted) and two actions are possible; never played."""

    def __init__(self, num_envs=1, action=None, masked=False):
        super().__init__(batch_size=[num_envs], device="cpu")
        self.observation_spec = Composite(observation=Unbounded((num_envs, 1)), shape=(num_envs,))
        if masked:
            self.observation_spec["action_mask"] = Binary(2, shape=(num_envs, 2), dtype=torch.bool)
        self.action_spec = Categorical(2, shape=(num_envs,)) if action is None else action
        self.reward_spec = Unbounded((num_envs, 1))

    def _reset(self, tensordict=None):
        raise NotImplementedError

    def _step(self, tensordict):
        raise NotImplementedError

    def _set_seed(self, seed):
        pass
