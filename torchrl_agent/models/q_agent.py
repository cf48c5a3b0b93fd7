"""Agents that value actions: Q-values instead of a policy, and the epsilon-greedy choice among them.

Their ``logits`` are the Q-values, so all code that runs, evaluates, films or exports an agent works with these too.
"""

from __future__ import annotations

import torch
from tensordict import TensorDictBase
from tensordict.nn import (
    ProbabilisticTensorDictSequential,
    TensorDictModule,
    TensorDictModuleBase,
    TensorDictSequential,
)
from tensordict.utils import NestedKey
from torch import Tensor, nn
from torchrl.envs import EnvBase
from torchrl.modules import QValueModule
from typing_extensions import override

from torchrl_agent.core import keys
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.config import ModelConfig
from torchrl_agent.models.heads import action_choice
from torchrl_agent.models.twin_values import check_values
from torchrl_agent.modules.distributions import MaskedCategorical, legal_actions
from torchrl_agent.modules.networks import ACTIVATIONS, mlp
from torchrl_agent.modules.specs import action_bounds, action_heads, action_masked


class QAgent(Agent):
    """An :class:`Agent` with action values: both of its heads are the same network, ``state_value`` is the value of the
    best legal action.

    Attributes:
        exploration: module that holds the fraction of random actions.

    Raises:
        ValueError: several actions at once, a memory, or modules with losses of their own.
    """

    def __init__(self, env: EnvBase, config: ModelConfig, gamma: float = 0.99, dueling: bool = True) -> None:
        self.dueling = dueling
        super().__init__(env, config, gamma)

    @override
    def _make_heads(
        self, env: EnvBase, config: ModelConfig, width: int, entry: NestedKey, hidden: list[int]
    ) -> tuple[ProbabilisticTensorDictSequential, TensorDictModuleBase]:
        if action_bounds(env) is not None:
            raise ValueError(
                "algorithm=dqn values one discrete action at a time but this world takes continuous ones: use "
                "algorithm=ppo, a2c or impala."
            )
        if config.centralized_critic:
            raise ValueError(
                "algorithm=dqn acts by the same values that it learns, so no critic can see more than it does: use "
                "model.centralized_critic=false, or algorithm=ppo, a2c or impala."
            )
        check_values("dqn", env, config, self.sequential)
        (num_actions,) = action_heads(env)
        self.exploration = Exploration()
        masked = action_masked(env)
        network = ActionValues(width, num_actions, hidden, config.activation, self.dueling)
        values = TensorDictModule(network, [entry], [keys.LOGITS])
        read = {"logits": keys.LOGITS, "epsilon": keys.EPSILON, **({"mask": keys.ACTION_MASK} if masked else {})}
        choice = action_choice(read, EpsilonGreedy, {})
        best = QValueModule(
            action_space="categorical",
            action_value_key=keys.LOGITS,
            action_mask_key=keys.ACTION_MASK if masked else None,
            out_keys=[keys.ACTION, keys.LOGITS, keys.VALUE],
        )
        return ProbabilisticTensorDictSequential(values, self.exploration, choice), TensorDictSequential(values, best)


class ActionValues(nn.Module):
    """Q-values [..., A]; with dueling streams ``V + A - mean(A)`` (Wang et al. 2016, equation 9)."""

    def __init__(self, width: int, actions: int, hidden: list[int], activation: str, dueling: bool) -> None:
        super().__init__()
        self.trunk = nn.Sequential()
        if hidden:
            self.trunk.extend([*mlp(width, hidden[-1], hidden[:-1], activation), ACTIVATIONS[activation]()])
            width = hidden[-1]
        self.advantages = mlp(width, actions, [], activation, 0.01)
        self.value = mlp(width, 1, [], activation, 0.01) if dueling else None

    def forward(self, features: Tensor) -> Tensor:
        features = self.trunk(features)
        advantages = self.advantages(features)
        if self.value is None:
            return advantages
        return self.value(features) + advantages - advantages.mean(-1, keepdim=True)


class Exploration(TensorDictModuleBase):
    """Writes ``epsilon`` [...], the fraction of random actions: a tensor on the device, so that a schedule triggers no
    recompilation.
    """

    def __init__(self) -> None:
        super().__init__()
        self.in_keys, self.out_keys = [keys.LOGITS], [keys.EPSILON]
        self.register_buffer("epsilon", torch.ones(()))

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        return tensordict.set(keys.EPSILON, self.epsilon.expand(tensordict.get(keys.LOGITS).shape[:-1]))


class EpsilonGreedy(MaskedCategorical):
    """The best action with probability ``1 - epsilon``, any legal one otherwise; always the best in deterministic mode.

    TorchRL's ``EGreedyModule`` samples from a spec that it changes at every step; as a distribution, exploration
    compiles with the world's step, respects masks and gives log-probabilities.

    Args:
        logits: action values [..., A].
        epsilon: fraction of random actions [...].
        mask: bool [..., A], True where the action is legal.
    """

    def __init__(self, logits: Tensor, epsilon: Tensor, mask: Tensor | None = None) -> None:
        legal = torch.ones_like(logits, dtype=torch.bool) if mask is None else legal_actions(mask)
        self.best = logits.masked_fill(~legal, torch.finfo(logits.dtype).min).argmax(-1)
        share = epsilon.unsqueeze(-1)
        greedy = nn.functional.one_hot(self.best, logits.shape[-1])
        probabilities = (1 - share) * greedy + share * legal / legal.sum(-1, keepdim=True)
        super().__init__(probabilities.clamp_min(torch.finfo(torch.float32).tiny).log(), mask)

    @override
    @property
    def deterministic_sample(self) -> Tensor:
        """The best action."""
        return self.best
