"""Configuration and weights that make this project's networks equal to those of Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchrl_agent.convert.archive import Archive
from torchrl_agent.convert.normalization import EPSILON
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.heads import Gaussian
from torchrl_agent.modules.perception import Perception

Layer = tuple[Tensor, Tensor]
"""Weight [out, in] and bias [out]."""
NETWORKS = ("policy", "value")


def model_settings(archive: Archive) -> dict[str, Any]:
    """Return the keys of ``ModelConfig``, except activation and normalization, that give an agent the same networks."""
    modules = ("perception", "world_model", "social_model", "manager")
    settings = {
        "hidden_sizes": archive.hidden_sizes("policy"),
        "shared_trunk": False,
        "layer_norm": False,
        "centralized_critic": False,
        "memory": "none",
        **{f"{module}.enabled": False for module in modules},
    }
    if archive.algorithm == "RecurrentPPO":
        states = sum(memory["weight_hh_l0"].shape[1] for memory in _memories(archive))
        settings |= {
            "memory": "lstm",
            "perception.embedding_size": 2 * archive.observation_size,
            "perception.memory_size": states,
            "perception.belief_size": states,
            "perception.reconstruction_coeff": 0.0,
            "perception.prediction_coeff": 0.0,
        }
    return settings


@torch.no_grad()
def fill(agent: Agent, archive: Archive, networks: tuple[str, str] = NETWORKS) -> None:
    """Copy the model's policy and value weights (or those of its other ``networks``) to an agent of these settings."""
    policy, value = (archive.layers(network) for network in networks)
    if agent.perception is not None:
        memories = _memories(archive)
        _fill_memory(agent.perception, memories)
        if len(memories) > 1:
            policy, value = _read_half(policy, 0), _read_half(value, 1)
    if archive.log_std is not None:
        policy = _in_half_ranges(policy, archive.log_std, gaussian_of(agent))
    _copy_layers(policy, agent.actor_head)
    _copy_layers(value, agent.critic_head)


def gaussian_of(agent: Agent) -> Gaussian:
    """Return the module that computes mean and standard deviation of an agent's continuous actions."""
    return next(module for module in agent.actor_head.modules() if isinstance(module, Gaussian))


def _in_half_ranges(layers: list[Layer], log_std: Tensor, gaussian: Gaussian) -> list[Layer]:
    """Return layers with the last one rescaled, from means in the world's unit to means in half ranges of the action;
    set the standard deviations.
    """
    *hidden, (weight, bias) = layers
    center, half_range = gaussian.center.cpu(), gaussian.half_range.cpu()
    gaussian.log_std.copy_(log_std - half_range.log())
    return [*hidden, (weight / half_range.unsqueeze(-1), (bias - center) / half_range)]


def linear_layers(network: nn.Module) -> list[nn.Linear]:
    """Return the linear layers of a network, from its input to its output."""
    return [module for module in network.modules() if isinstance(module, nn.Linear)]


@torch.no_grad()
def absorb_rounding(agent: Agent, statistics: dict[str, Any]) -> None:
    """Add the float32 rounding error of the subtracted mean to the first layers' biases.

    Stable-Baselines3 subtracts in float64: of a feature that hardly varies, the rounding of the mean divided by the
    deviation is large enough to change probabilities in the fifth decimal.
    """
    mean, variance = (torch.tensor(statistics[f"obs_{name}"], dtype=torch.float64) for name in ("mean", "var"))
    lost = (mean.float() - mean) * torch.rsqrt(variance + EPSILON)
    readers = [agent.actor_head, agent.critic_head] if agent.perception is None else [agent.perception]
    for first in {linear_layers(network)[0] for network in readers}:  # both heads of a DQN are the same network
        first.bias += (first.weight.cpu().double() @ lost).to(first.bias)


def _memories(archive: Archive) -> list[dict[str, Tensor]]:
    """Return the LSTMs: the policy's, and the critic's if it has its own."""
    return [memory for memory in (archive.memory(network) for network in NETWORKS) if memory]


def _fill_memory(perception: Perception, memories: Sequence[dict[str, Tensor]]) -> None:
    """Join LSTMs into one that reads the observation itself and whose output is the belief.

    Perception has two layers with SiLU before its memory. Since ``silu(x) - silu(-x) = x`` they pass an observation
    on unchanged if they carry it twice, as ``silu(x)`` and ``silu(-x)``.
    """
    size = memories[0]["weight_ih_l0"].shape[1]
    identity = torch.eye(size)
    twice = torch.cat((identity, -identity))
    hand_on = [(twice, torch.zeros(2 * size)), (twice @ twice.T, torch.zeros(2 * size))]
    assert perception.vector_encoder is not None and perception.recurrence is not None, "an agent with these settings"
    _copy_layers(hand_on[:1], perception.vector_encoder)
    _copy_layers(hand_on[1:], perception.fuse)
    states = sum(memory["weight_hh_l0"].shape[1] for memory in memories)
    remembered = torch.cat((torch.zeros(states, 2 * size), torch.eye(states)), 1)  # no input bypasses the memory
    _copy_layers([(remembered, torch.zeros(states))], perception.mean)
    gates = [{name: value.unflatten(0, (4, -1)) for name, value in memory.items()} for memory in memories]
    joined = {name: torch.cat([gate[name] for gate in gates], 1) for name in ("bias_ih_l0", "bias_hh_l0")}
    joined["weight_ih_l0"] = torch.cat([gate["weight_ih_l0"] for gate in gates], 1) @ twice.T
    own = [gate["weight_hh_l0"] for gate in gates]
    joined["weight_hh_l0"] = torch.stack([torch.block_diag(*blocks) for blocks in zip(*own, strict=True)])
    for name, value in joined.items():
        getattr(perception.recurrence.lstm, name).copy_(value.flatten(0, 1))


def _read_half(layers: list[Layer], half: int) -> list[Layer]:
    """Return layers with the first one widened to read one half of two concatenated beliefs."""
    (weight, bias), *rest = layers
    parts = [torch.zeros_like(weight), torch.zeros_like(weight)]
    parts[half] = weight
    return [(torch.cat(parts, 1), bias), *rest]


def _copy_layers(layers: Iterable[Layer], network: nn.Module) -> None:
    for (weight, bias), layer in zip(layers, linear_layers(network), strict=True):
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
