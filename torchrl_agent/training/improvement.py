"""Policy improvement from the world model: what its dreams promise of each first action is a target for the policy.

The policy that the dreams improve (Grill et al. 2020, "Monte-Carlo tree search as regularized policy optimization",
section 3; Danihelka et al. 2022, "Policy improvement by planning with Gumbel", section 4) is

    improved(a) ~ played(a) exp(temperature^-1 c(a) (q(a) - v) / d)

where ``played`` is the policy that played, ``q`` the return that the dream of ``a`` promises, ``c`` the confidence in
it, ``v`` what ``played`` expects of the actions that were dreamt of, and ``d`` the root mean square of ``q - v`` over
the minibatch; an action that was not dreamt of is worth ``v``.
"""

from __future__ import annotations

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor, nn

from torchrl_agent import keys
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.distributions import MaskedCategorical
from torchrl_agent.models.networks import masked_mean, symexp

PLAYED = "played_logits"
"""Logits of the policy that played, before the mask, [..., sum of heads]."""


class ImprovementLoss(nn.Module):
    """Cross-entropy of the policy's first choice with the improved one.

    Reads ``imagined`` and :data:`PLAYED` as the rollout has them, and ``logits`` as the policy's head has just written
    them; frames that do not count (``keys.VALID``) are left out.

    Args:
        actions: choices of the first head.
        coefficient: weight of the loss.
        temperature: of the improved policy; a small one trusts dreams much.
    """

    def __init__(self, actions: int, coefficient: float, temperature: float) -> None:
        super().__init__()
        self.actions, self.coefficient, self.temperature = actions, coefficient, temperature

    def forward(self, encoded: TensorDictBase) -> TensorDict:
        """``loss_improvement``, and ``improvement_kl``: how far dreams would move the policy that played."""
        played, policy = (MaskedCategorical(*self._first(encoded, key)) for key in (PLAYED, keys.LOGITS))
        counted = encoded.get(keys.VALID, None)
        counted = torch.ones_like(played.logits[..., 0], dtype=torch.bool) if counted is None else counted
        advantages = imagined_advantages(encoded.get(keys.IMAGINED), played.probs)
        size = masked_mean(advantages.square().sum(-1), counted).sqrt()
        improved = MaskedCategorical(
            played.logits + advantages / (self.temperature * size.clamp_min(1e-6)), played.probs > 0
        )
        target = improved.probs.detach()
        loss = -(target * policy.logits.clamp_min(-1e4)).sum(-1)
        moved = (target * (improved.logits - played.logits).clamp(-1e4, 1e4)).sum(-1)
        return TensorDict(
            {
                "loss_improvement": self.coefficient * masked_mean(loss, counted),
                "improvement_kl": masked_mean(moved, counted).detach(),
            }
        )

    def _first(self, encoded: TensorDictBase, key: str) -> tuple[Tensor, Tensor | None]:
        """Logits of the first head, and which of its actions are legal."""
        mask = encoded.get(keys.ACTION_MASK, None)
        return encoded.get(key)[..., : self.actions], None if mask is None else mask[..., : self.actions]


def imagined_advantages(imagined: Tensor, probabilities: Tensor) -> Tensor:
    """What dreams promise of first actions, over what the policy expects of those dreamt of, times the confidence in
    each; 0 for the others, [..., actions].

    Args:
        imagined: as :class:`~torchrl_agent.models.world_model.Imagination` writes it, [..., 3 actions].
        probabilities: of the policy, [..., actions].
    """
    worth, confidence, dreamt = imagined.unflatten(-1, (-1, 3)).unbind(-1)
    worth, weight = symexp(worth), dreamt * probabilities
    expected = (weight * worth).sum(-1, keepdim=True) / weight.sum(-1, keepdim=True).clamp_min(1e-8)
    return dreamt * confidence * (worth - expected)


def improvement_of(agent: Agent) -> ImprovementLoss | None:
    """The loss of an agent whose dreams improve its policy."""
    model = agent.world_model
    if model is None or not model.config.improvement:
        return None
    return ImprovementLoss(model.heads[0], model.config.improvement, model.config.improvement_temperature)
