"""PPO of rsl_rl in our CartPole, with a force instead of a push to one of two sides: it knows continuous actions alone.

``python -m benchmarks.gpu.rsl_ppo`` prints its figures as JSON.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import sys
import time
import types
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from envs.toolkit.chance import seed_chance
from examples.own_world import MAX_STEPS, CartPoleEnv, State
from torchrl_agent.core.devices import use_device
from torchrl_agent.profiling.timing import seconds_per_call

sys.modules.setdefault("git", types.ModuleType("git"))  # its logger imports it, and nothing is logged here


class Worlds:
    """CartPoleEnv as rsl_rl wants its worlds: a step is one compiled function.

    Args:
        num_envs: number of worlds.
        device: their device.
        eager: True not to compile.
    """

    num_actions, max_episode_length = 1, MAX_STEPS

    def __init__(self, num_envs: int, device: torch.device, eager: bool) -> None:
        self.num_envs, self.device, self.cfg = num_envs, device, dict[str, Any]()
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self.env = CartPoleEnv(num_envs, device=device)
        self.state, self.chance = self.env.state, seed_chance(0, num_envs, device)
        self._advance = self._following if eager else torch.compile(self._following, dynamic=False)

    def _following(self, state: State, chance: Any, action: Tensor) -> tuple[State, Any, Tensor, Tensor, Tensor]:
        chance = chance.tick()
        state = self.env.advance(state, (action.clamp(-1, 1) + 1) / 2, chance)
        reward, fallen, late = self.env.outcome(state)
        fresh = self.env.spawn(None, chance, False)
        state = State(*(torch.where(fallen | late, new, old) for new, old in zip(fresh, state, strict=True)))
        return state, chance, reward, fallen | late, late

    def get_observations(self) -> TensorDict:
        """Return what the worlds show."""
        return TensorDict({"policy": self.env.observe(self.state)["observation"]}, [self.num_envs], device=self.device)

    def step(self, action: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Tensor]]:
        """Take one step in all worlds; those that end begin anew."""
        self.state, self.chance, reward, done, late = self._advance(self.state, self.chance, action[:, 0])
        return self.get_observations(), reward, done, {"time_outs": late}


def settings(steps: int, minibatches: int) -> dict[str, Any]:
    """Return rsl_rl's settings with the hyperparameters of our row."""
    network = {"class_name": "MLPModel", "hidden_dims": [64, 64], "activation": "tanh"}
    distribution = {"class_name": "GaussianDistribution", "init_std": 1.0}
    return {
        "num_steps_per_env": steps,
        "save_interval": sys.maxsize,
        "check_for_nan": False,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": {**network, "distribution_cfg": distribution},
        "critic": network,
        "algorithm": {
            "class_name": "PPO",
            "num_learning_epochs": 1,
            "num_mini_batches": minibatches,
            "schedule": "fixed",
            "learning_rate": 1e-3,
        },
    }


def main() -> None:
    """Compile, wait for the card, and measure."""
    from rsl_rl.runners import OnPolicyRunner  # an optional package

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-envs", type=int, required=True, help="number of worlds")
    parser.add_argument("--steps", type=int, required=True, help="steps of a rollout")
    parser.add_argument("--minibatches", type=int, required=True, help="minibatches of an iteration")
    parser.add_argument("--eager", action="store_true", help="compile nothing")
    parser.add_argument("--begun", type=float, required=True, help="time at which the process was started")
    parser.add_argument("--lock", required=True, help="file to lock while it measures")
    parser.add_argument("--seconds", type=float, required=True, help="least seconds of the measurement")
    given = parser.parse_args()
    device = use_device("auto")
    config = {**settings(given.steps, given.minibatches), "torch_compile_mode": None if given.eager else "default"}
    runner = OnPolicyRunner(Worlds(given.num_envs, device, given.eager), config, log_dir=None, device=str(device))
    runner.logger.log = lambda **_: None
    runner.learn(1)
    print(json.dumps({"first_update_s": time.time() - given.begun}), flush=True)
    with Path(given.lock).open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rate = given.num_envs * given.steps / seconds_per_call(lambda: runner.learn(1), given.seconds, device)
    print(json.dumps({"loop_fps": round(rate)}), flush=True)


if __name__ == "__main__":
    main()
