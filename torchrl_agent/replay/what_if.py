"""Counterfactuals: the same moment played on with every other first action of every agent, and the same luck."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs import EnvBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_agent.core import keys
from torchrl_agent.core.abilities import inner_world
from torchrl_agent.explain.thought import plain
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.planned_policy import acting_policy

ROWS = 512
"""Largest number of worlds that are played on at once."""


@dataclass
class Start:
    """A moment to play on from: the world's record, tensors [..., 1] by name, and what the policy reads, [1]."""

    record: Mapping[str, Tensor]
    root: TensorDictBase


@dataclass
class Counterfactuals:
    """Plays on from moments of one world.

    Args:
        make: makes worlds like it, with the agent's transforms, for a number of worlds.
        agent: plays on, with the most likely actions.
        actions: number of actions (of the first head).
        position: places of x and y in an agent's own state; None where it has none.
        unit: the world's reward that is one of the agent's units.
    """

    make: Any
    agent: Agent
    agents: int
    actions: int
    ahead: int
    position: tuple[int, int] | None
    unit: float

    def play(self, starts: Sequence[Start]) -> list[list[list[dict[str, Any]]]]:
        """Return by moment, agent and action: ``return``, ``parts`` of it by name, and the ``path``."""
        per = self.agents * self.actions
        size = max(1, ROWS // per)
        result: list[list[list[dict[str, Any]]]] = []
        for first in range(0, len(starts), size):
            result += self._play(starts[first : first + size])
        return result

    @torch.no_grad()
    def _play(self, starts: Sequence[Start]) -> list[list[list[dict[str, Any]]]]:
        per = self.agents * self.actions
        env: EnvBase = self.make(per * len(starts))
        env.reset()
        base = inner_world(env)
        together = {name: torch.cat([start.record[name] for start in starts], -1) for name in starts[0].record}
        base.load_state_dict({name: value.repeat_interleave(per, -1) for name, value in together.items()}, strict=False)
        root = torch.cat([start.root for start in starts]).repeat_interleave(per, 0)
        who = torch.arange(self.agents).repeat_interleave(self.actions).repeat(len(starts))
        first = torch.arange(self.actions).repeat(self.agents * len(starts))
        earned, parts, paths = self._follow(env, base, root, who, first)
        plain_parts = {name: plain(value / self.unit) for name, value in parts.items() if bool(value.any())}
        found = [
            {
                "return": plain(earned[row].item() / self.unit),
                "parts": {name: values[row] for name, values in plain_parts.items() if values[row]},
                **({} if paths is None else {"path": plain(paths[row], 2)}),
            }
            for row in range(len(who))
        ]
        grouped = [found[at : at + self.actions] for at in range(0, len(found), self.actions)]
        return [grouped[at : at + self.agents] for at in range(0, len(grouped), self.agents)]

    def _follow(
        self, env: EnvBase, base: Any, root: TensorDictBase, who: Tensor, first: Tensor
    ) -> tuple[Tensor, dict[str, Tensor], Tensor | None]:
        """Return rewards and their parts, summed, [B], and positions [B, steps, 2] of the agents that are followed."""
        rows, policy = torch.arange(len(who)), acting_policy(self.agent)
        earned, over = torch.zeros(len(who)), torch.zeros(len(who), dtype=torch.bool)
        parts: dict[str, Tensor] = {}
        paths = []
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            for step in range(self.ahead):
                root = policy(root)
                action = root[env.action_key]
                if step == 0:
                    wide = action.reshape(len(who), self.agents, -1).clone()
                    wide[rows, who, 0] = first
                    root.set(env.action_key, wide.reshape(action.shape))
                if self.position is not None:
                    paths.append(self._own(root, rows, who)[:, list(self.position)])
                for name, value in base.reward_by_part(root[env.action_key]).items():
                    mine = value.T[rows, who] if value.ndim == 2 else value
                    parts[name] = parts.get(name, torch.zeros(len(who))) + torch.where(over, 0.0, mine)
                played, root = env.step_and_maybe_reset(root)
                earned += torch.where(over, 0.0, self._reward(played, rows, who))
                over |= played[keys.NEXT, keys.DONE].reshape(-1)
        return earned, parts, torch.stack(paths, 1) if paths else None

    def _reward(self, played: TensorDictBase, rows: Tensor, who: Tensor) -> Tensor:
        after = played[keys.NEXT] if self.agent.group is None else played[keys.NEXT, self.agent.group]
        return after[keys.REWARD].reshape(len(rows), -1)[rows, who]

    def _own(self, root: TensorDictBase, rows: Tensor, who: Tensor) -> Tensor:
        assert self.agent.perception is not None, "a position is part of perception's own state"
        group = root if self.agent.group is None else root[self.agent.group]
        own = torch.cat([group[name] for name in self.agent.perception.known], -1)
        return own if self.agent.group is None else own[rows, who]
