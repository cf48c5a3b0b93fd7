"""TorchRL transforms: normalization of observations and rewards, shaping, team returns and inner rewards."""

from torchrl_agent.transforms.character import CharacterConfig, CharacterReward
from torchrl_agent.transforms.normalization import (
    STATISTICS,
    ObservationNormalizer,
    RewardScaler,
    RunningStatistics,
    get_statistics,
    read_statistics,
    set_statistics,
)
from torchrl_agent.transforms.shaping import PotentialShaping, TeamReturn, check_shaping

__all__ = [
    "STATISTICS",
    "CharacterConfig",
    "CharacterReward",
    "ObservationNormalizer",
    "PotentialShaping",
    "RewardScaler",
    "RunningStatistics",
    "TeamReturn",
    "check_shaping",
    "get_statistics",
    "read_statistics",
    "set_statistics",
]
