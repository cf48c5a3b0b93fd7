"""Figures of one run: train, pre-train or just build an agent, then measure its actions and beliefs."""

from __future__ import annotations

import copy
import math
import tempfile
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDictBase
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import set_recurrent_mode

from benchmarks.claims.town import false_belief, record_observer, town_figures
from torchrl_agent import keys
from torchrl_agent.evaluation.ablation import removable, without
from torchrl_agent.experiment import Experiment
from torchrl_agent.experiment.judging import EVALUATION_RETURN, evaluate
from torchrl_agent.explain import explain
from torchrl_agent.explain.diagnosis import diagnose
from torchrl_agent.explain.thought import Thought
from torchrl_agent.loop import iterate, learn
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.pretrained import read_module
from torchrl_agent.pretrain import PretrainConfig, pretrain, switch_on
from torchrl_agent.runs.run import train
from torchrl_agent.training.collector import agent_rows, play, under
from torchrl_agent.training.learner import Learner

CONFIG = "small_town"
"""Configuration of claims that name no other."""
EAGER = ("acceleration={step: false, advantages: false, update: false}",)
RESULTS = ("return_mean", "lifetime", "contested")
"""Figures of the evaluation; further ones are in ``town.py``."""
WITHOUT, ELSEWHERE, AFTERWARDS = "return_without_", "return_in_", "return_afterward_"
"""Prefixes of the figures of a trained agent with an ablated module, in another world, or after further training for
the given frames.
"""
PLAYED = 4
"""Number of steps of a game before a reset in the middle of it, and after."""


@dataclass(frozen=True)
class Run:
    """Work to do with one configuration."""

    kind: str
    """train, pretrain, leak, or open mind."""
    overrides: tuple[str, ...]
    lesson: tuple[tuple[str, Any], ...] = ()
    """Settings of the pre-training, which precedes the training if that is the kind: ``module``, fields of
    :class:`~torchrl_agent.pretrain.PretrainConfig`, and ``frozen``: True to freeze the module afterward.
    """
    elsewhere: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Other worlds in which the trained agent is evaluated, by name: changes of the configuration."""
    config: str = CONFIG
    """Name of the configuration."""
    watched: str | None = None
    """Instead of training: the scripted policy whose games the pre-trained agent observes."""
    afterward: tuple[str, ...] = ()
    """Changes of the configuration, including its world, for further training of the trained agent: everything but the
    agent begins anew.
    """

    def experiment(self, seed: int, *changes: str) -> Experiment:
        """Return the experiment to run, with further changes."""
        return Experiment.load(self.config, *self.overrides, *changes, f"seed={seed}")


def measure(run: Run, seed: int) -> dict[str, float]:
    """Return the figures of a run by name; called in a process that may have measured others."""
    torch.set_num_threads(1)
    torch.compiler.reset()  # code compiled for earlier runs counts against the limit of recompilations
    short = EAGER if run.kind in ("leak", "open mind") else ()
    experiment = run.experiment(seed, *short)
    if run.kind == "leak":
        return leak(experiment)
    with tempfile.TemporaryDirectory() as folder:
        if run.kind == "open mind":
            return open_mind(experiment, Path(folder))
        if run.lesson:
            lesson, path = dict(run.lesson), Path(folder) / "module"
            module, frozen = lesson.pop("module"), lesson.pop("frozen", False)
            report = pretrain(module, experiment, PretrainConfig(**lesson), path)
            if run.kind == "pretrain":
                return _numbers(report["figures"])
            setattr(experiment.pretrained, module, str(path))
            experiment.frozen = list(read_module(path).parts) if frozen else []
            if run.watched is not None:
                switched = switch_on(module, experiment)
                return false_belief(record_observer(switched.make_learner().agent, switched, run.watched))
        (iteration,) = deque(learn(experiment), maxlen=1)
    agent = iteration.agent
    result = evaluate(experiment, agent)
    size = sum(parameter.numel() for parameter in agent.parameters())
    figures = {name: result[name] for name in RESULTS if name in result}
    figures |= ablations(experiment, agent) | elsewhere(run, seed, agent)
    figures |= {**town_figures(agent, experiment), "parameters": float(size)}
    return figures | learning_on(run, seed, agent)


def ablations(experiment: Experiment, agent: Agent) -> dict[str, float]:
    """Return the trained agent's return without each of its modules."""
    found = {}
    for name in removable(agent):
        with without(agent, [name]):
            found[f"{WITHOUT}{name}"] = evaluate(experiment, agent)["return_mean"]
    return found


def elsewhere(run: Run, seed: int, agent: Agent) -> dict[str, float]:
    """Return the trained agent's return in other worlds."""
    return {
        f"{ELSEWHERE}{name}": evaluate(run.experiment(seed, *changes), agent)["return_mean"]
        for name, changes in run.elsewhere
    }


