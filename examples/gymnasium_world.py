"""Train on a class of Gymnasium's that you wrote: no registration, no file."""

import argparse
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from torchrl_agent import Experiment, learn


class Thermostat(gymnasium.Env):
    """Keep a room at a temperature that is shown beside the present one: cool, wait or heat."""

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        celsius = Box(-20.0, 60.0, (1,), np.float64)
        self.observation_space, self.action_space = Dict(room=celsius, wanted=celsius), Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        """A room and a wanted temperature."""
        super().reset(seed=seed)
        self.room, self.wanted = self.np_random.uniform(0, 30, (2, 1))
        self.steps = 0
        return self.observe(), {}

    def step(self, action: int) -> tuple[dict, float, bool, bool, dict]:
        """Change the temperature by a degree, and lose a little warmth."""
        self.room = self.room + (action - 1) - 0.02 * (self.room - 10)
        self.steps += 1
        error = float(abs(self.room - self.wanted)[0])
        return self.observe(), -error / 10, False, self.steps == 50, {"error": error}  # figures in info become curves

    def observe(self) -> dict:
        """Both temperatures [degrees Celsius]."""
        return {"room": self.room, "wanted": self.wanted}


def main(frames: int = 200_000, *overrides: str) -> float:
    """Train PPO by its defaults; returns the last mean return of training."""
    for iteration in learn(Experiment.load(Thermostat, f"total_frames={frames}", *overrides)):
        print(f"{iteration.frames:,} frames, return {iteration.metrics['rollout/ep_rew_mean']:.2f}")
    return iteration.metrics["rollout/ep_rew_mean"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=200_000)
    main(parser.parse_args().frames)
