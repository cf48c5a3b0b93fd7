"""Learning algorithms; they know worlds only through TorchRL specs and tensordict keys."""

from torchrl_agent.algorithms.a2c import A2C, A2CConfig
from torchrl_agent.algorithms.actor_critic import ActorCritic, ActorCriticConfig, OnPolicyActorCritic
from torchrl_agent.algorithms.algorithm import Algorithm, AlgorithmConfig
from torchrl_agent.algorithms.dqn import DQN, DQNConfig
from torchrl_agent.algorithms.impala import IMPALA, IMPALAConfig
from torchrl_agent.algorithms.ppo import PPO, PPOConfig
from torchrl_agent.algorithms.sac import SAC, SACConfig
from torchrl_agent.algorithms.td3 import TD3, TD3Config

__all__ = [
    "A2C",
    "DQN",
    "IMPALA",
    "PPO",
    "SAC",
    "TD3",
    "A2CConfig",
    "ActorCritic",
    "ActorCriticConfig",
    "Algorithm",
    "AlgorithmConfig",
    "DQNConfig",
    "IMPALAConfig",
    "OnPolicyActorCritic",
    "PPOConfig",
    "SACConfig",
    "TD3Config",
]
