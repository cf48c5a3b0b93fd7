"""Members of a population, and the policies by which they act together in one batch of worlds."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from tensordict.utils import NestedKey
from torch import Tensor, nn

from torchrl_agent.core import keys
from torchrl_agent.population.stack import Stack, entries


class Member(nn.Module):
    """State of a member: its agent, its objective with the coefficients in it, and its reward scaler.

    Args:
        algorithm: the algorithm that would train it alone.
    """

    def __init__(self, algorithm: Any) -> None:
        super().__init__()
        self.agent, self.loss, self.scaler = algorithm.agent, algorithm.loss, algorithm.scaler


class MembersPolicy(TensorDictModuleBase):
    """Policies of P members: member ``m`` acts in the ``m``-th equal part of the worlds.

    Args:
        stack: of :class:`Member`.
        policy: the template's.
        group: key of the agents' tensordict in a world of several, else None.
    """

    def __init__(self, stack: Stack, policy: TensorDictModuleBase, group: str | None) -> None:
        super().__init__()
        self.stack, self.policy, self.group = stack, policy, group
        self.in_keys, self.out_keys = list(policy.in_keys), list(policy.out_keys)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the outputs of the policies, for worlds [N]."""
        shares = (self.stack.size, -1)
        seen = {key: value.unflatten(0, shares) for key, value in entries(tensordict, self.in_keys).items()}
        written = self.stack.call(self._act, seen, 1, randomness="different")
        for key, value in written.items():
            tensordict.set(key, value.flatten(0, 1))
        return tensordict

    def _act(self, tensordict: TensorDictBase) -> TensorDictBase:
        return act_in_group(self.policy, tensordict, self.group)


class PolicyGroup(NamedTuple):
    """Players of one kind, and the seats that they hold."""

    stack: Stack
    """Their weights."""
    policy: TensorDictModuleBase
    """Policy of the template."""
    rows: Tensor
    """Rows (``world * seats + seat``) of each player, int64 [players, K]."""


class SeatedPolicy(TensorDictModuleBase):
    """Policies that play against each other: each acts in its own seats.

    Rows are grouped by constant lists, so that the holder of a seat may change by its weights alone, and no shape
    depends on data.

    Args:
        groups: players by their kinds; the policy of the first kind decides which keys are written. Keys that others
            do not write are 0 in their rows.
        scripted: scripted players of the world with the seats that they hold, bool [N, seats].
    """

    def __init__(
        self, groups: Sequence[PolicyGroup], scripted: Sequence[tuple[TensorDictModuleBase, Tensor]], group: str
    ) -> None:
        super().__init__()
        self.group, self.policies = group, [(stack, policy) for stack, policy, _ in groups]
        self.players = [player for player, _ in scripted]
        for index, each in enumerate(groups):
            self.register_buffer(f"rows_{index}", each.rows.to(each.stack.flat.device), persistent=False)
        for index, (_, seats) in enumerate(scripted):
            self.register_buffer(f"seats_{index}", seats, persistent=False)
        readers = [*(policy for _, policy in self.policies), *self.players]
        self.in_keys = list(dict.fromkeys(key for each in readers for key in each.in_keys))
        self.out_keys = list(groups[0].policy.out_keys) if groups else [(group, keys.ACTION)]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the outputs of all players, for worlds [N]."""
        worlds, seats = tensordict.get(self.group).shape
        written: dict[NestedKey, Tensor] = {}
        for index, (stack, policy) in enumerate(self.policies):
            rows = getattr(self, f"rows_{index}")
            seen = {}
            for key, value in entries(tensordict, policy.in_keys).items():
                of_agent = isinstance(key, tuple) and self.group in key
                mine = value.flatten(0, 1)[rows] if of_agent else value[rows // seats]
                seen[key] = mine.unsqueeze(2) if of_agent else mine
            act = functools.partial(act_in_group, policy, group=self.group)
            for key, value in stack.call(act, seen, 1, randomness="different").items():
                empty = value.new_zeros(worlds * seats, *value.shape[3:])
                written[key] = written.get(key, empty).index_copy(0, rows.flatten(), value.flatten(0, 2))
        for key, value in written.items():
            tensordict.set(key, value.unflatten(0, (worlds, seats)))
        action = (self.group, keys.ACTION)
        for index, player in enumerate(self.players):
            theirs, here = player(tensordict.copy()).get(action), getattr(self, f"seats_{index}")
            here = here.reshape(*here.shape, *[1] * (theirs.ndim - 2))
            tensordict.set(action, torch.where(here, theirs, tensordict.get(action, theirs)))
        return tensordict


def act_in_group(policy: TensorDictModuleBase, tensordict: TensorDictBase, group: str | None) -> TensorDictBase:
    """Return the outputs of a policy for a tensordict whose group has lost its batch size."""
    if group is not None:
        agents = tensordict.get(group)
        agents.batch_size = next(iter(agents.values())).shape[:2]
    return policy(tensordict).select(*policy.out_keys, strict=False)
