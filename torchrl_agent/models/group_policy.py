"""One agent's policy applied to a group, whose agents all share it."""

from __future__ import annotations

from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase

from torchrl_agent.core import keys


class GroupPolicy(TensorDictModuleBase):
    """Applies one agent's policy [...] to a world's group of agents: it reads and writes the group's tensordict, [N,
    A], as if each agent were a world.

    Args:
        policy: policy of one agent.
        group: key of the agents' tensordict.
    """

    def __init__(self, policy: TensorDictModuleBase, group: str) -> None:
        super().__init__()
        self.policy, self.group = policy, group
        self.shared = [key for key in policy.in_keys if key == keys.STATE]
        own = [key for key in policy.in_keys if key not in policy.out_keys and key not in self.shared]
        self.in_keys = [*self.shared, *((group, key) for key in own)]
        self.out_keys = [
            (keys.NEXT, group, *key[1:]) if key[0] == keys.NEXT else (group, *key)
            for key in (key if isinstance(key, tuple) else (key,) for key in policy.out_keys)
        ]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the group's actions, and its next states under ``("next", group)``."""
        inner = tensordict.get(self.group)
        for key in self.shared:  # the world's state has no axis of agents: each of them reads the same
            value = tensordict.get(key).unsqueeze(-2)
            inner.set(key, value.expand(*inner.shape, value.shape[-1]))
        inner = self.policy(inner)
        for key in self.shared:
            del inner[key]
        following = inner.pop(keys.NEXT, None)
        return tensordict if following is None else tensordict.set((keys.NEXT, self.group), following)
