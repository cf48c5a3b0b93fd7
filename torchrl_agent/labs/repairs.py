"""Repairs of a faulty agent: another change of what the modules read or write, or a module that learns anew."""

from __future__ import annotations

import copy
import tempfile
from contextlib import closing
from pathlib import Path

from torchrl_agent.core.checkpoint import MODULE_FILE
from torchrl_agent.experiment import Experiment
from torchrl_agent.labs.faults import plant
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.pretrained import PretrainedConfig, load_module, save_module
from torchrl_agent.pretrain import PretrainConfig, pretrain
from torchrl_agent.runs.load import load_reward_scaler

RETRAIN = "retrain"
"""Repair ``retrain MODULE``: the module goes on learning from players of its world, upon the frozen perception."""
LESSON = PretrainConfig(
    frames=60_000, updates=1_800, batch_frames=2048, learning_rate=0.0005, players=["greedy"], disturbed=0.2
)
"""Extent of the learning."""


def repair(agent: Agent, experiment: Experiment, run: Path, change: str) -> None:
    """Change a faulty agent in place.

    Args:
        run: its run, which has the statistics of its rewards.
        change: a line of :mod:`torchrl_agent.labs.faults`, or ``retrain MODULE``.
    """
    kind, _, module = change.partition(" ")
    if kind == RETRAIN:
        _retrain(agent, experiment, run, module)
        return
    with closing(agent.attach(experiment.make_world(evaluation=True, num_envs=1))) as env:
        plant(agent, env, change)


def _retrain(agent: Agent, experiment: Experiment, run: Path, module: str) -> None:
    """Let a module learn from its present weights on, by :func:`~torchrl_agent.pretrain.pretrain`."""
    experiment = copy.deepcopy(experiment)
    with tempfile.TemporaryDirectory() as folder:
        faulty, learned = Path(folder) / MODULE_FILE, Path(folder) / "learned"
        save_module(faulty, agent, module, load_reward_scaler(experiment, run))
        experiment.pretrained = PretrainedConfig()
        setattr(experiment.pretrained, module, str(faulty))
        experiment.frozen = ["perception"]
        experiment.acceleration.update = False  # compiling takes longer than so few updates
        pretrain(module, experiment, LESSON, learned)
        load_module(agent, learned)
