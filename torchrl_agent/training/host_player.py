"""Rollouts in worlds on the host that step arrays: no tensordict is made in a step, and no function compiled by
``torch.compile`` checks its surroundings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tensordict import TensorDict, TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.envs import EnvBase, TransformedEnv

from torchrl_agent.core import keys
from torchrl_agent.core.abilities import abilities
from torchrl_agent.models.agent import Behavior
from torchrl_agent.optimization.tracing import TracedFunction


def plays_arrays(env: EnvBase, agent: Behavior) -> bool:
    """True if a :class:`HostPlayer` can play: a world of arrays on the CPU, without transforms, and an agent that
    records nothing but what the world shows and the policy writes.
    """
    if isinstance(env, TransformedEnv) or not abilities(env).steps_arrays or env.device.type != "cpu":
        return False
    return agent.group is None and set(agent.recorded_keys) <= set(env.observation_spec.keys())


@dataclass
class _Row:
    """Places of one step in a rollout's buffers."""

    shown: list[tuple[np.ndarray, np.ndarray]]
    """Entries of the frame, and the root's, which they are copied from."""
    written: list[Tensor]
    """Entries that the policy writes, in the order in which it returns them; the action comes first."""
    later: dict[NestedKey, np.ndarray]
    """Entries after the step."""


class HostPlayer:
    """Plays a rollout in a world of arrays, like :class:`~torchrl_agent.training.collector.RolloutCollector` does.

    Args:
        env: a world for which :func:`plays_arrays` is true, with ``play`` and ``begin`` of arrays.
        act: the policy on a root, as a tensordict.
        written: keys that the policy writes, the action first.
        compile: compile the policy.
    """

    def __init__(
        self, env: Any, act: Callable[[TensorDictBase], TensorDictBase], written: list[str], compile: bool
    ) -> None:
        def choose(root: TensorDictBase) -> tuple[Tensor, ...]:
            acted = act(root)
            return tuple(acted.get(key) for key in written)

        self.env, self.written = env, written
        self.policy = TracedFunction("the policy", choose, compile)
        self._rows: list[_Row] = []
        self._act: Callable[[], tuple[Tensor, ...]]

    def begin(self, root: TensorDictBase, buffers: TensorDict, inputs: list[NestedKey]) -> None:
        """Prepare to write into buffers [T, N] and to keep the root [N], both in place.

        Args:
            root: observations before a rollout.
            buffers: those of the rollout.
            inputs: keys that the policy reads.
        """
        self._root = {key: root.get(key).numpy() for key in self.env.observation_spec.keys() if key != keys.EPISODE}
        self._act = self.policy.bound(root.select(*inputs))
        frames = buffers.exclude(keys.NEXT)
        shown = [key for key in frames.keys(True, True) if key not in self.written]
        self._rows = [
            _Row(
                [(frame.get(key).numpy(), root.get(key).numpy()) for key in shown],
                [frame.get(key) for key in self.written],
                {key: value.numpy() for key, value in frame.get(keys.NEXT).items(True, True)},
            )
            for frame in buffers.unbind(0)
        ]

    def play(self) -> None:
        """Play the steps of a rollout."""
        for row in self._rows:
            for place, value in row.shown:
                place[...] = value
            for place, value in zip(row.written, self._act(), strict=True):
                place.copy_(value)
            self._step(row)

    def _step(self, row: _Row) -> None:
        """Step the world, write what came of it, and begin new episodes where they ended."""
        played = self.env.play(row.written[0].numpy())
        over = played.terminated | played.truncated
        ends = {keys.REWARD: played.reward, keys.DONE: over, keys.TERMINATED: played.terminated}
        after: dict[NestedKey, np.ndarray] = {**played.shown, **{key: value[:, None] for key, value in ends.items()}}
        for name, values in played.episode.items():
            after[keys.EPISODE, name] = values
        for key, place in row.later.items():
            place[...] = after[key]
        shown = self.env.begin(over) if over.any() else played.shown
        for key, place in self._root.items():
            place[...] = shown[key]
