"""Sparse rewards with hindsight experience replay (Andrychowicz et al. 2017): flip bits until they are as desired."""

import argparse
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Dict, Discrete, MultiBinary
from numpy.typing import NDArray

from torchrl_agent import Experiment, learn


class FlipBits(gymnasium.Env):
    """An action flips one of ``bits`` bits; a reward of -1 for each step until they are as desired."""

    def __init__(self, bits: int = 8, render_mode: str | None = None) -> None:
        space, self.bits, self.render_mode = MultiBinary(bits), bits, render_mode
        self.observation_space = Dict(observation=space, achieved_goal=space, desired_goal=space)
        self.action_space = Discrete(bits)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        """Random bits, and others to come to."""
        super().reset(seed=seed)
        self.state, self.goal = self.np_random.integers(0, 2, (2, self.bits), dtype=np.int8)
        self.steps = 0
        return self.observe(), {}

    def step(self, action: int) -> tuple[dict, float, bool, bool, dict]:
        """Flip a bit."""
        self.state = self.state.copy()
        self.state[action] ^= 1
        self.steps += 1
        reward = float(self.compute_reward(self.state, self.goal, {}))
        return self.observe(), reward, reward == 0, self.steps == self.bits, {"is_success": reward == 0}

    def compute_reward(self, achieved_goal: NDArray, desired_goal: NDArray, info: Any) -> NDArray:
        """Rewards of goals [..., bits], as Gymnasium-Robotics names it: hindsight asks for those of other goals."""
        return (achieved_goal == desired_goal).all(-1) - 1.0

    def compute_terminated(self, achieved_goal: NDArray, desired_goal: NDArray, info: Any) -> NDArray:
        """Ends of the episode at goals [..., bits]."""
        return (achieved_goal == desired_goal).all(-1)

    def observe(self) -> dict:
        """Bits, and the goal."""
        return {"observation": self.state, "achieved_goal": self.state, "desired_goal": self.goal}


def main(frames: int = 30_000, hindsight: float = 0.8, *overrides: str) -> float:
    """Train DQN; returns the share of games solved in the last episodes of training."""
    settings = ["algorithm=dqn", f"algorithm.hindsight={hindsight}", f"total_frames={frames}", *overrides]
    *_, iteration = learn(Experiment.load(FlipBits, *settings))
    solved = iteration.metrics["rollout/info_is_success"]
    print(f"hindsight {hindsight}: solves {solved:.0%} of its last episodes")
    return solved


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=30_000)
    parser.add_argument("--hindsight", type=float, default=0.8, help="share of goals that are replaced; 0 for none")
    chosen = parser.parse_args()
    main(chosen.frames, chosen.hindsight)
