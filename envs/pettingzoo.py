"""One world of several agents as a PettingZoo ``ParallelEnv``."""

from __future__ import annotations

import functools
import numbers
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDict, TensorDictBase
from torchrl.data import MultiCategorical

from envs.world import GROUP, World

try:
    from pettingzoo import ParallelEnv
except ImportError:
    raise ImportError('PettingZoo is not installed: pip install "torchrl_agent[multiagent]".') from None


class WorldParallelEnv(ParallelEnv):
    """A :class:`World` of several agents (``num_envs`` 1) for PettingZoo's users.

    Observations are vectors. What an agent may do stands in ``infos[agent]["action_mask"]``, as
    ``action_space(agent).sample(mask)`` takes it: int8, a tuple of them for several heads; an action that it may not do
    counts as waiting. An agent that dies is terminated and leaves ``agents``; when time is up, the rest are truncated.
    The last infos of an agent hold the world's ``episode`` statistics once the world has ended. ``render`` then shows
    the next episode, which the world has begun already; ``state`` is the ended one's.

    Args:
        world: it must hold one world, with flat observations.

    Raises:
        ValueError: there are several worlds, or one agent with flat keys, or several observations per agent.
    """

    metadata = {"name": "world_v0", "render_modes": ["rgb_array"], "is_parallelizable": True}  # noqa: RUF012

    def __init__(self, world: World) -> None:
        name = type(world).__name__
        if world.num_agents is None:
            raise ValueError(f"{name} is a world of one agent: use envs.gym for it.")
        if world.num_envs != 1:
            raise ValueError(f"{name} holds {world.num_envs} worlds: PettingZoo knows one, use num_envs=1.")
        if "observation" not in world.observation_spec[GROUP].keys():
            raise ValueError(f"{name} shows several observations per agent: use observation=flat.")
        self.world = world
        self.render_mode = "rgb_array" if hasattr(world, "draw") else None
        self.possible_agents = [f"agent_{index}" for index in range(world.num_agents)]
        self.agents: list[str] = []
        self._root: TensorDictBase = TensorDict()
        self._state: NDArray[np.float32] | None = None

    @functools.cache  # noqa: B019 - PettingZoo wants the same object every time
    def observation_space(self, agent: str) -> gymnasium.spaces.Box:
        """The vector that an agent sees."""
        space = self.world.observation_spec[GROUP, "observation"].space
        low, high = (bound[0, self._index(agent)].cpu().numpy() for bound in (space.low, space.high))
        return gymnasium.spaces.Box(low, high, dtype=low.dtype.type)

    @functools.cache  # noqa: B019
    def action_space(self, agent: str) -> gymnasium.spaces.Space:
        """The actions of an agent."""
        self._index(agent)
        spec = self.world.full_action_spec[self.world.action_key]
        if isinstance(spec, MultiCategorical):
            return gymnasium.spaces.MultiDiscrete(spec.nvec.reshape(-1, spec.shape[-1])[0].tolist())
        return gymnasium.spaces.Discrete(int(spec.space.n))

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, NDArray], dict[str, dict[str, Any]]]:
        """Begin a new episode; with a seed, the same one every time. There are no ``options``."""
        if seed is not None:
            if isinstance(seed, bool) or not isinstance(seed, numbers.Integral) or seed < 0:
                raise ValueError(f"seed is {seed!r}: give a whole number from 0.")
            self.world.set_seed(int(seed))
        self._root = self.world.reset()
        self.agents = list(self.possible_agents)
        self._state = self._root["state"][0].cpu().numpy()
        return self._observations(self._root), self._infos(self._root)

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        """One step of the living agents: observations, rewards, terminations, truncations and infos by agent."""
        if not self.agents:
            raise ValueError("step was called without living agents: call reset first.")
        root = self._root.set(self.world.action_key, self._actions(actions))
        played, self._root = self.world.step_and_maybe_reset(root)
        ended = played["next"]  # the root may hold the next episode already
        self._state = ended["state"][0].cpu().numpy()
        alive, truncated = ended[GROUP, "alive"][0].tolist(), bool(ended["truncated"])
        rewards, observations = ended[GROUP, "reward"][0, :, 0].tolist(), self._observations(ended)
        infos = self._infos(ended)
        acting = {agent: self._index(agent) for agent in self.agents}
        if bool(ended["done"]):
            statistics = {name: float(value) for name, value in ended["episode"].items()}
            for info in infos.values():
                info["episode"] = statistics
        self.agents = [agent for agent, index in acting.items() if alive[index] and not bool(ended["done"])]
        return (
            observations,
            {agent: rewards[index] for agent, index in acting.items()},
            {agent: not alive[index] for agent, index in acting.items()},
            {agent: truncated and alive[index] for agent, index in acting.items()},
            infos,
        )

    def state(self) -> NDArray[np.float32]:
        """Everything about the world, for centralised critics."""
        if self._state is None:
            raise ValueError("state was asked for before reset: call reset first.")
        return self._state

    def render(self) -> NDArray[np.uint8]:
        """A picture, uint8 [height, width, 3]."""
        if self.render_mode is None:
            raise ValueError(f"{type(self.world).__name__} cannot be drawn: it has no draw method.")
        return self.world.draw()

    def close(self) -> None:
        """Close the world."""
        if not self.world.is_closed:
            self.world.close()

    def _index(self, agent: str) -> int:
        if agent not in self.possible_agents:
            raise ValueError(f"there is no agent {agent!r}: use {', '.join(self.possible_agents)}.")
        return self.possible_agents.index(agent)

    def _actions(self, actions: dict[str, Any]) -> torch.Tensor:
        """Everybody's action as a tensor; the dead wait, which the world sees to."""
        if not isinstance(actions, dict) or set(actions) != set(self.agents):
            given = ", ".join(map(str, actions)) if isinstance(actions, dict) else repr(actions)
            raise ValueError(f"actions are for {given or 'nobody'}: give one for {', '.join(self.agents)}.")
        table = self.world.full_action_spec[self.world.action_key].zero()
        for agent, action in actions.items():
            array, space = np.asarray(action), self.action_space(agent)
            if not np.issubdtype(array.dtype, np.integer) or not space.contains(array.astype(np.int64)):
                raise ValueError(f"{agent} cannot do {action!r}: its actions are {space}.")
            table[0, self._index(agent)] = torch.as_tensor(array.astype(np.int64))
        return table

    def _observations(self, tensordict: TensorDictBase) -> dict[str, NDArray]:
        rows = tensordict[GROUP, "observation"][0].cpu().numpy()
        return {agent: rows[self._index(agent)] for agent in self.agents}

    def _infos(self, tensordict: TensorDictBase) -> dict[str, dict[str, Any]]:
        rows = tensordict[GROUP, "action_mask"][0].to(torch.int8).cpu().numpy()
        return {agent: {"action_mask": self._mask(agent, rows[self._index(agent)])} for agent in self.agents}

    def _mask(self, agent: str, row: NDArray[np.int8]) -> Any:
        """Legal actions as ``action_space(agent).sample(mask)`` wants them: one array, or a tuple of one per head."""
        space = self.action_space(agent)
        if isinstance(space, gymnasium.spaces.Discrete):
            return row
        return tuple(np.split(row, np.cumsum(space.nvec)[:-1]))
