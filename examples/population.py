"""Eight agents in one program, whose learning rates and entropy bonuses evolve (Jaderberg et al. 2017)."""

import argparse

from torchrl_agent import Experiment, learn


def main(frames: int = 400_000, *overrides: str) -> dict[str, list[float]]:
    """Train a population in the Arena; returns the last genes by name."""
    experiment = Experiment.load("arena_pbt", f"total_frames={frames}", *overrides)
    for iteration in learn(experiment):
        evolution = iteration.learner.evolution
        print(f"{iteration.frames:,} frames of each, {len(evolution.steps)} steps of evolution")
    genes = {name: values.tolist() for name, values in evolution.genes.items()}
    for name, values in genes.items():
        print(name, ", ".join(f"{value:.2g}" for value in values))
    best = iteration.learner.best_agent()  # an agent like any other
    print(f"the best of {iteration.learner.members}: {sum(each.numel() for each in best.parameters()):,} parameters")
    return genes


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=400_000)
    main(parser.parse_args().frames)
