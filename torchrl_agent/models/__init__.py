"""Agents and their parts: networks, heads and policies."""

from torchrl_agent.core.ranks import masked_mean
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.config import ModelConfig
from torchrl_agent.models.group_policy import GroupPolicy
from torchrl_agent.models.imagined_world import WorldModelEnv, controller
from torchrl_agent.models.planned_policy import PlannedPolicy, acting_policy
from torchrl_agent.models.q_agent import QAgent
from torchrl_agent.models.sac_agent import SACAgent
from torchrl_agent.models.td3_agent import TD3Agent
from torchrl_agent.modules.manager import ManagerConfig
from torchrl_agent.modules.module import AgentModule, ModuleContext
from torchrl_agent.modules.networks import GatedConcat, one_hot_actions
from torchrl_agent.modules.perception import PerceptionConfig
from torchrl_agent.modules.planner import PlannerConfig
from torchrl_agent.modules.records import Belief, Futures, Goal, SocialPredictions
from torchrl_agent.modules.social_model import SocialModelConfig
from torchrl_agent.modules.world_model import WorldModelConfig

__all__ = [
    "Agent",
    "AgentModule",
    "Belief",
    "Futures",
    "GatedConcat",
    "Goal",
    "GroupPolicy",
    "ManagerConfig",
    "ModelConfig",
    "ModuleContext",
    "PerceptionConfig",
    "PlannedPolicy",
    "PlannerConfig",
    "QAgent",
    "SACAgent",
    "SocialModelConfig",
    "SocialPredictions",
    "TD3Agent",
    "WorldModelConfig",
    "WorldModelEnv",
    "acting_policy",
    "controller",
    "masked_mean",
    "one_hot_actions",
]
