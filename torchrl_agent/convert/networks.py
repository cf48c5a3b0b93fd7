"""Networks of this project that equal those of Stable-Baselines3: their configuration, and the places of weights."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchrl_agent.convert import layout
from torchrl_agent.convert.archive import Archive
from torchrl_agent.convert.normalization import EPSILON
from torchrl_agent.convert.pairs import Pair, layer_pairs
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.heads import Gaussian

PLAIN: dict[str, Any] = {
    "layer_norm": False,
    "centralized_critic": False,
    "memory": "none",
    "perception.enabled": False,
    "world_model.enabled": False,
    "social_model.enabled": False,
    "manager.enabled": False,
}
"""Keys of ``ModelConfig`` of an agent that is plain networks alone."""


def model_settings(archive: Archive) -> dict[str, Any]:
    """Return the keys of ``ModelConfig``, except activation and normalization, that give an agent the same networks."""
    policy, twin = archive.hidden_sizes("policy"), archive.algorithm != "DQN"
    value = archive.hidden_sizes("value") if twin else policy
    settings = {
        "hidden_sizes": policy,
        "critic_hidden_sizes": None if value == policy else value,
        "shared_trunk": False,
        "head_layers": 0,
        **PLAIN,
        "perception.reconstruction_coeff": 0.0,
        "perception.prediction_coeff": 0.0,
    }
    pictures, memories = archive.embedding_size, archive.memories
    if pictures is not None or memories:
        settings |= {"perception.enabled": True, "perception.plain": True}
    if pictures is not None:
        settings["perception.embedding_size"] = pictures
    if memories:
        states = sum(archive.policy[f"{memory}weight_hh_l0"].shape[1] for memory in memories)
        settings |= {"memory": "lstm", "perception.memory_size": states, "perception.skip_connection": False}
    return settings


def linear_layers(network: nn.Module) -> list[nn.Linear]:
    """Return the linear layers of a network, from its input to its output."""
    return [module for module in network.modules() if isinstance(module, nn.Linear)]


@dataclasses.dataclass(frozen=True)
class Correspondence:
    """Pairs of an agent's parameters and Stable-Baselines3's tensors.

    Args:
        agent: an agent of settings like those of :func:`model_settings`.
        algorithm: Stable-Baselines3's algorithm.
        names: names of the tensors of its policy, in its order.
        seen: names of the observations in the order in which its policy joins them; ``[""]`` for the only one.
        memories: sizes of its LSTMs by the prefixes of their names.
        trunk: linear layers that both heads of the agent share.
    """

    agent: Agent
    algorithm: str
    names: Sequence[str]
    seen: Sequence[str]
    memories: Mapping[str, int] = dataclasses.field(default_factory=dict)
    trunk: Sequence[nn.Linear] = ()

    def pairs(self, target: bool = False) -> list[Pair]:
        """Pairs of all weights, with the names of the online or the ``target`` network."""
        return [*self._encoders(target), *self._memory(), *self._heads(target)]

    def _heads(self, target: bool) -> Iterator[Pair]:
        agent: Any = self.agent
        prefix, known = "target " if target else "", layout.NETWORKS[self.algorithm]
        if self.algorithm == "DQN":
            yield from self._network(f"{prefix}policy", [*self.trunk, *linear_layers(agent.critic_head)], self._order())
        elif self.algorithm in layout.SQUASHED:
            if f"{prefix}policy" in known:  # SAC has no target policy
                yield from self._network(f"{prefix}policy", linear_layers(agent.actor_head), self._order())
            order = self._order(len(agent.action_range.center))
            for number, network in zip(("", "second "), agent.action_values.networks, strict=True):
                yield from self._network(f"{number}{prefix}value", linear_layers(network), order)
        else:
            for half, (name, head) in enumerate((("policy", agent.actor_head), ("value", agent.critic_head))):
                yield from self._network(name, [*self.trunk, *linear_layers(head)], self._order(), half)

    def _network(self, name: str, layers: list[nn.Linear], order: Tensor | None, half: int = 0) -> Iterator[Pair]:
        """Pairs of a network's layers; the first reads the features, or one ``half`` of what is remembered."""
        names = layout.layer_names(self.algorithm, name, self.names)
        first: dict[str, Any] = {} if self.memories else {"order": order}
        if len(self.memories) > 1:
            sizes = list(self.memories.values())
            first = {"inputs": slice(half * sizes[0], half * sizes[0] + sizes[half])}
        for place, (each, layer) in enumerate(zip(names, layers, strict=True)):
            found = layer_pairs(each, layer, **(first if place == 0 else {}))
            yield from self._scaled(found) if name == "policy" and place == len(layers) - 1 else found

    def _scaled(self, pairs: list[Pair]) -> Iterator[Pair]:
        """Pairs of a policy's last layer: in the world's unit instead of half ranges, or in two layers, mean and
        deviation, instead of one.
        """
        gaussian = next((part for part in self.agent.actor_head.modules() if isinstance(part, Gaussian)), None)
        if self.algorithm == "SAC":
            half = pairs[0].ours.shape[0] // 2
            for pair in pairs:
                yield dataclasses.replace(pair, rows=slice(0, half))
                deviation = pair.name.replace("actor.mu", "actor.log_std")
                yield dataclasses.replace(pair, name=deviation, rows=slice(half, None))
        elif gaussian is not None and self.algorithm not in layout.SQUASHED:
            weight, bias = pairs
            scale = gaussian.half_range.cpu()
            yield dataclasses.replace(weight, scale=scale)
            yield dataclasses.replace(bias, scale=scale, shift=gaussian.center.cpu())
            yield Pair("log_std", gaussian.log_std, shift=scale.log())
        else:
            yield from pairs

    def _memory(self) -> Iterator[Pair]:
        """Pairs of LSTMs, which lie side by side in ours and do not read each other."""
        begin = 0
        for prefix, size in self.memories.items():
            own = slice(begin, begin + size)
            lstm = self.agent.perception.recurrence.lstm  # type: ignore[union-attr]
            for part in ("ih", "hh"):
                changes: dict[str, Any] = {"order": self._order()} if part == "ih" else {"inputs": own}
                yield Pair(f"{prefix}weight_{part}_l0", getattr(lstm, f"weight_{part}_l0"), own, gates=True, **changes)
                yield Pair(f"{prefix}bias_{part}_l0", getattr(lstm, f"bias_{part}_l0"), own, gates=True)
            begin += size

    def _encoders(self, target: bool) -> Iterator[Pair]:
        """Pairs of the convolutions over pictures."""
        if self.agent.perception is None:
            return
        owner = {True: "q_net_target.", False: "q_net."}[target] if self.algorithm == "DQN" else ""
        for index, encoder in self.agent.perception.encoders.items():
            key = self.agent.normalizer.in_keys[int(index)]
            prefix = f"{owner}features_extractor." + ("" if list(self.seen) == [""] else f"extractors.{key}.")
            convolutions = [module for module in encoder.modules() if isinstance(module, nn.Conv2d)]
            for place, layer in zip(("cnn.0", "cnn.2", "cnn.4"), convolutions, strict=True):
                yield from layer_pairs(prefix + place, layer)
            yield from layer_pairs(f"{prefix}linear.0", linear_layers(encoder)[0])

    def _order(self, action: int = 0) -> Tensor | None:
        """Their column of each of our features, which an action of this size may follow: they join observations in
        the order of their names, we in that of the world, pictures first.
        """
        normalizer, perception = self.agent.normalizer, self.agent.perception
        keys = [str(key) for key in normalizer.in_keys]
        if len(keys) == 1:
            return None
        pictures = [] if perception is None else [keys[int(index)] for index in perception.encoders]
        sizes = {key: math.prod(shape) for key, shape in zip(keys, normalizer.shapes, strict=True)}
        if perception is not None and pictures:
            sizes |= dict.fromkeys(
                pictures, linear_layers(perception.encoders[next(iter(perception.encoders))])[0].out_features
            )
        begins, begin = {}, 0
        for key in self.seen:
            begins[key], begin = begin, begin + sizes[key]
        ours = [*pictures, *(key for key in keys if key not in pictures)]
        columns = [torch.arange(begins[key], begins[key] + sizes[key]) for key in ours]
        return torch.cat([*columns, torch.arange(begin, begin + action)])


