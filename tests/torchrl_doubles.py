"""Doubles of TorchRL's classes whose simulators are not installed where tests run: the same arguments and kinds of
specs, a counter as their world. (JumanjiEnv and BraxEnv were tried with the real packages once.)
"""

from __future__ import annotations

import torch
from tensordict import TensorDict
from torchrl.data import Bounded, Categorical, Composite, OneHot, Unbounded
from torchrl.envs import EnvBase


class Double(EnvBase):
    """Shows the step in the shape of ``observation_spec`` and ends after five."""

    def __init__(self, batch_size, device, shown):
        super().__init__(device=device or "cpu", batch_size=torch.Size(batch_size))
        batch = self.batch_size
        self.observation_spec = Composite(shown, shape=batch).expand(batch)
        self.reward_spec = Unbounded((*batch, 1))
        flag = Categorical(2, (*batch, 1), dtype=torch.bool)
        self.done_spec = Composite(done=flag, terminated=flag.clone(), shape=batch)
        self.steps = torch.zeros(batch, dtype=torch.int32)

    def shown(self):
        zeros = self.observation_spec.zero()
        for key in zeros.keys(True, True):
            value = zeros.get(key)
            steps = self.steps.reshape(*self.batch_size, *[1] * (value.ndim - len(self.batch_size)))
            zeros.set(
                key, value.new_ones(value.shape) if value.dtype == torch.bool else (value + steps).to(value.dtype)
            )
        return zeros

    def _reset(self, tensordict=None, **kwargs):
        rows = None if tensordict is None else tensordict.get("_reset", None)
        over = torch.ones_like(self.steps, dtype=torch.bool) if rows is None else rows.reshape(self.batch_size)
        self.steps = torch.where(over, 0, self.steps)
        return self.shown()

    def _step(self, tensordict):
        self.steps = self.steps + 1
        done = (self.steps == 5).unsqueeze(-1)
        more = {"reward": torch.ones_like(done, dtype=torch.float32), "done": done, "terminated": done.clone()}
        return self.shown().update(TensorDict(more, self.batch_size))

    def _set_seed(self, seed):
        pass


class JumanjiEnv(Double):
    """As Snake: a grid with its channels last, a mask, the key of its random numbers and a count of its own."""

    def __init__(self, env_name, **kwargs):
        batch = kwargs.pop("batch_size", [])
        shown = {"grid": Unbounded((12, 12, 5)), "action_mask": Bounded(0, 1, (4,), dtype=torch.bool)}
        state = Composite(key=Unbounded((2,), dtype=torch.int32), step_count=Unbounded((), dtype=torch.int32))
        shown |= {"step_count": Unbounded((), dtype=torch.int32), "state": state}
        super().__init__(batch, kwargs.pop("device", None), {k: v.expand(*batch, *v.shape) for k, v in shown.items()})
        self.action_spec = OneHot(4, (*self.batch_size, 4))
        assert not kwargs


class BraxEnv(Double):
    """As Ant: float32 vectors to see and to do, and the simulator's state."""

    def __init__(self, env_name, **kwargs):
        batch = kwargs.pop("batch_size", [])
        super().__init__(batch, kwargs.pop("device", None), {"observation": Unbounded((*batch, 27))})
        self.action_spec = Bounded(-1, 1, (*self.batch_size, 8))
        assert not kwargs


class MujocoPlaygroundEnv(BraxEnv):
    """The same with its configuration's arguments."""

    def __init__(self, env_name, *, config=None, config_overrides=None, **kwargs):
        super().__init__(env_name, **kwargs)


class MJLabEnv(Double):
    """Always a batch, of ``num_envs``; groups of observations."""

    def __init__(self, task_id, *, num_envs=None, device=None):
        groups = {"actor": Unbounded((num_envs, 6)), "critic": Unbounded((num_envs, 9))}
        super().__init__([num_envs], device, groups)
        self.action_spec = Unbounded((num_envs, 3))


def isaac_lab_world(num_envs, device="cpu"):
    """Double of an ``IsaacLabWrapper`` as a user's function makes it, which shows one group, ``policy``."""
    env = Double([num_envs], device, {"policy": Unbounded((num_envs, 48))})
    env.action_spec = Bounded(-100, 100, (num_envs, 12))
    return env
