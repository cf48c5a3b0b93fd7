"""Profiles of training: time by spans and operators (``profile.py``), and speed of a configuration (``speed.py``)."""

from torchrl_agent.core.spans import span, spanned
from torchrl_agent.profiling.profile import profile_training, ranges

__all__ = ["profile_training", "ranges", "span", "spanned"]
