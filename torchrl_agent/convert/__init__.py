"""Conversion of Stable-Baselines3 models to runs and of runs to its models (docs/stable_baselines3.md)."""

from torchrl_agent.convert.reader import from_sb3
from torchrl_agent.convert.writer import to_sb3

__all__ = ["from_sb3", "to_sb3"]
