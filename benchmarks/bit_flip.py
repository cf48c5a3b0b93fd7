"""Hindsight experience replay in the bit-flipping world of its paper (Andrychowicz et al. 2017, section 3.1)."""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Dict, Discrete, MultiBinary
from numpy.typing import NDArray

from torchrl_agent.cli.arguments import add_overrides, print_table

EPISODES = 100


class BitFlip(gymnasium.Env):
    """World of ``bits`` bits, of which an action flips one; the reward is -1 per step until they equal the goal."""

    def __init__(self, bits: int = 15, render_mode: str | None = None) -> None:
        space = MultiBinary(bits)
        self.bits, self.render_mode = bits, render_mode
        self.observation_space = Dict(observation=space, achieved_goal=space, desired_goal=space)
        self.action_space = Discrete(bits)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, NDArray], dict[str, Any]]:
        """Draw random bits and a random goal."""
        super().reset(seed=seed)
        self.state, self.goal = self.np_random.integers(0, 2, (2, self.bits), dtype=np.int8)
        self.steps = 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[dict[str, NDArray], float, bool, bool, dict[str, Any]]:
        """Flip one bit."""
        self.state = self.state.copy()
        self.state[action] ^= 1
        self.steps += 1
        reward = float(self.compute_reward(self.state, self.goal, {}))
        solved = reward == 0
        return self._seen(), reward, solved, self.steps == self.bits, {"is_success": solved}

    def compute_reward(self, achieved_goal: NDArray, desired_goal: NDArray, info: Any) -> NDArray:
        """Return the rewards of goals [..., bits]."""
        return (achieved_goal == desired_goal).all(-1) - 1.0

    def compute_terminated(self, achieved_goal: NDArray, desired_goal: NDArray, info: Any) -> NDArray:
        """True where the episode terminates at goals [..., bits], bool [...]."""
        return (achieved_goal == desired_goal).all(-1)

    def _seen(self) -> dict[str, NDArray]:
        return {"observation": self.state, "achieved_goal": self.state, "desired_goal": self.goal}


def solved_share(bits: int, hindsight: float, frames: int, seed: int, *changes: str) -> float:
    """Return the fraction of new games that DQN solves after a training, by the deterministic policy."""
    from torchrl_agent import Experiment
    from torchrl_agent.experiment.judging import evaluate
    from torchrl_agent.loop import learn

    replayed = [f"algorithm.hindsight={hindsight}", f"total_frames={frames}", f"seed={seed}", "threads=1"]
    experiment = Experiment.load(BitFlip, "algorithm=dqn", f"+world.bits={bits}", *replayed, *changes)
    *_, last = learn(experiment)
    return evaluate(experiment, last.agent, EPISODES, deterministic=True)["info_is_success"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add bits, frames, seeds and changes of the configuration."""
    parser.add_argument("--bits", type=int, default=15)
    parser.add_argument("--frames", type=int, default=200_000)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    add_overrides(parser)


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Train with and without hindsight, and print the fractions of games solved."""
    shares = {
        f"hindsight {share}": [
            solved_share(parsed.bits, share, parsed.frames, seed, *parsed.overrides) for seed in parsed.seeds
        ]
        for share in (0.8, 0.0)
    }
    print_table(shares)
    return {"config": "bit_flip", "bits": parsed.bits, "frames": parsed.frames, "seeds": parsed.seeds, "solved": shares}
