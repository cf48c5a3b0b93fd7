"""Growing networks: host networks in training, and an agent that decides how each develops.

``env.py`` is the TorchRL environment, ``dynamics.py`` a step of the game, ``network.py`` the hosts with their modules,
``optimizer.py`` their training, ``lifecycle.py`` and ``legality.py`` the rules of slots, ``governor.py`` their
protection, ``tasks.py`` the data and ``scripted.py`` the scripted policies.
"""

from envs.growth.actions import conditioned_mask
from envs.growth.env import GrowthEnv
from envs.growth.rules import Rules

__all__ = ["GrowthEnv", "Rules", "conditioned_mask"]
