"""A transition by hand, for the algorithms that learn from a replay."""

from __future__ import annotations

import torch
from tensordict import TensorDict


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
