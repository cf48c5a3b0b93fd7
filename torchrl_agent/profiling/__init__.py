"""Where time goes: measured (``profile.py``), or computed for a GPU that is not there (``roofline.py``)."""

from torchrl_agent.core.spans import span, spanned
from torchrl_agent.profiling.profile import profile_training

__all__ = ["profile_training", "span", "spanned"]
