"""Losses as modules that read and write tensordicts; frames that do not count are masked."""

from torchrl_agent.losses.policy_gradient import AgentLoss, PolicyGradientLoss, PPOLoss
from torchrl_agent.modules.networks import masked_mean

__all__ = ["AgentLoss", "PPOLoss", "PolicyGradientLoss", "masked_mean"]
