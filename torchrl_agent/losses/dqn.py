"""DQN's loss: the temporal-difference error of action values."""

from __future__ import annotations

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictSequential
from torch import nn
from torchrl.objectives import DQNLoss, SoftUpdate
from torchrl.objectives.utils import ValueEstimators

from torchrl_agent.core import keys
from torchrl_agent.core.ranks import masked_mean
from torchrl_agent.models.agent import Agent


class ActionValueLoss(nn.Module):
    """Temporal-difference loss of Q-learning, by :class:`~torchrl.objectives.DQNLoss`, on raw observations.

    The target network shares the normalizer, whose statistics move too slowly for a copy to be of use.

    Args:
        agent: agent with action values.
        gamma: discount factor.
        double: double DQN, where the online network chooses the next action and the target network values it.
    """

    def __init__(self, agent: Agent, *, gamma: float, double: bool) -> None:
        super().__init__()
        self.normalizer = agent.normalizer
        network = TensorDictSequential(*list(agent.encoder)[1:], *agent.critic_head)
        self.loss = DQNLoss(
            network, loss_function="smooth_l1", delay_value=True, double_dqn=double, action_space="categorical"
        )
        self.loss.set_keys(action_value=keys.LOGITS, value=keys.VALUE, priority_weight=keys.PRIORITY_WEIGHT)
        self.loss.make_value_estimator(ValueEstimators.TD0, gamma=gamma)

    @property
    def target(self) -> TensorDictBase:
        """Weights of the target network."""
        return self.loss.target_value_network_params

    def averaging(self, rate: float) -> SoftUpdate:
        """Polyak averaging: each step moves the target network this fraction of the way to the online network."""
        return SoftUpdate(self.loss, tau=rate)

    def copy_to_target(self) -> None:
        """Copy the online network's weights to the target network."""
        self.target.data.update_(self.loss.value_network_params.data)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Compute ``loss_value`` of transitions [B], and the squared error of each."""
        following = self.normalizer(tensordict.get(keys.NEXT).copy())
        tensordict = self.normalizer(tensordict.copy()).set(keys.NEXT, following)
        loss = self.loss(tensordict).get("loss")
        error = tensordict.get(keys.TD_ERROR)
        valid = tensordict.get(keys.VALID, None)
        counted = torch.ones_like(error, dtype=torch.bool) if valid is None else valid.unsqueeze(-1)
        return TensorDict(
            {"loss_value": loss, "mean_td_error": masked_mean(error.sqrt(), counted), keys.TD_ERROR: error}
        )
