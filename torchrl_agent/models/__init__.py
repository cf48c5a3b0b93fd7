"""What the agent is made of."""

from torchrl_agent.models.acting import PlannedPolicy, acting_policy
from torchrl_agent.models.action_values import ValueAgent
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.config import ModelConfig
from torchrl_agent.models.deterministic_agent import DeterministicAgent
from torchrl_agent.models.group_policy import GroupPolicy
from torchrl_agent.models.imagination import WorldModelEnv, controller
from torchrl_agent.models.manager import ManagerConfig
from torchrl_agent.models.module import AgentModule, ModuleContext
from torchrl_agent.models.networks import Join, masked_mean, one_hot_actions
from torchrl_agent.models.perception import PerceptionConfig
from torchrl_agent.models.planner import PlannerConfig
from torchrl_agent.models.records import Belief, Futures, Goal, SocialPredictions
from torchrl_agent.models.social_model import SocialModelConfig
from torchrl_agent.models.soft_agent import SoftAgent
from torchrl_agent.models.world_model import WorldModelConfig

__all__ = [
    "Agent",
    "AgentModule",
    "Belief",
    "DeterministicAgent",
    "Futures",
    "Goal",
    "GroupPolicy",
    "Join",
    "ManagerConfig",
    "ModelConfig",
    "ModuleContext",
    "PerceptionConfig",
    "PlannedPolicy",
    "PlannerConfig",
    "SocialModelConfig",
    "SocialPredictions",
    "SoftAgent",
    "ValueAgent",
    "WorldModelConfig",
    "WorldModelEnv",
    "acting_policy",
    "controller",
    "masked_mean",
    "one_hot_actions",
]
