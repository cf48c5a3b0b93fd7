"""Forward pass of growing networks, its gradient, and the evaluation of all counterfactual configurations.

Here the world axis is the first one of every tensor (N), so that the products of all hosts are batched matrix products.
Hosts never mix, so the gradient of the sum of their losses is the gradient of each.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from envs.growth.rules import KINDS, Rules
from envs.growth.state import Host, Modules, Weights
from envs.growth.tasks import REACHES


class Mixture(NamedTuple):
    """Weights with which each slot's module joins its host, [N, S] unless stated."""

    alpha: Tensor
    """[N, S, G] for G configurations that are computed at once."""
    training: Tensor | None
    """1 for a module that is trained in isolation, else 0; None in an evaluation, where such a module has no effect."""
    kind: Tensor
    """Index of the blueprint's kind."""
    multiplies: Tensor
    """True for a module that multiplies the features."""
    gated: Tensor
    """True for a module whose alpha is multiplied by a learned gate of the row."""
    rank: Tensor
    """Number of hidden units."""
    taps: Tensor
    """1 for a module that reads its neighbors, else 0."""


def forward(weights: Weights, inputs: Tensor, mixture: Mixture, rules: Rules) -> Tensor:
    """Compute the logits [N, G, B, K] of rows ``inputs`` [N, B, L, F] in each of G configurations."""
    if not isinstance(rules.host, str):
        return rules.host.forward(weights, inputs, mixture, rules)
    features = embed(weights.host, inputs)
    for slot in range(rules.slots):
        features = block(features, weights.host, slot)
        features = join(features, weights.modules, mixture, slot, rules)
    return classify(features, weights.host, rules)


def host_forward(host: Host, inputs: Tensor, rules: Rules) -> Tensor:
    """Compute the logits [N, 1, B, K] of a host without modules."""
    if not isinstance(rules.host, str):
        return rules.host.host_forward(host, inputs)
    features = embed(host, inputs)
    for slot in range(rules.slots):
        features = block(features, host, slot)
    return classify(features, host, rules)


def embed(host: Host, inputs: Tensor) -> Tensor:
    """Compute the first features [N, 1, B, L, C]."""
    features = torch.relu(torch.bmm(inputs.flatten(1, 2), host.embedding))
    return features.reshape(len(inputs), 1, *inputs.shape[1:3], -1)


def block(features: Tensor, host: Host, slot: int) -> Tensor:
    """Apply the residual layer before a slot to features [N, G, B, L, C]."""
    change = torch.baddbmm(host.block_bias[:, slot, None], features.flatten(1, 3), host.block[:, slot])
    return features + torch.relu(change).reshape(features.shape)


def classify(features: Tensor, host: Host, rules: Rules) -> Tensor:
    """Pool features [N, G, B, L, C] over positions, and compute logits [N, G, B, K]."""
    pooled = features.amax(3) if rules.pooling == "max" else features.mean(3)
    logits = torch.baddbmm(host.classifier_bias.unsqueeze(1), pooled.flatten(1, 2), host.classifier)
    return logits.reshape(*pooled.shape[:3], -1).float()


def join(features: Tensor, modules: Modules, mixture: Mixture, slot: int, rules: Rules) -> Tensor:
    """Join a slot's module with features [N, G, B, L, C].

    A module in training gets a detached input and adds ``u - detach(u)``, zero in value: it has the gradient of the
    loss and its host the one without it. Later it adds ``alpha x u``, whatever alpha, so the host's gradient stays
    whole; the lerp rule, in which it fades by 1 - alpha, is there for comparison.
    """
    alpha = _axes(mixture.alpha[:, slot])
    seen, isolated = features, features.detach()
    if rules.blend == "lerp":
        seen = isolated
    elif mixture.training is not None:
        training = _axes(mixture.training[:, slot].unsqueeze(1)).to(features.dtype)
        seen = isolated + (1 - training) * (features - isolated)
    change = module(seen, modules, mixture, slot, rules)
    added = change if rules.blend == "residual" else change + isolated - features
    gate = torch.where(_axes(mixture.gated[:, slot].unsqueeze(1)), row_gate(seen, modules, slot), 1.0)
    total = alpha * gate * added
    if mixture.training is not None:
        alone = gate * change
        total = total + _axes(mixture.training[:, slot].unsqueeze(1)) * (alone - alone.detach())
    return features + total.to(features.dtype)  # under autocast features may be bfloat16


