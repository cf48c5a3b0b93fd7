"""A transition by hand, and networks that say what a test knows, for the algorithms that learn from a replay."""

from __future__ import annotations

import torch
from tensordict import TensorDict

from torchrl_agent.models.agent import ModelConfig
from torchrl_agent.optimization.compilation import AccelerationConfig

EAGER = AccelerationConfig(step=False, advantages=False, update=False, cudagraphs=False)
QUIET = ("run.film=false", "run.final_evaluation=false", "run.tensorboard=false", "device=cpu", "threads=1")
PLAIN = ModelConfig([1], activation="relu", normalize_observations=False)


def transition(action=0, reward=1.0, reached=2.0, terminated=False, truncated=False, mask=(True, True), steps=1):
    """One transition from x = 5."""
    flags = {"done": torch.tensor([[terminated or truncated]]), "terminated": torch.tensor([[terminated]])}
    following = {"observation": torch.tensor([[reached]]), "action_mask": torch.tensor([mask]), **flags}
    return TensorDict(
        {
            "observation": torch.tensor([[5.0]]),
            "action_mask": torch.tensor([[True, True]]),
            "action": torch.tensor([action]),
            "steps_to_next_obs": torch.tensor([[steps]]),
            "next": TensorDict({**following, "reward": torch.tensor([[reward]])}, [1]),
        },
        [1],
    )


def fill(network, *slopes):
    """Let a network of one hidden unit say ``slopes`` times x."""
    first, last = (layer for layer in network if isinstance(layer, torch.nn.Linear))
    with torch.no_grad():
        first.weight.fill_(1.0)
        first.bias.zero_()
        last.weight.copy_(torch.tensor(slopes).unsqueeze(-1))
        last.bias.zero_()
    return last
