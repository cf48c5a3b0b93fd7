"""Gain of evolution over the same members without it, at equal frames and initial genes, over seeds."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from benchmarks.arguments import add_config
from torchrl_agent import keys
from torchrl_agent.cli.arguments import add_seeds
from torchrl_agent.core.tables import interval
from torchrl_agent.experiment import Experiment
from torchrl_agent.loop import iterate
from torchrl_agent.population.agent import MembersPolicy
from torchrl_agent.population.learner import PopulationLearner
from torchrl_agent.training.evaluator import evaluate_policy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a population, seeds and episodes."""
    add_config(parser, "arena_pbt", "a population that evolves")
    add_seeds(parser)
    parser.add_argument("--episodes", type=int, default=64, help="unseen episodes by which each member is judged (64)")


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Measure, and print the differences."""
    result = measure_evolution(parsed.config, parsed.overrides, parsed.seeds, parsed.episodes)
    for who in ("best", "median"):
        found = result[who]["difference"]
        print(f"{who} member: {found['mean']:+,.4g} +- {found['half_width']:,.3g} over random search")
    return result


def measure_evolution(config: str, overrides: Sequence[str], seeds: Sequence[int], episodes: int) -> dict[str, Any]:
    """Measure returns of the members of populations that evolve as configured and of the same populations without
    evolution: equal initial genes, weights and frames; evaluated on unseen worlds. Differences are paired by seed.
    """
    judged: dict[str, list[Tensor]] = {"evolved": [], "random search": []}
    genes = []
    for seed in seeds:
        for name, more in (("evolved", []), ("random search", ["population.evolve=none"])):
            experiment = Experiment.load(config, *overrides, *more, f"seed={seed}")
            learner = experiment.make_learner()
            if not isinstance(learner, PopulationLearner) or (not more and experiment.population.evolve == "none"):
                raise ValueError(
                    f"configuration {config} has no population that evolves: set population.members and evolve."
                )
            for _ in iterate(learner):
                pass
            judged[name].append(judge_members(learner, episodes, experiment.evaluation.seed))
            if not more:
                genes.append({key: values.tolist() for key, values in learner.evolution.genes.items()})
    result: dict[str, Any] = {"seeds": list(seeds), "episodes": episodes, "last_genes": genes}
    for what, of_members in (("best", Tensor.amax), ("median", Tensor.median)):
        rows = {name: [float(of_members(each)) for each in values] for name, values in judged.items()}
        gained = [a - b for a, b in zip(*rows.values(), strict=True)]
        mean, half = interval(gained)
        result[what] = {**rows, "difference": {"mean": mean, "half_width": half, "above_0": mean > half}}
    return result


def judge_members(learner: PopulationLearner, episodes: int, seed: int) -> Tensor:
    """Return the mean return of every member on the evaluation world, [P].

    Args:
        learner: the population, made from an experiment.
        episodes: worlds of each member, each of which plays one episode.
        seed: of these worlds.
    """
    members, algorithm = learner.members, learner.algorithm
    agent = algorithm.template.agent
    policy = MembersPolicy(algorithm.stack, agent.policy, agent.group)
    env = learner.experiment.make_world(evaluation=True, num_envs=members * episodes, seed=seed)
    learner.inheritance.send(env, learner.evolution.genes)
    found = evaluate_policy(policy, agent.attach(env), max_steps=learner.experiment.evaluation.max_steps)
    return found[keys.EPISODE_RETURN].view(members, episodes).mean(1)
