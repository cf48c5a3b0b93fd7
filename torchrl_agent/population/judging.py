"""Judging all members of a population at once, each in worlds of its own."""

from __future__ import annotations

from torch import Tensor

from torchrl_agent import keys
from torchrl_agent.population.agent import MembersAgent
from torchrl_agent.population.learner import PopulationLearner
from torchrl_agent.training.evaluation import evaluate_policy


def judge_members(learner: PopulationLearner, episodes: int, seed: int, deterministic: bool = True) -> Tensor:
    """Mean return of every member on the evaluation world, [P].

    Args:
        learner: the population, made from an experiment.
        episodes: worlds of each member, each of which plays one episode.
        seed: of these worlds.
        deterministic: take the likeliest actions instead of sampling.
    """
    members, algorithm = learner.members, learner.algorithm
    agent = MembersAgent(algorithm.stack, algorithm.template.agent)
    env = learner.experiment.make_world(evaluation=True, num_envs=members * episodes, seed=seed)
    learner.households.send(env, learner.evolution.genes)
    found = evaluate_policy(agent.policy, agent.attach(env), deterministic, learner.experiment.evaluation.max_steps)
    return found[keys.EPISODE_RETURN].view(members, episodes).mean(1)
