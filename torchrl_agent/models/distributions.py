"""Action distributions that compile, never sync and never emit an illegal action."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Categorical


class MaskedCategorical(Categorical):
    """A categorical over the legal actions: illegal ones have probability 0 and their logits get no gradient.

    TorchRL's class of the same name does not compile inside ``ClipPPOLoss``. Sampling is by the Gumbel-max trick
    (Gumbel 1954), which is one fused kernel where ``multinomial`` is several.

    Args:
        logits: [..., A].
        mask: bool [..., A], True where the action is legal; at least one must be.
    """

    def __init__(self, logits: Tensor, mask: Tensor | None = None) -> None:
        logits = logits.float()  # probabilities are computed in full precision, also under autocast
        if mask is not None:
            logits = logits.masked_fill(~mask, torch.finfo(logits.dtype).min)
        super().__init__(logits=logits, validate_args=False)

    def sample(self, sample_shape: torch.Size | tuple[int, ...] = ()) -> Tensor:
        """Random legal actions, int64 [*sample_shape, ...]."""
        shape = (*sample_shape, *self.logits.shape)
        uniform = torch.rand(shape, device=self.logits.device).clamp_min(1e-10)
        return (self.logits - torch.log(-torch.log(uniform))).argmax(-1)

    def entropy(self) -> Tensor:
        """Entropy [...]; 0 where one action is legal."""
        return -(self.probs * self.logits.clamp_min(-1e4)).sum(-1)

    @property
    def deterministic_sample(self) -> Tensor:
        """The most likely action."""
        return self.logits.argmax(-1)
