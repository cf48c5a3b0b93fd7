"""An Arena, and a PPO, in which one rank fails."""

import os
import signal
import time

from envs import ArenaEnv
from torchrl_agent.algorithms import PPO


class FaultyArena(ArenaEnv):
    """Fails once, in torchrun's first attempt.

    Args:
        fault: what happens: ``raise``, ``infinite`` (a reward), ``sleep`` (20 s) or ``kill``.
        when: at which moment: ``step``, ``report`` (episodes are reported after the updates) or ``save``.
        at: how many such moments go well before.
        rank: which one fails.
    """

    def __init__(self, *args, fault="none", when="step", at=0, rank=1, **kwargs):
        super().__init__(*args, **kwargs)
        here = os.environ.get("RANK") == str(rank) and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
        self.fault, self.when, self.left = fault if here else "none", when, at

    def moment(self, name):
        if self.fault == "none" or name != self.when:
            return False
        self.left -= 1
        if self.left != -1:
            return False
        if self.fault == "raise":
            raise ValueError("the ship sank")
        if self.fault == "sleep":
            time.sleep(20)
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    def _step(self, tensordict):
        stepped = super()._step(tensordict)
        if self.moment("step") and self.fault == "infinite":
            stepped.get("reward").fill_(float("inf"))
        return stepped

    def update_curriculum(self, finished, group=None):
        self.moment("report")
        return super().update_curriculum(finished, group)

    def state_dict(self, *args, **kwargs):
        self.moment("save")
        return super().state_dict(*args, **kwargs)


class FaultyPPO(PPO):
    """Kills rank 1 of torchrun's first attempt as its sixth epoch begins, before the numbers of an update meet."""

    epochs = 0

    def draws(self, count):
        self.epochs += 1
        here = os.environ.get("RANK") == "1" and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
        if here and self.epochs == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().draws(count)
