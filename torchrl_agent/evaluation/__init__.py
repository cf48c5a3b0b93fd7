"""Judging trained agents: against each other, without a module, by how far they can be exploited, over seeds."""

from torchrl_agent.evaluation.ablation import without

__all__ = ["without"]
