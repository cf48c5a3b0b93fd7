"""Evaluation of an agent on its experiment's evaluation world."""

from __future__ import annotations

import math
import time
from contextlib import closing
from typing import Any

import torch
from torchrl.envs import EnvBase

from torchrl_agent.core.abilities import abilities
from torchrl_agent.core.devices import forked_random, resolve_device, use_device
from torchrl_agent.experiment import Experiment
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.planned_policy import acting_policy
from torchrl_agent.training.collector import RolloutCollector
from torchrl_agent.training.evaluator import UNFINISHED, Evaluator, summarize

WAYS = {"deterministic": True, "stochastic": False}
"""Ways of taking a policy's actions: True for deterministic ones, False for sampled ones."""
EVALUATION_RETURN = "eval/return_mean"
"""The metric that :class:`PeriodicEvaluator` writes and that a run can stop at."""


def evaluate(
    experiment: Experiment,
    agent: Agent,
    episodes: int | None = None,
    deterministic: bool | None = None,
    collector: RolloutCollector | None = None,
) -> dict[str, Any]:
    """Figures of an agent on the evaluation world; see :func:`~torchrl_agent.training.evaluator.summarize`.

    Args:
        episodes: number of episodes, by default that of the experiment.
        deterministic: take the most likely actions; by default as the experiment says.
        collector: that of a training, whose compiled code plays the episodes where it fits.
    """
    evaluator = make_evaluator(experiment, agent, episodes, deterministic, collector=collector)
    with closing(evaluator.env):
        return summarize(evaluator(None if evaluator.collector is None else experiment.evaluation.seed))


def configured_way(experiment: Experiment) -> str:
    """The way of acting by which the experiment judges."""
    return next(name for name, greedy in WAYS.items() if greedy is experiment.evaluation.deterministic)


def evaluate_ways(
    experiment: Experiment, agent: Agent, episodes: int | None = None, collector: RolloutCollector | None = None
) -> dict[str, dict[str, Any]]:
    """Figures of an agent on the evaluation world in both ways of acting, ``deterministic`` and ``stochastic``, as
    :func:`evaluate` computes them; samples are drawn from the evaluation's seed on.
    """
    device = resolve_device(experiment.device)
    with forked_random(device):
        torch.manual_seed(experiment.evaluation.seed)
        ways = {name: evaluate(experiment, agent, episodes, greedy, collector) for name, greedy in WAYS.items()}
    if any(UNFINISHED in figures for figures in ways.values()):  # rows of one table
        ways = {name: {**figures, UNFINISHED: figures.get(UNFINISHED, 0)} for name, figures in ways.items()}
    return ways


def make_evaluator(
    experiment: Experiment,
    agent: Agent,
    episodes: int | None = None,
    deterministic: bool | None = None,
    compile: bool = False,
    collector: RolloutCollector | None = None,
) -> Evaluator:
    """Evaluator of an agent on the evaluation world; one that is called again and again may ``compile`` on CUDA. With
    the ``collector`` of a training it has as many worlds as the training, and runs its compiled code, where that fits.

    Raises:
        ValueError: fewer than one episode.
    """
    config = experiment.evaluation
    count = config.episodes if episodes is None else episodes
    if count < 1:
        raise ValueError(f"episodes is {count}: evaluate at least 1.")
    use_device(experiment.device)
    greedy = config.deterministic if deterministic is None else deterministic

    def make_world(num_envs: int) -> EnvBase:
        return experiment.make_world(evaluation=True, num_envs=num_envs, seed=config.seed)

    lent = None if collector is None else collector.lend(agent, count, make_world)
    env = agent.attach(make_world(count)) if lent is None else lent.env
    policy, acceleration = acting_policy(agent), experiment.acceleration
    return Evaluator(policy, env, greedy, config.max_steps, acceleration, compile, lent, count)


class PeriodicEvaluator:
    """Evaluation of an agent during training, as metrics ``eval/...``; the training's random numbers stay unchanged.

    Worlds of this project are kept and reset as if freshly made, so that nothing is compiled twice; others are made
    anew. Its games have the seed after that of :func:`evaluate`, so that the games that choose the best checkpoint, or
    when to stop, are not those of the final evaluation.
    """

    def __init__(self, experiment: Experiment, agent: Agent, collector: RolloutCollector | None = None) -> None:
        self.experiment, self.agent, self.collector = experiment, agent, collector
        self._evaluator: Evaluator | None = None

    def is_due(self, frames: int, new: int) -> bool:
        """True if the last ``new`` of all ``frames`` have made another evaluation due."""
        every = self.experiment.evaluation.every
        return every is not None and frames % every < new

    def target_reached(self, metrics: dict[str, float]) -> bool:
        """True if training may end: these metrics have an evaluation's return, and it has reached the mark."""
        config = self.experiment.evaluation
        if not config.stop_at_mark or config.mark is None:
            return False
        return metrics.get(EVALUATION_RETURN, -math.inf) >= config.mark

    def __call__(self) -> dict[str, float]:
        """Run the evaluation's episodes. If some do not finish, no return is reported: it would be that of the first
        ``evaluation.max_steps`` steps.
        """
        start, device = time.perf_counter(), resolve_device(self.experiment.device)
        with forked_random(device):
            evaluator = self._evaluator or make_evaluator(
                self.experiment, self.agent, compile=True, collector=self.collector
            )
            figures = summarize(evaluator(self.experiment.evaluation.seed + 1))
        self._evaluator = evaluator if abilities(evaluator.env).branchless else None
        if self._evaluator is None:
            evaluator.env.close()
        if UNFINISHED in figures:
            figures = {UNFINISHED: figures[UNFINISHED]}
        judged = {f"eval/{name}": float(value) for name, value in figures.items()}
        return {**judged, "time/eval_seconds": time.perf_counter() - start}
