"""Action distributions that compile, never synchronize with the device and never emit an illegal action."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution
from torchrl.envs.utils import ExplorationType, exploration_type
from typing_extensions import Self, override

from torchrl_agent.core import ranks


def legal_actions(mask: Tensor) -> Tensor:
    """Mask [..., A] of legal actions; where none is legal, all are: so it may be for dead agents, whose actions count
    nowhere.
    """
    return mask | ~mask.any(-1, keepdim=True)


class Chooser(nn.Module):
    """Module that draws from a distribution, as TorchRL's exploration type says."""

    greedy: Tensor | None = None
    """True, [], for the most likely values where the exploration type says to draw: on the device, so that the compiled
    code of rollouts serves evaluations; None if the exploration type alone decides.
    """

    @override
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the flag with the module."""
        self.greedy = None if self.greedy is None else fn(self.greedy)
        return super()._apply(fn, recurse)

    def chosen(self, policy: Distribution, drawn: Tensor) -> Tensor:
        """Values to take instead of those ``drawn`` from the ``policy``."""
        if self.greedy is None or exploration_type() is ExplorationType.DETERMINISTIC:
            return drawn
        return torch.where(self.greedy, policy.deterministic_sample, drawn)


def choosers(module: nn.Module) -> list[Chooser]:
    """The modules that draw from distributions, within a module."""
    return [part for part in module.modules() if isinstance(part, Chooser)]


class Heads(NamedTuple):
    """Quantities of an action head by head, [..., heads] each."""

    log_prob: Tensor
    entropy: Tensor
    count: Tensor
    """Number of legal values, given those of the heads that lead."""

    @property
    def relevant(self) -> Tensor:
        """Heads with a choice, bool."""
        return self.count > 1

    @property
    def normalized_entropy(self) -> Tensor:
        """Entropy as a fraction of that of equal probabilities, in [0, 1]; 0 where there is no choice."""
        return torch.where(self.relevant, self.entropy / self.count.clamp_min(2).log(), 0.0)


class MaskedCategorical(Categorical):
    """A categorical over the legal actions: illegal ones have probability 0 and their logits get no gradient.

    TorchRL's class of the same name does not compile inside ``ClipPPOLoss``. Sampling is by the Gumbel-max trick
    (Gumbel 1954), which is one fused kernel where ``multinomial`` is several.

    Args:
        logits: [..., A].
        mask: bool [..., A], True where the action is legal; see :func:`legal_actions` for where none is.
        least: least probability of a legal action, at most half of what it would be if all were equal: the uniform
            distribution is mixed in.
    """

    def __init__(self, logits: Tensor, mask: Tensor | None = None, *, least: float = 0.0) -> None:
        logits = logits.float()  # probabilities are computed in full precision, also under autocast
        self.legal = None if mask is None else legal_actions(mask)
        if self.legal is not None:
            logits = logits.masked_fill(~self.legal, torch.finfo(logits.dtype).min)
        if least:
            logits = self._mixed(logits, least)
        super().__init__(logits=logits, validate_args=False)

    def _mixed(self, logits: Tensor, least: float) -> Tensor:
        """Logits of p (1 - n floor) + floor, for n legal actions."""
        legal = torch.ones_like(logits, dtype=torch.bool) if self.legal is None else self.legal
        count = legal.sum(-1, keepdim=True)
        floor = (0.5 / count).clamp_max(least)
        mixed = logits.softmax(-1) * (1 - count * floor) + floor
        return torch.where(legal, mixed.log(), torch.finfo(logits.dtype).min)

    def heads(self, value: Tensor) -> Heads:
        """The only head of actions [...]."""
        entropy = self.entropy()
        count = torch.full_like(entropy, self.logits.shape[-1]) if self.legal is None else self.legal.sum(-1)
        parts = (self.log_prob(value), entropy, count.to(entropy))
        return Heads(*(part.unsqueeze(-1) for part in parts))

    def sample(self, sample_shape: torch.Size | tuple[int, ...] = ()) -> Tensor:
        """Random legal actions, int64 [*sample_shape, ...]."""
        shape = (*sample_shape, *self.logits.shape)
        uniform = ranks.draw(torch.rand, shape, self.logits.device, len(sample_shape)).clamp_min(1e-10)
        return (self.logits - torch.log(-torch.log(uniform))).argmax(-1)

    def entropy(self) -> Tensor:
        """Entropy [...]. PyTorch's multiplies by the logits of illegal actions, the least number that there is, so that
        a gradient that is scaled up, as in float16, overflows.
        """
        return -(self.logits.exp() * self.logits.clamp_min(-1e4)).sum(-1)

    @property
    def deterministic_sample(self) -> Tensor:
        """The most likely action."""
        return self.logits.argmax(-1)


class MaskedMultiCategorical(Distribution):
    """Several independent choices at once, each a :class:`MaskedCategorical`; an action is the vector of them.

    Args:
        logits: [..., sum of sizes], head behind head.
        mask: legal choices, like the logits.
        sizes: number of choices of each head.
        least: least probability of a legal choice, see :class:`MaskedCategorical`.
    """

    def __init__(self, logits: Tensor, mask: Tensor | None = None, *, sizes: Sequence[int], least: float = 0.0) -> None:
        masks = [None] * len(sizes) if mask is None else mask.split(list(sizes), -1)
        self.parts = [
            MaskedCategorical(part, legal, least=least)
            for part, legal in zip(logits.split(list(sizes), -1), masks, strict=True)
        ]
        shape = logits.shape[:-1]
        super().__init__(shape, torch.Size([len(sizes)]), validate_args=False)

    def sample(self, sample_shape: torch.Size | tuple[int, ...] = ()) -> Tensor:
        """Random legal actions, int64 [*sample_shape, ..., heads]."""
        return torch.stack([head.sample(sample_shape) for head in self.parts], -1)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-probability [...] of actions [..., heads]."""
        parts = [head.log_prob(choice) for head, choice in zip(self.parts, value.unbind(-1), strict=True)]
        return torch.stack(parts).sum(0)

    def entropy(self) -> Tensor:
        """Sum of the heads' entropies [...]."""
        return torch.stack([head.entropy() for head in self.parts]).sum(0)

    @property
    def deterministic_sample(self) -> Tensor:
        """The most likely choice of each head."""
        return torch.stack([head.deterministic_sample for head in self.parts], -1)

    def heads(self, value: Tensor) -> Heads:
        """Quantities of actions [..., heads] head by head."""
        found = [part.heads(choice) for part, choice in zip(self.parts, value.unbind(-1), strict=True)]
        return Heads(*(torch.cat(parts, -1) for parts in zip(*found, strict=True)))


