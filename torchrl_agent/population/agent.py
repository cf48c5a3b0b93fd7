"""Members of a population as the agent of one world: each plays its share of it."""

from __future__ import annotations

from typing import Any

from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import nn
from torchrl.envs import EnvBase

from torchrl_agent.models.agent import Agent
from torchrl_agent.population.stack import Stack, entries


class Member(nn.Module):
    """All that a member learns and keeps: its agent, its objective with the coefficients in it, and its reward scaler.

    Args:
        algorithm: what it would learn by if it were alone.
    """

    def __init__(self, algorithm: Any) -> None:
        super().__init__()
        self.agent, self.loss, self.scaler = algorithm.agent, algorithm.loss, algorithm.scaler


class MembersAgent(nn.Module):
    """What a collector needs of an agent, of P of them: member ``m`` plays the ``m``-th equal share of the worlds.

    Args:
        stack: of :class:`Member`.
        template: the agent whose architecture they have.
    """

    def __init__(self, stack: Stack, template: Agent) -> None:
        super().__init__()
        self.stack = stack
        self.__dict__["template"] = template  # its own parameters are nobody's
        self.group, self.memory = template.group, template.memory
        self.recorded_keys, self.input_keys = template.recorded_keys, template.input_keys
        self.__dict__["critic"] = template.critic

    @property
    def policy(self) -> TensorDictModuleBase:
        """All members' policies, for the world's own tensordict."""
        return MembersPolicy(self.stack, self.template.policy, self.group)

    def policy_and_value(self) -> TensorDictModuleBase:
        """The same with their critics' values."""
        return MembersPolicy(self.stack, self.template.policy_and_value(), self.group)

    def attach(self, env: EnvBase) -> EnvBase:
        """The world as such agents play it."""
        return self.template.attach(env)


class MembersPolicy(TensorDictModuleBase):
    """A policy of every member, each for its share of the worlds.

    Args:
        stack: of members.
        policy: the template's.
        group: key of the agents' tensordict in a world of several.
    """

    def __init__(self, stack: Stack, policy: TensorDictModuleBase, group: str | None) -> None:
        super().__init__()
        self.stack, self.group = stack, group
        self.__dict__["template"] = policy
        self.in_keys, self.out_keys = list(policy.in_keys), list(policy.out_keys)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write what the policies write, for worlds [N]."""
        shares = (self.stack.size, -1)
        seen = {key: value.unflatten(0, shares) for key, value in entries(tensordict, self.in_keys).items()}
        written = self.stack.call(self._act, seen, 1, randomness="different")
        for key, value in written.items():
            tensordict.set(key, value.flatten(0, 1))
        return tensordict

    def _act(self, tensordict: TensorDictBase) -> TensorDictBase:
        if self.group is not None:
            agents = tensordict.get(self.group)
            agents.batch_size = next(iter(agents.values())).shape[:2]
        return self.template(tensordict).select(*self.out_keys, strict=False)
