"""An algorithm from outside the package, for configurations to name."""

from __future__ import annotations

from dataclasses import dataclass

from torchrl_agent.algorithms.algorithm import Algorithm, AlgorithmConfig


@dataclass
class StillConfig(AlgorithmConfig):
    """A key of its own."""

    patience: int = 1


class Still(Algorithm):
    """Named, never made."""

    name = "still"
    config_class = StillConfig
