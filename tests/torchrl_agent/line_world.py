"""Worlds with just enough specs to make an agent for them; never played."""

import torch
from torchrl.data import Binary, Categorical, Composite, Unbounded
from torchrl.envs import EnvBase


class Cabinet(EnvBase):
    """World whose observations and actions the test chooses; by default four actions are possible."""

    def __init__(self, observations, action=None, num_envs=3):
        super().__init__(batch_size=[num_envs], device="cpu")
        self.observation_spec = Composite(**observations, shape=(num_envs,))
        self.action_spec = Categorical(4, shape=(num_envs,)) if action is None else action
        self.reward_spec = Unbounded((num_envs, 1))

    def _reset(self, tensordict=None):
        return self.observation_spec.zero()

    def _step(self, tensordict):
        raise NotImplementedError

    def _set_seed(self, seed):
        pass


class Line(Cabinet):
    """One number is observed (and a mask, if wanted) and two actions are possible."""

    def __init__(self, num_envs=1, action=None, masked=False):
        observations = {"observation": Unbounded((num_envs, 1))}
        if masked:
            observations["action_mask"] = Binary(2, shape=(num_envs, 2), dtype=torch.bool)
        super().__init__(observations, Categorical(2, shape=(num_envs,)) if action is None else action, num_envs)


def arm(action):
    """A world of two rows in which three numbers are observed and the action is of any kind."""
    return Cabinet({"observation": Unbounded((2, 3))}, action, num_envs=2)
