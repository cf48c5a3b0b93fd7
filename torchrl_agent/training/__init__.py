"""Collecting and learning in turn: the learner, its collector and evaluator, and the governor."""

from torchrl_agent.training.collector import RolloutCollector
from torchrl_agent.training.evaluator import evaluate_policy, summarize

__all__ = ["RolloutCollector", "evaluate_policy", "summarize"]
