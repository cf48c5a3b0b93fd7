"""Reinforcement learning in GPU-batched worlds, in plain TorchRL and TensorDict.

What is offered here is imported when it is first asked for, so that the command answers at once where it needs no
PyTorch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from torchrl_agent.trust.hidden import check_envs

if TYPE_CHECKING:
    from torchrl_agent.core import keys
    from torchrl_agent.experiment import Experiment
    from torchrl_agent.experiment.judging import evaluate
    from torchrl_agent.loop import Iteration, iterate, learn
    from torchrl_agent.runs.load import load, load_agent
    from torchrl_agent.runs.run import train
    from torchrl_agent.training.learner import Learner
    from torchrl_agent.training.world_check import check_world

HOMES = {
    "Experiment": "experiment",
    "Iteration": "loop",
    "Learner": "training.learner",
    "check_world": "training.world_check",
    "evaluate": "experiment.judging",
    "iterate": "loop",
    "keys": "core.keys",
    "learn": "loop",
    "load": "runs.load",
    "load_agent": "runs.load",
    "train": "runs.run",
}
__all__ = ["Experiment", "Iteration", "Learner", "check_world", "evaluate", "iterate", "keys", "learn", "load"]
__all__ += ["load_agent", "train"]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_envs()
    module = importlib.import_module(f"{__name__}.{HOMES[name]}")
    return module if name == "keys" else getattr(module, name)
