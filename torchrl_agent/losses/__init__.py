"""Losses as modules that read and write tensordicts; frames that do not count are masked."""

from torchrl_agent.losses.masked import mean_of_counted
from torchrl_agent.losses.policy_gradient import AgentLoss

__all__ = ["AgentLoss", "mean_of_counted"]
