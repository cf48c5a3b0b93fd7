"""A world that costs next to nothing to play, to learn and to resume: episodes of one step, worth 1 for naming the
number that is shown.
"""

import torch
from tensordict import TensorDict
from torchrl.data import Bounded, Categorical, Composite, Unbounded
from torchrl.envs import EnvBase


class Naming(EnvBase):
    """After ``turns_at`` steps, naming it costs 1 from then on. If it is not ``told``, there is nothing to learn."""

    branchless = True

    def __init__(self, num_envs=16, device=None, size=3, turns_at=10**6, told=True):
        super().__init__(batch_size=[num_envs], device=device)
        self.size, self.turns_at, self.told = size, turns_at, told
        self.register_buffer("shown", torch.zeros(num_envs, dtype=torch.int64))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        statistics = Composite({name: Unbounded((num_envs, 1)) for name in ("return", "length")}, shape=(num_envs,))
        self.observation_spec = Composite(
            observation=Bounded(0, 1, (num_envs, size)), episode=statistics, shape=(num_envs,)
        )
        self.action_spec = Categorical(size, shape=(num_envs,))
        self.reward_spec = Unbounded((num_envs, 1))

    def _look(self, reward):
        seen = torch.nn.functional.one_hot(self.shown, self.size).float() * self.told
        return {"observation": seen, "episode": {"return": reward, "length": (reward != 0).float()}}

    def _reset(self, tensordict=None):
        self.shown.copy_(torch.randint(self.size, self.batch_size))
        return TensorDict(self._look(torch.zeros(*self.batch_size, 1)), self.batch_size)

    def _step(self, tensordict):
        self.steps += 1
        worth = torch.where(self.steps > self.turns_at, -1.0, 1.0)
        reward = (worth * (tensordict["action"] == self.shown)).unsqueeze(-1)
        done = torch.ones_like(reward, dtype=torch.bool)
        values = {**self._look(reward), "reward": reward, "done": done, "terminated": done.clone()}
        return TensorDict(values, self.batch_size)

    def _set_seed(self, seed):
        torch.manual_seed(seed or 0)
