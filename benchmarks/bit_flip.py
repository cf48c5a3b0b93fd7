"""Hindsight experience replay in the bit-flipping world of its paper (Andrychowicz et al. 2017, section 3.1)."""

from __future__ import annotations

import argparse
from typing import Any

from examples.goals import FlipBits
from torchrl_agent.cli.arguments import add_overrides, print_table

EPISODES = 100


def solved_share(bits: int, hindsight: float, frames: int, seed: int, *changes: str) -> float:
    """Return the fraction of new games that DQN solves after a training, by the deterministic policy."""
    from torchrl_agent import Experiment
    from torchrl_agent.experiment.judging import evaluate
    from torchrl_agent.loop import learn

    replayed = [f"algorithm.hindsight={hindsight}", f"total_frames={frames}", f"seed={seed}", "threads=1"]
    experiment = Experiment.load(FlipBits, "algorithm=dqn", f"+world.bits={bits}", *replayed, *changes)
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
