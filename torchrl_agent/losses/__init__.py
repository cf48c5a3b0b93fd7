"""Losses as modules that read and write tensordicts; frames that do not count are masked."""

from torchrl_agent.core.ranks import masked_mean
from torchrl_agent.losses.policy_gradient import AgentLoss, PolicyGradientLoss, PPOLoss

__all__ = ["AgentLoss", "PPOLoss", "PolicyGradientLoss", "masked_mean"]