def module(seen: Tensor, modules: Modules, mixture: Mixture, slot: int, rules: Rules) -> Tensor:
    """Compute a module's change of the features ``seen`` [N, G, B, L, C]: of any blueprint, by masks of its weights. A
    slot of fewer features than others uses the first ones of its weights.
    """
    n, width, units = len(seen), seen.shape[-1], modules.down_bias.shape[-1]
    reach = 1 if rules.near_taps else REACHES[slot % len(REACHES)]
    used = (torch.arange(units, device=seen.device) < mixture.rank[:, slot, None]).to(modules.up.dtype)
    taps = mixture.taps[:, slot, None, None, None]
    down = modules.down[:, slot, :width]  # [N, C, 3, R]
    down = torch.cat((down[:, :, :1] * taps, down[:, :, 1:2], down[:, :, 2:] * taps), 2).flatten(2)
    parts = torch.bmm(seen.flatten(1, 3), down).reshape(*seen.shape[:-1], 3, units)
    left, center, right = parts.unbind(-2)
    total = torch.roll(left, reach, 3) + center + torch.roll(right, -reach, 3)
    hidden = torch.relu(total + modules.down_bias[:, slot].reshape(n, 1, 1, 1, units))
    kind, kinds = _axes(mixture.kind[:, slot].unsqueeze(1)), [blueprint.kind for blueprint in rules.offered]
    if "low-rank" in kinds:
        hidden = torch.where(kind == KINDS.index("low-rank"), total, hidden)
    if "attention" in kinds:
        attended = attention(left * used[:, None, None, None], right, center, mixture.rank[:, slot])
        hidden = torch.where(kind == KINDS.index("attention"), attended, hidden)
    up = modules.up[:, slot, :, :width] * used.unsqueeze(-1)
    change = torch.bmm(hidden.flatten(1, 3).to(parts.dtype), up).reshape(seen.shape)
    multiplies = _axes(mixture.multiplies[:, slot].unsqueeze(1))
    return torch.where(multiplies, seen * (2 * logistic(2 * change) - 1), change.to(seen.dtype))


def attention(query: Tensor, key: Tensor, value: Tensor, rank: Tensor) -> Tensor:
    """Attend from each position to all of them (Vaswani et al. 2017, equation 1), all [N, G, B, L, R], with the first
    ``rank`` [N] components.
    """
    scores = query @ key.transpose(-1, -2) / torch.sqrt(_axes(rank.clamp_min(1).unsqueeze(1)))
    return torch.softmax(scores, -1).to(value.dtype) @ value


def row_gate(seen: Tensor, modules: Modules, slot: int) -> Tensor:
    """Compute the gate of each row from its mean features, [N, G, B, 1, 1]; nearly open at the beginning."""
    mean = seen.mean(3)
    gate = torch.bmm(mean.flatten(1, 2), modules.gate[:, slot, : mean.shape[-1]].unsqueeze(-1)).float()
    return logistic(gate + 2).reshape(*mean.shape[:3], 1, 1)


def logistic(value: Tensor) -> Tensor:
    """Compute ``1 / (1 + exp(-value))``, beyond 30 that of 30.

    PyTorch 2.13's ``sigmoid`` rounds the last few numbers of a tensor on CPUs differently from the others, so that a
    world would depend on the number of worlds; its ``exp`` does not.
    """
    return 1 / (1 + torch.exp(-value.clamp(-30, 30)))


def _axes(value: Tensor) -> Tensor:
    """Append the axes of rows, positions and features to [N, G]."""
    return value[:, :, None, None, None]


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Compute the mean cross entropy of logits [N, G, B, K] with labels [N, B], [N, G]."""
    chosen = labels[:, None, :, None].expand(-1, logits.shape[1], -1, -1)
    return -torch.log_softmax(logits, -1).gather(-1, chosen).squeeze(-1).mean(-1)


def loss(weights: Weights, inputs: Tensor, labels: Tensor, mixture: Mixture, rules: Rules) -> Tensor:
    """Compute the sum of all hosts' losses, whose gradient is every host's own."""
    return cross_entropy(forward(weights, inputs, mixture, rules), labels).sum()


def twin_loss(host: Host, inputs: Tensor, labels: Tensor, rules: Rules) -> Tensor:
    """Compute the sum of all twins' losses."""
    return cross_entropy(host_forward(host, inputs, rules), labels).sum()


def configurations(alpha: Tensor, permanent: Tensor) -> Tensor:
    """Return alpha [N, S, S + 3] of each configuration: as it is, without each slot, all off, permanent ones alone."""
    count = alpha.shape[1]
    every = alpha.unsqueeze(-1)
    without = every * (1 - torch.eye(count, device=alpha.device))
    return torch.cat((every, without, torch.zeros_like(every), every * permanent.unsqueeze(-1)), -1)


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Compute the fraction of rows [N, G, B, K] whose largest logit is that of the label [N, B], [N, G]."""
    return (logits.argmax(-1) == labels.unsqueeze(1)).float().mean(-1)
