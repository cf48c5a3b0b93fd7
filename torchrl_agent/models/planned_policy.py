"""Policies for evaluation, films and explanations: the controller's, or a planned one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase

from torchrl_agent.core import keys
from torchrl_agent.models.group_policy import GroupPolicy
from torchrl_agent.modules.dynamics import dreaming_state
from torchrl_agent.modules.planner import CrossEntropyPlanner

if TYPE_CHECKING:
    from torchrl_agent.models.agent import Agent


class PlannedPolicy(TensorDictModuleBase):
    """An agent's actor whose first-head action is that of a plan; other heads remain the controller's, as they do in
    the world model's imagination.

    Reads and writes the actor's keys, its memory included, and ``plan``; ``action_log_prob`` is the controller's
    log-probability of the planned action. Planning is deterministic, whatever TorchRL's exploration type.

    Raises:
        ValueError: the agent has no world model.
    """

    def __init__(self, agent: Agent) -> None:
        super().__init__()
        model = agent.world_model
        if model is None:
            raise ValueError(
                "a plan needs a world model, which this agent lacks: train it with model.world_model.enabled=true."
            )
        self.actor, self.choice = agent.actor, agent.actor_head[-1]
        self.planner = CrossEntropyPlanner(model, agent.planner)
        self.masked, self.heads = keys.ACTION_MASK in agent.actor.in_keys, model.heads
        self.in_keys, self.out_keys = agent.actor.in_keys, [*agent.actor.out_keys, keys.PLAN]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Run the actor, then replace its first-head action by the planned one."""
        tensordict = self.actor(tensordict)
        belief, known = dreaming_state(tensordict)
        mask = tensordict.get(keys.ACTION_MASK) if self.masked else None
        controller = tensordict.get(keys.LOGITS)[..., : self.heads[0]]
        actions, promised = self.planner(belief, known, mask, controller)
        plan = {"actions": actions, "expected_return": promised}
        tensordict.set(keys.PLAN, TensorDict(plan, tensordict.batch_size, device=tensordict.device))
        action = actions[..., 0]
        if len(self.heads) > 1:
            action = torch.cat((action.unsqueeze(-1), tensordict.get(keys.ACTION)[..., 1:]), -1)
        tensordict.set(keys.LOG_PROB, self.choice.get_dist(tensordict).log_prob(action))
        return tensordict.set(keys.ACTION, action)


def acting_actor(agent: Agent) -> TensorDictModuleBase:
    """Return the actor for evaluation: ``agent.actor``, or with ``model.planner.enabled`` a planned one."""
    return PlannedPolicy(agent) if agent.planner.enabled else agent.actor


def acting_policy(agent: Agent) -> TensorDictModuleBase:
    """Return the policy for evaluation: ``agent.policy``, or with ``model.planner.enabled`` a planned one."""
    if not agent.planner.enabled:
        return agent.policy
    planned = acting_actor(agent)
    return planned if agent.group is None else GroupPolicy(planned, agent.group)
