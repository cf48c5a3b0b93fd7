"""Reinforcement learning in GPU-batched worlds, in plain TorchRL and TensorDict."""

from torchrl_agent.experiment import Experiment
from torchrl_agent.train import Iteration, evaluate, learn, load_agent, train

__all__ = ["Experiment", "Iteration", "evaluate", "learn", "load_agent", "train"]
