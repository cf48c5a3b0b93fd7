"""How the agent learns; knows worlds only through TorchRL specs and tensordict keys."""

from torchrl_agent.training.a2c import A2C, A2CConfig
from torchrl_agent.training.acceleration import AccelerationConfig
from torchrl_agent.training.actor_critic import ActorCritic, ActorCriticConfig, OnPolicyActorCritic
from torchrl_agent.training.algorithm import Algorithm, AlgorithmConfig
from torchrl_agent.training.counted import mean_of_counted
from torchrl_agent.training.dqn import DQN, DQNConfig
from torchrl_agent.training.evaluation import evaluate_policy, summarize
from torchrl_agent.training.governor import CollapseError, GovernorConfig
from torchrl_agent.training.impala import IMPALA, IMPALAConfig
from torchrl_agent.training.objectives import AgentLoss
from torchrl_agent.training.ppo import PPO, PPOConfig
from torchrl_agent.training.pretrained import load_module, save_module
from torchrl_agent.training.rollout import RolloutCollector
from torchrl_agent.training.sac import SAC, SACConfig
from torchrl_agent.training.schedules import LearningRateConfig
from torchrl_agent.training.td3 import TD3, TD3Config
from torchrl_agent.training.updates import NonFiniteError, Updater

__all__ = [
    "A2C",
    "DQN",
    "IMPALA",
    "PPO",
    "SAC",
    "TD3",
    "A2CConfig",
    "AccelerationConfig",
    "ActorCritic",
    "ActorCriticConfig",
    "AgentLoss",
    "Algorithm",
    "AlgorithmConfig",
    "CollapseError",
    "DQNConfig",
    "GovernorConfig",
    "IMPALAConfig",
    "LearningRateConfig",
    "NonFiniteError",
    "OnPolicyActorCritic",
    "PPOConfig",
    "RolloutCollector",
    "SACConfig",
    "TD3Config",
    "Updater",
    "evaluate_policy",
    "load_module",
    "mean_of_counted",
    "save_module",
    "summarize",
]