def learning_on(run: Run, seed: int, agent: Agent) -> dict[str, float]:
    """Return the trained agent's return in further training, by the frames of that training; empty without one."""
    if not run.afterward:
        return {}
    experiment = run.experiment(seed, *run.afterward)
    learner = experiment.make_learner(agent=copy.deepcopy(agent))
    found = {f"{AFTERWARDS}0": evaluate(experiment, learner.agent)["return_mean"]}
    for iteration in iterate(learner):
        if EVALUATION_RETURN in iteration.metrics:
            found[f"{AFTERWARDS}{iteration.frames}"] = iteration.metrics[EVALUATION_RETURN]
    return found


def leak(experiment: Experiment) -> dict[str, float]:
    """Return the number of values of the belief after a reset that differ, bitwise, when everything before the reset is
    changed; and of those before it, to show that the change had an effect: in sequences as in learning, and in acting,
    where some worlds are reset while others continue.
    """
    learner = experiment.make_learner()
    rows = agent_rows(learner.collector.collect(), learner.agent.group).transpose(0, 1).clone()
    reset = rows.shape[1] // 2
    rows.get(keys.IS_INIT)[:, reset] = True
    other = rows.clone()
    for key in learner.agent.input_keys:
        value = other.get(key, None)
        if value is not None and value.is_floating_point():
            value[:, :reset] = torch.rand_like(value[:, :reset])
    with torch.no_grad(), set_recurrent_mode(True):
        beliefs = [_belief(learner, part) for part in (rows, other)]
    different = beliefs[0] != beliefs[1]
    before, after = int(different[:, :reset].sum()), int(different[:, reset:].sum())
    honest, changed = (_beliefs_in_play(learner.agent, experiment, change) for change in (False, True))
    going_on, begun = (int((a != b).sum()) for a, b in zip(honest, changed, strict=True))
    return {
        "changed_before": float(before),
        "changed_after": float(after),
        "changed_going_on": float(going_on),
        "changed_begun": float(begun),
    }


def _belief(learner: Learner, rows: TensorDictBase) -> torch.Tensor:
    agent = learner.agent
    assert agent.perception is not None
    return agent.perception(agent.normalizer(rows.copy())).get((keys.BELIEF, "mean"))


@torch.no_grad()
def _beliefs_in_play(agent: Agent, experiment: Experiment, change: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return beliefs [T, N / 2, ...] of worlds that continue, and of those that were reset, in the steps after a reset
    of every other world: the game is the same each time, except for the memory at the reset, which may be changed.
    """
    env = agent.attach(experiment.make_world())
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        root = deque(play(env, agent.policy, env.reset(), PLAYED), maxlen=1)[0].get(keys.NEXT).clone()
        for key in agent.memory if change else ():
            value = root.get(under(agent.group, key))
            if value.is_floating_point():
                value.copy_(torch.rand_like(value))
        begins = torch.arange(env.batch_size[0], device=env.device) % 2 == 1
        root = env.reset(root.set("_reset", begins.unsqueeze(-1)))
        belief = under(agent.group, (keys.BELIEF, "mean"))
        beliefs = torch.stack([step.get(belief).clone() for step in play(env, agent.policy, root, PLAYED)])
    return beliefs[:, ~begins], beliefs[:, begins]


def open_mind(experiment: Experiment, folder: Path) -> dict[str, float]:
    """Return 1 for each part of the explanation of a step that is present and finite, else 0."""
    experiment.run.folder, experiment.run.name = str(folder), "run"
    deque(train(experiment), maxlen=0)
    thought = explain(folder / "run", step=10)
    assert all(torch.allclose(part.sum(-1), part.new_ones(())) for part in thought.probabilities)
    parts = {
        "belief against truth": _is_finite(thought.belief) and thought.picture is not None,
        "imagined futures": _is_finite(thought.futures),
        "predicted minds": thought.others is not None
        and _is_finite(thought.others)
        and thought.others.true_goal is not None,
        "goal": _is_finite(thought.goal),
        "action probabilities": all(probabilities.isfinite().all() for probabilities in thought.probabilities),
        "diagnosis": diagnose(_misled(thought)) != diagnose(thought),
    }
    return {name: float(there) for name, there in parts.items()}


def _is_finite(part: Any) -> bool:
    """True if a part of a record is present and all of its numbers are finite."""
    values = [] if part is None else [value for value in vars(part).values() if isinstance(value, torch.Tensor)]
    return bool(values) and all(bool(value.isfinite().all()) for value in values)


def _misled(thought: Thought) -> Thought:
    """Return the record with a wrong prediction of the own state."""
    futures = thought.futures
    wrong = None if futures is None else replace(futures, predicted_states=1 - futures.true_states)
    return replace(thought, futures=wrong)


def _numbers(figures: dict[str, Any]) -> dict[str, float]:
    """Return figures of a report as plain numbers; lists become one entry per number, missing values NaN."""
    plain: dict[str, Any] = {}
    for name, value in figures.items():
        several = isinstance(value, list)
        plain |= {f"{name}_{place}": part for place, part in enumerate(value, 1)} if several else {name: value}
    return {name: math.nan if value is None else float(value) for name, value in plain.items()}
