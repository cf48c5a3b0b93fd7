"""The algorithms by name: each is a file of its own."""

from __future__ import annotations

from torchrl_agent.training.a2c import A2C
from torchrl_agent.training.algorithm import Algorithm
from torchrl_agent.training.dqn import DQN
from torchrl_agent.training.impala import IMPALA
from torchrl_agent.training.ppo import PPO

ALGORITHMS: dict[str, type[Algorithm]] = {kind.name: kind for kind in (PPO, A2C, IMPALA, DQN)}
