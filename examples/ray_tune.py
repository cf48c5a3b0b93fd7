"""Population-based training by Ray Tune, whose members differ in shape: a bad trial becomes a copy of a better one."""

import tempfile
from pathlib import Path

import torch
from ray import tune

from torchrl_agent import Experiment, learn


def trial(config):
    """Train with the width and rate of ``config``, and report score and checkpoint to Ray."""
    experiment = Experiment.load(
        "cartpole",
        f"model.hidden_sizes=[{config['width']},{config['width']}]",
        f"algorithm.learning_rate.initial={config['rate']}",
        "total_frames=100_000",
        "threads=1",  # trials share the cores
    )
    given, state = tune.get_checkpoint(), None
    if given is not None:  # this trial continues, perhaps as a copy of another one
        with given.as_directory() as folder:
            state = torch.load(Path(folder) / "learner.pt", weights_only=True)
    for iteration in learn(experiment, state):
        if iteration.number % 4 == 0:
            result = {"score": iteration.metrics["rollout/ep_rew_mean"], "frames": iteration.frames}
            with tempfile.TemporaryDirectory() as folder:
                torch.save(iteration.learner.state_dict(), Path(folder) / "learner.pt")
                tune.report(result, checkpoint=tune.Checkpoint.from_directory(folder))


if __name__ == "__main__":
    scheduler = tune.schedulers.PopulationBasedTraining(
        metric="score",
        mode="max",
        perturbation_interval=1,  # reports between two perturbations
        quantile_fraction=0.5,
        hyperparam_mutations={"rate": tune.loguniform(1e-4, 1e-2)},
    )
    tuner = tune.Tuner(
        trial,
        param_space={"width": tune.choice([16, 32]), "rate": tune.loguniform(1e-4, 1e-2)},
        tune_config=tune.TuneConfig(scheduler=scheduler, num_samples=2),
        run_config=tune.RunConfig(storage_path=Path("tuned").resolve().as_uri()),
    )
    best = tuner.fit().get_best_result("score", "max")
    print(best.config, best.metrics["frames"])
