"""Hashes of what short eager trainings leave, by which a change that must change nothing is judged: run it before and
after, on one machine with one PyTorch, and the lines must be the same.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator
from typing import Any

import torch

EAGER = "acceleration={step: false, advantages: false, update: false, cudagraphs: false}"
SMALL = ["world.num_envs=16", "algorithm.rollout_steps=16", "total_frames=768"]
SHORT = ["world.num_envs=8", "algorithm.rollout_steps=16", "algorithm.minibatch_size=64", "total_frames=384"]
REPLAY = ["algorithm.learning_starts=256", "algorithm.replay_size=1024", "algorithm.batch_size=64"]
PPO = "tuned.ppo.minibatch_size=128"
TRAININGS = {
    "arena ppo": ["arena", *SMALL, PPO],
    "arena ppo gru": ["arena", *SMALL, PPO, "policy=gru"],
    "arena pictures": ["arena", *SMALL, PPO, "policy=cnn", "world.observation=heatmap", "total_frames=512"],
    "arena a2c": ["arena", *SMALL, "algorithm=a2c"],
    "arena impala": ["arena", *SMALL, "algorithm=impala", "tuned.impala.num_minibatches=4"],
    "arena dqn": ["arena", *SMALL, *REPLAY, "algorithm=dqn"],
    "arena sac": ["arena", *SMALL, *REPLAY, "algorithm=sac"],
    "town ppo": ["town", *SMALL, PPO],
    "town agent": ["town_agent", *SMALL, PPO, "world.num_envs=8", "total_frames=384"],
    "options": ["foresight_market_day", *SHORT],
    "population": [
        *("arena_pbt", *SHORT, "population.members=2", "population.replace=0.5", "population.every=256"),
        "population.warmup=0",
    ],
    "league": [
        *("duel_league", *SHORT, "population.members=2", "world.num_envs=32", "algorithm.rollout_steps=8"),
        "total_frames=512",
    ],
    "governor": ["arena", *SMALL, PPO, "governor.enabled=true"],
}
"""Configuration and overrides of each."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which trainings."""
    parser.add_argument("names", nargs="*", help=f"parts of the names of some of them: {', '.join(TRAININGS)} (all)")


def run(parsed: argparse.Namespace) -> None:
    """Train each, and print its frames and its hash."""
    for name in TRAININGS:
        if not parsed.names or any(part in name for part in parsed.names):
            print("{:16} {:6} {}".format(name, *train(name)), flush=True)


def train(name: str) -> tuple[int, str]:
    """Frames of a training, and a hash of the tensors that it leaves: of their values, whatever their names."""
    from torchrl_agent import Experiment, learn

    *_, last = learn(Experiment.load(*TRAININGS[name], EAGER, "threads=1", "device=cpu"))
    hashes = sorted(_hash(value) for value in _tensors(last.learner.state_dict()) if value.numel())
    return last.frames, hashlib.sha256("".join(hashes).encode()).hexdigest()[:16]


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)


def _hash(tensor: torch.Tensor) -> str:
    content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(str(tensor.dtype).encode() + content).hexdigest()
