"""Actions for observations that an external loop hands over, in the form of ``predict`` of Stable-Baselines3's
models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from tensordict import TensorDict
from torch import Tensor
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_agent.core import keys
from torchrl_agent.models.planned_policy import acting_actor
from torchrl_agent.modules.memory import check_states

if TYPE_CHECKING:
    from torchrl_agent.models.agent import Agent

States = tuple[Tensor, ...]
"""Recurrent states of an agent, one tensor [rows, ...] for each of ``agent.memory``."""


class Predicting:
    """Methods that an agent shares with models of Stable-Baselines3."""

    @torch.no_grad()
    def predict(
        self: Any,
        observation: ArrayLike | Tensor | Mapping[str, ArrayLike | Tensor],
        state: Sequence[ArrayLike | Tensor] | None = None,
        episode_start: ArrayLike | Tensor | None = None,
        deterministic: bool = True,
        action_masks: ArrayLike | Tensor | None = None,
    ) -> tuple[NDArray[Any] | Tensor, States | None]:
        """Return actions as ``predict`` of Stable-Baselines3's models does, so that loops written for those run this
        agent. Observations are given as the world shows them: the agent normalizes them itself.

        Args:
            observation: one, or a batch [rows, ...]; a dict by key where the world shows several. In a world of several
                agents each of them is a row.
            state: states that the previous call returned; None to begin.
            episode_start: rows that begin an episode, bool [rows], whose state is then zero.
            deterministic: take the most likely action instead of drawing one.
            action_masks: legal actions, bool [rows, actions], unless the observation is a dict that has them.

        Returns:
            actions, [rows, ...] or of the one observation, NumPy arrays unless tensors were given; and the states
            of an agent with memory (None without).

        Raises:
            ValueError: an input that the agent reads is missing or has another shape.
        """
        device = self.normalizer.running.mean.device
        given = _by_key(self, observation)
        if action_masks is not None:
            given[keys.ACTION_MASK] = action_masks
        values = {key: torch.as_tensor(given[key], device=device) for key in _needed(self, given)}
        batch = _batch(self, values)
        count = batch.numel()
        if keys.ACTION_MASK in values:
            values[keys.ACTION_MASK] = values[keys.ACTION_MASK].reshape(*batch, -1).bool()
        rows = TensorDict(
            {
                key: _as_seen(self, key, value).reshape((count, *value.shape[len(batch) :]))
                for key, value in values.items()
            },
            [count],
            device=device,
        )
        if self.memory:
            _remember(self, rows, state, episode_start)
        mode = ExplorationType.DETERMINISTIC if deterministic else ExplorationType.RANDOM
        with set_exploration_type(mode):
            rows = acting_actor(self)(rows)
        action = rows.get(keys.ACTION)
        action = action.reshape((*batch, *action.shape[1:]))
        states = tuple(rows.get((keys.NEXT, key)) for key in self.memory) or None
        is_tensor = any(isinstance(value, Tensor) for value in given.values())
        return action if is_tensor else action.cpu().numpy(), states


def _by_key(agent: Agent, observation: Any) -> dict[str, Any]:
    """Observations by key; several observations have one each."""
    if isinstance(observation, Mapping):
        return dict(observation)
    if isinstance(observation, tuple):
        raise ValueError("observation is a tuple: of Gymnasium's reset() give its first part, the observation.")
    seen = list(agent.normalizer.in_keys)
    if len(seen) > 1:
        raise ValueError(f"observation is one array but this agent sees {', '.join(seen)}: give a dict of them.")
    return {seen[0]: np.asarray(observation) if isinstance(observation, list) else observation}


def _needed(agent: Agent, given: dict[str, Any]) -> list[str]:
    """Keys that the actor reads of an observation."""
    carried = (*agent.memory, keys.IS_INIT)
    needed = [key for key in agent.input_keys if key in agent.actor.in_keys and key not in carried]
    missing = [key for key in needed if key not in given]
    if missing == [keys.ACTION_MASK]:
        raise ValueError(
            "this agent chooses among legal actions: give action_masks, bool [..., actions], as the world shows them."
        )
    if missing:
        raise ValueError(f"observation lacks {', '.join(missing)}, which this agent reads: give a dict with each.")
    return needed


def _batch(agent: Agent, values: dict[str, Tensor]) -> torch.Size:
    """Leading shape of the observations: () for a single one."""
    batch: torch.Size | None = None
    for key, shape in zip(agent.normalizer.in_keys, agent.normalizer.shapes, strict=True):
        found = values[key].shape
        leading = found[: max(len(found) - len(shape), 0)]
        batch = leading if batch is None else batch
        if found != (*batch, *shape):
            raise ValueError(
                f"{key} has shape {tuple(found)} but this agent reads {tuple(shape)}, or a batch of them: give what "
                "its world shows."
            )
    assert batch is not None
    return batch


def _as_seen(agent: Agent, key: str, value: Tensor) -> Tensor:
    """Convert numbers to float32; bytes of pictures, indices and flags stay as they are."""
    return value.float() if key in agent.normalizer.in_keys and value.dtype != torch.uint8 else value


def _remember(agent: Agent, rows: TensorDict, state: Any, episode_start: Any) -> None:
    """Write the agent's states into rows: zeros at the beginning, and where an episode starts."""
    count, device = len(rows), rows.device
    begins = torch.ones(count, dtype=torch.bool, device=device)
    if state is None:
        state = [torch.zeros(count, *spec.shape, dtype=spec.dtype, device=device) for spec in agent.memory.values()]
    else:
        begins &= torch.as_tensor(episode_start is not None and episode_start, device=device).bool().reshape(-1)
    if len(state) != len(agent.memory):
        raise ValueError(f"state has {len(state)} parts but this agent carries {len(agent.memory)}: give the last one.")
    rows.set(keys.IS_INIT, begins.unsqueeze(-1))
    for key, value in zip(agent.memory, state, strict=True):
        value = torch.as_tensor(value, device=device)
        if value.shape[:1] != (count,):
            raise ValueError(f"state is of {len(value)} rows but the observation of {count}: begin with state=None.")
        rows.set(key, value)
    check_states(rows, agent.memory, rows.batch_size)
