"""Worlds that cost next to nothing to play, to learn and to resume: every episode has one step."""

import torch
from tensordict import TensorDict
from torchrl.data import Bounded, Categorical, Composite, Unbounded
from torchrl.envs import EnvBase


class OneStep(EnvBase):
    """Something is ``shown``, and the action is worth what :meth:`worth` says."""

    branchless = True

    def __init__(self, num_envs, device, shown, observation, action):
        super().__init__(batch_size=[num_envs], device=device)
        self.register_buffer("shown", shown)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        statistics = Composite({name: Unbounded((num_envs, 1)) for name in ("return", "length")}, shape=(num_envs,))
        self.observation_spec = Composite(observation=observation, episode=statistics, shape=(num_envs,))
        self.action_spec, self.reward_spec = action, Unbounded((num_envs, 1))

    def _observe(self, reward, length):
        episode = {"return": reward, "length": torch.full_like(reward, length)}
        return {"observation": self.observe(), "episode": episode}

    def _reset(self, tensordict=None):
        self.draw()
        return TensorDict(self._observe(torch.zeros(*self.batch_size, 1), 0.0), self.batch_size)

    def _step(self, tensordict):
        self.steps += 1
        reward = self.worth(tensordict["action"])
        done = torch.ones_like(reward, dtype=torch.bool)
        values = {**self._observe(reward, 1.0), "reward": reward, "done": done, "terminated": done.clone()}
        return TensorDict(values, self.batch_size)

    def _set_seed(self, seed):
        torch.manual_seed(seed or 0)


class Naming(OneStep):
    """Naming the number that is shown is worth 1; after ``turns_at`` steps it costs 1 from then on. If it is not
    ``visible``, there is nothing to learn.
    """

    def __init__(self, num_envs=16, device=None, size=3, turns_at=10**6, visible=True):
        self.size, self.turns_at, self.visible = size, turns_at, visible
        shown = torch.zeros(num_envs, dtype=torch.int64)
        super().__init__(num_envs, device, shown, Bounded(0, 1, (num_envs, size)), Categorical(size, shape=(num_envs,)))

    def draw(self):
        self.shown.copy_(torch.randint(self.size, self.batch_size))

    def observe(self):
        return torch.nn.functional.one_hot(self.shown, self.size).float() * self.visible

    def worth(self, action):
        right = (action == self.shown).float().unsqueeze(-1)
        return torch.where(self.steps > self.turns_at, -right, right)


class Copying(OneStep):
    """An action costs its distance from the number in [-1, 1] that is shown: who learns too fast never hits it."""

    def __init__(self, num_envs=16, device=None):
        number = Bounded(-1, 1, (num_envs, 1))
        super().__init__(num_envs, device, torch.zeros(num_envs, 1), number, number.clone())

    def draw(self):
        self.shown.uniform_(-1, 1)

    def observe(self):
        return self.shown.clone()

    def worth(self, action):
        return -(action - self.shown).abs()
