"""A run: its folder, its checkpoints, its evaluation, its film, its model card; and runs side by side."""

from torchrl_agent.runs.film import film_policy
from torchrl_agent.runs.folder import new_run
from torchrl_agent.runs.load import load_agent
from torchrl_agent.runs.report import compare, plot
from torchrl_agent.runs.run import save, train

__all__ = ["compare", "film_policy", "load_agent", "new_run", "plot", "save", "train"]