def correspondence(agent: Agent, archive: Archive) -> Correspondence:
    """Return the pairs of an agent made for a model."""
    memories = {prefix: archive.policy[f"{prefix}weight_hh_l0"].shape[1] for prefix in archive.memories}
    return Correspondence(agent, archive.algorithm, list(archive.policy), list(archive.observations), memories)


@torch.no_grad()
def absorb_rounding(agent: Agent, statistics: dict[str, Any]) -> None:
    """Add the float32 rounding error of the subtracted mean to the first layers' biases.

    Stable-Baselines3 subtracts in float64: of a feature that hardly varies, the rounding of the mean divided by the
    deviation is large enough to change probabilities in the fifth decimal.
    """
    mean, variance = (torch.tensor(statistics[f"obs_{name}"], dtype=torch.float64) for name in ("mean", "var"))
    lost = (mean.float() - mean) * torch.rsqrt(variance + EPSILON)
    for weight, bias in _first_layers(agent):
        bias += (weight[:, : len(lost)].cpu().double() @ lost).to(bias)


def _first_layers(agent: Agent) -> list[tuple[Tensor, Tensor]]:
    """Weight and bias of each layer that reads the normalized vectors."""
    if agent.perception is not None:
        lstm = agent.perception.recurrence.lstm  # type: ignore[union-attr]
        return [(lstm.weight_ih_l0, lstm.bias_ih_l0)]
    values = getattr(agent, "action_values", None)
    heads = [agent.actor_head, *(values.networks if values is not None else [agent.critic_head])]
    firsts = {linear_layers(network)[0] for network in heads}  # both heads of a DQN are the same network
    return [(layer.weight, layer.bias) for layer in firsts]
