"""Reinforcement learning in GPU-batched worlds, in plain TorchRL and TensorDict.

What is offered here is imported when it is first asked for, so that the command answers at once where it needs no
PyTorch.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from torchrl_agent import moved
from torchrl_agent.hidden import check_envs

if TYPE_CHECKING:
    from torchrl_agent.experiment import Experiment
    from torchrl_agent.judging import evaluate
    from torchrl_agent.learner import Learner
    from torchrl_agent.loop import Iteration, iterate, learn
    from torchrl_agent.runs.load import load, load_agent
    from torchrl_agent.runs.run import train
    from torchrl_agent.world_check import check_world

HOMES = {
    "Experiment": "experiment",
    "Iteration": "loop",
    "Learner": "learner",
    "check_world": "world_check",
    "evaluate": "judging",
    "iterate": "loop",
    "learn": "loop",
    "load": "runs.load",
    "load_agent": "runs.load",
    "train": "runs.run",
}
__all__ = ["Experiment", "Iteration", "Learner", "check_world", "evaluate", "iterate", "learn", "load", "load_agent"]
__all__ += ["train"]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_envs()
    return getattr(importlib.import_module(f"{__name__}.{HOMES[name]}"), name)


class _Package(ModuleType):
    """A package whose ``train`` stays the function, although importing the old module of that name would bind it."""

    @override
    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
moved.install()
