"""Evaluation of trained agents: against each other, without a module, by exploitability, and over seeds."""

from torchrl_agent.evaluation.ablation import without

__all__ = ["without"]
