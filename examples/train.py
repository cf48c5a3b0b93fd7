"""Train an agent in the Arena, evaluate it, film it and load it again."""

import argparse
from pathlib import Path

from torchrl_agent import Experiment, evaluate, load, train
from torchrl_agent.runs.film import film_policy, film_world


def main(frames: int = 1_500_000, name: str = "example", *overrides: str) -> None:
    """Train for ``frames`` into the folder ``runs/<name>``."""
    experiment = Experiment.load("arena", f"total_frames={frames}", f"run.name={name}", "run.film=false", *overrides)
    for iteration in train(experiment):
        print(f"{iteration.frames:,} frames, return {iteration.metrics['rollout/ep_rew_mean']:.1f}")

    experiment, agent = load(f"runs/{name}")  # carries its normalization statistics
    figures = evaluate(experiment, agent, episodes=16)
    print(f"return {figures['return_mean']:.1f}, wins {figures['win_rate']:.0%} of {figures['episodes']} episodes")
    world = agent.attach(film_world(experiment, num_envs=2))
    print(film_policy(world, agent.policy, Path(f"{name}.gif"), steps=min(frames, 900)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=1_500_000)
    main(parser.parse_args().frames)
