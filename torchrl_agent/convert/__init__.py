"""Conversion of models of Stable-Baselines3 and of the Arena's first trainer to runs, and back
(docs/stable_baselines3.md).
"""

from torchrl_agent.convert.first_trainer import from_reference, to_reference
from torchrl_agent.convert.reader import from_sb3
from torchrl_agent.convert.writer import to_sb3

__all__ = ["from_reference", "from_sb3", "to_reference", "to_sb3"]
