"""Growing networks: host networks in training, and an agent that decides how each develops.

``env.py`` is the TorchRL environment, ``dynamics.py`` a step of the game, ``network.py`` the hosts with their modules,
``hosts.py`` those that are modules of one's own, ``optimizer.py`` their training, ``lifecycle.py`` and ``actions.py``
the rules of slots, ``tasks.py`` the data and ``scripted.py`` the scripted policies.
"""

from envs.growth.env import GrowthEnv
from envs.growth.rules import Rules

__all__ = ["GrowthEnv", "Rules"]