class ConditionedMultiCategorical(Distribution):
    """Several choices at once, of which the last leads: it decides what is legal in the other heads. Given the last
    choice the others are independent of each other.

    Args:
        logits: [..., sum of sizes], head behind head.
        mask: legal choices, like the logits; of it only those of the last head are read.
        head_mask: legal choices of the other heads for each choice of the last, bool [..., last size, sum of others].
        sizes: number of choices of each head.
        least: least probability of a legal choice, see :class:`MaskedCategorical`.
    """

    def __init__(
        self, logits: Tensor, mask: Tensor, head_mask: Tensor, *, sizes: Sequence[int], least: float = 0.0
    ) -> None:
        *others, last = sizes
        self.others, self.least, self.head_mask = others, least, head_mask
        self.logits, leading = logits.split([sum(others), last], -1)
        self.leading = MaskedCategorical(leading, mask[..., -last:], least=least)
        super().__init__(logits.shape[:-1], torch.Size([len(sizes)]), validate_args=False)

    def given(self, choice: Tensor) -> MaskedMultiCategorical:
        """The other heads, given choices [...] of the last one."""
        chosen = choice[..., None, None].expand(*choice.shape, 1, self.logits.shape[-1])
        mask = self.head_mask.expand(*choice.shape, *self.head_mask.shape[-2:]).gather(-2, chosen).squeeze(-2)
        return MaskedMultiCategorical(self.logits.expand(mask.shape), mask, sizes=self.others, least=self.least)

    def sample(self, sample_shape: torch.Size | tuple[int, ...] = ()) -> Tensor:
        """Random legal actions, int64 [*sample_shape, ..., heads]."""
        choice = self.leading.sample(sample_shape)
        return torch.cat([self.given(choice).sample(), choice.unsqueeze(-1)], -1)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-probability [...] of actions [..., heads]."""
        return self.given(value[..., -1]).log_prob(value[..., :-1]) + self.leading.log_prob(value[..., -1])

    def entropy(self) -> Tensor:
        """Entropy [...] of the actions: that of the last head, and the expected one of the others given it."""
        logits = self.logits.unsqueeze(-2).expand(self.head_mask.shape)
        others = MaskedMultiCategorical(logits, self.head_mask, sizes=self.others, least=self.least)
        return self.leading.entropy() + (self.leading.probs * others.entropy()).sum(-1)

    def heads(self, value: Tensor) -> Heads:
        """Quantities of actions [..., heads] head by head, the others' given the action's last choice."""
        leading, others = self.leading.heads(value[..., -1]), self.given(value[..., -1]).heads(value[..., :-1])
        return Heads(*(torch.cat(parts, -1) for parts in zip(others, leading, strict=True)))

    @property
    def deterministic_sample(self) -> Tensor:
        """The most likely choice of the last head, and the most likely ones of the others given it."""
        choice = self.leading.deterministic_sample
        return torch.cat([self.given(choice).deterministic_sample, choice.unsqueeze(-1)], -1)


class ClippedNormal(Distribution):
    """Independent normals whose samples are clipped to a box, so that the probability beyond a bound lies on it.

    The log-probability of an action on a bound is that of everything clipped to it (Fujita and Maeda 2018, "Clipped
    Action Policy Gradient"); so it is exact for the actions that the world sees, has less variance than that of the
    sample before clipping, and an action on a bound is an ordinary one. Neither holds for TorchRL's ``TanhNormal``,
    which must invert the tanh of an action that rounding has moved; its ``TruncatedNormal`` synchronizes with the
    device in every step.

    Args:
        loc: means before clipping, [..., D].
        scale: their standard deviations, [..., D].
        low: least action of each kind, [D]; may be minus infinity.
        high: largest, [D]; may be infinity.
    """

    def __init__(self, loc: Tensor, scale: Tensor, low: Tensor, high: Tensor) -> None:
        self.loc, self.scale = loc.float(), scale.float()
        self.low, self.high = low.to(self.loc), high.to(self.loc)
        super().__init__(loc.shape[:-1], loc.shape[-1:], validate_args=False)

    def sample(self, sample_shape: torch.Size | tuple[int, ...] = ()) -> Tensor:
        """Random actions within the bounds, [*sample_shape, ..., D]."""
        noise = ranks.draw(torch.randn, (*sample_shape, *self.loc.shape), self.loc.device, len(sample_shape))
        return (self.loc + self.scale * noise).clamp(self.low, self.high).detach()

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-probability [...] of actions [..., D]: densities inside, probabilities on the bounds."""
        distance = (value - self.loc) / self.scale
        # log-density of a normal
        inside = -0.5 * distance.square() - self.scale.log() - 0.5 * math.log(2 * math.pi)
        lowest, highest = value <= self.low, value >= self.high
        # Inside, the tail's argument is a constant: its gradient could be NaN, which "where" would let through.
        beyond = torch.where(lowest, distance, torch.where(highest, -distance, 0.0))
        return torch.where(lowest | highest, torch.special.log_ndtr(beyond), inside).sum(-1)

    def entropy(self) -> Tensor:
        """Entropy [...] of the normals before clipping, which depends on the deviations alone; an entropy bonus in
        Stable-Baselines3 and CleanRL uses the same.
        """
        return (self.scale.log() + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)

    @property
    def deterministic_sample(self) -> Tensor:
        """The means, clipped."""
        return self.loc.clamp(self.low, self.high)


class MixedDistribution(Distribution):
    """Discrete choices and numbers at once, independent of each other: an action is the vector of the choices, as
    floats, and the numbers behind them.

    Args:
        logits: logits of the choices, [..., sum of sizes], head behind head.
        loc: means of the numbers, [..., D].
        scale: their standard deviations, [..., D].
        mask: legal choices, like the logits.
        sizes: number of choices of each head.
        low: least value of each number, [D].
        high: largest value, [D].
    """

    def __init__(
        self,
        logits: Tensor,
        loc: Tensor,
        scale: Tensor,
        mask: Tensor | None = None,
        *,
        sizes: Sequence[int],
        low: Tensor,
        high: Tensor,
    ) -> None:
        self.choices = MaskedMultiCategorical(logits, mask, sizes=sizes)
        self.numbers = ClippedNormal(loc, scale, low, high)
        self.heads = len(sizes)
        super().__init__(loc.shape[:-1], torch.Size([len(sizes) + loc.shape[-1]]), validate_args=False)

    @property
    def scale(self) -> Tensor:
        """Standard deviations of the numbers, [..., D]."""
        return self.numbers.scale

    def sample(self, sample_shape: torch.Size | tuple[int, ...] = ()) -> Tensor:
        """Random legal actions, [*sample_shape, ..., heads + D]."""
        return torch.cat([self.choices.sample(sample_shape).float(), self.numbers.sample(sample_shape)], -1)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-probability [...] of actions [..., heads + D]."""
        choices, numbers = value[..., : self.heads].long(), value[..., self.heads :]
        return self.choices.log_prob(choices) + self.numbers.log_prob(numbers)

    def entropy(self) -> Tensor:
        """Sum of both entropies [...]."""
        return self.choices.entropy() + self.numbers.entropy()

    @property
    def deterministic_sample(self) -> Tensor:
        """The most likely choices and the means."""
        return torch.cat([self.choices.deterministic_sample.float(), self.numbers.deterministic_sample], -1)
