"""Where time goes: measured (``profile.py``), or computed for a GPU that is not there (``roofline.py``)."""

from torchrl_agent.profiling.profile import profile_training
from torchrl_agent.spans import span, spanned

__all__ = ["profile_training", "span", "spanned"]
