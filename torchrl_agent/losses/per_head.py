"""PPO's objective head by head, for actions of several choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from tensordict import TensorDictBase
from tensordict.nn import ProbabilisticTensorDictModule, ProbabilisticTensorDictSequential, TensorDictModuleBase
from torch import Tensor
from torch.distributions import Distribution
from typing_extensions import override

from torchrl_agent.core import keys
from torchrl_agent.core.ranks import masked_mean
from torchrl_agent.losses.policy_gradient import LARGEST_LOG_RATIO, PPOLoss, check_discrete


class PerHeadPPOLoss(PPOLoss):
    """The clipped objective with a probability ratio for each head of an action, clipped on its own; the heads'
    objectives are summed. At the behavior policy the gradient is that of the joint ratio.

    A head that has one legal value, given those that lead it, counts nothing. The ``logits`` of the rollout are read
    besides what :class:`PPOLoss` reads.

    Args:
        actor_network: the policy's head, of discrete actions.
        critic_network: the state value's head.
        names: names of the action's heads in diagnostics, in their order; numbers by default.
        **settings: see :class:`PPOLoss`.

    Raises:
        ValueError: the actions are continuous.
    """

    def __init__(
        self,
        actor_network: ProbabilisticTensorDictSequential,
        critic_network: TensorDictModuleBase,
        *,
        names: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        self.names = tuple(name.replace(" ", "_") for name in names)
        super().__init__(actor_network, critic_network, **settings)
        check_discrete(actor_network, "ratio=per_head")
        self.in_keys = [*self.in_keys, keys.LOGITS]

    @override
    def _policy_terms(
        self, tensordict: TensorDictBase, policy: Distribution, advantage: Tensor, valid: Tensor | None
    ) -> dict[str, Tensor]:
        """The policy's loss, the diagnostics of the ratio over all heads, and by head."""
        heads, behavior = policy.heads(tensordict.get(keys.ACTION)), self._behavior_log_prob(tensordict)
        counted = heads.relevant if valid is None else heads.relevant & valid.unsqueeze(-1)
        log_ratio = (heads.log_prob - behavior).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
        log_ratio = torch.where(counted, log_ratio, 0.0)
        # for each head the smaller of ratio A and clip(ratio, 1 - eps, 1 + eps) A
        clipped = log_ratio.clamp((-self.clip_epsilon).log1p(), self.clip_epsilon.log1p())
        gains = torch.stack([log_ratio.exp(), clipped.exp()], -1) * advantage[..., None, None]
        gain = torch.where(counted, gains.min(-1).values, 0.0)
        joint, ratio = log_ratio.detach().sum(-1), log_ratio.detach().exp()
        clips = (clipped != log_ratio).to(log_ratio.dtype)
        terms = {
            "loss_objective": masked_mean(-gain.sum(-1), valid),
            "kl": masked_mean(joint.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO).exp() - 1 - joint, valid),
            "clip_fraction": clips.sum() / counted.sum().clamp_min(1),
            "max_ratio": ratio.max(),
            "min_ratio": ratio.min(),
        }
        entropy, frames = torch.where(counted, heads.normalized_entropy.detach(), 0.0), counted.float()
        for name, found in (("entropy", entropy), ("clip_fraction", clips)):
            terms |= self._by_head(name, found.flatten(0, -2).sum(0) / frames.flatten(0, -2).sum(0).clamp_min(1))
        terms |= self._by_head("relevant", frames.flatten(0, -2).mean(0))
        terms |= self._by_head("max_ratio", ratio.flatten(0, -2).amax(0))
        return terms | self._by_head("min_ratio", ratio.flatten(0, -2).amin(0))

    @torch.no_grad()
    def _behavior_log_prob(self, tensordict: TensorDictBase) -> Tensor:
        """Log-probabilities [..., heads] of the actions under the behavior policy."""
        choice = cast(ProbabilisticTensorDictModule, self.actor_network[-1])
        return choice.get_dist(tensordict.select(*choice.in_keys)).heads(tensordict.get(keys.ACTION)).log_prob

    def _by_head(self, name: str, values: Tensor) -> dict[str, Tensor]:
        """Diagnostics of each head from values [heads]."""
        names = self.names or tuple(str(number) for number in range(len(values)))
        return {f"{name}/{head}": value for head, value in zip(names, values.unbind(), strict=True)}
