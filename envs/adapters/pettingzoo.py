"""PettingZoo ``ParallelEnv`` around one world of several agents."""

from __future__ import annotations

import copy
import functools
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDict, TensorDictBase

from envs.adapters.gymnasium_spaces import as_array, discrete_actions, joined, observation_boxes
from envs.base.arguments import checked_seed
from envs.base.world import GROUP, World

try:
    from pettingzoo import ParallelEnv
except ImportError:
    raise ImportError('PettingZoo is not installed: pip install "torchrl-agent[multiagent]".') from None


class WorldParallelEnv(ParallelEnv):
    """PettingZoo environment around a :class:`World` of several agents (``num_envs`` 1).

    An agent observes an array, or a dict of them if the world shows several. If the world has action masks, they stand
    in ``infos[agent]["action_mask"]``, as ``action_space(agent).sample(mask)`` takes them: int8, a tuple of them for
    several heads. If the world has ``alive`` flags, an agent that dies is terminated and leaves ``agents``; when the
    world ends, the rest are terminated or truncated with it. The last infos of an agent hold the world's ``episode``
    statistics once the world has ended; ``render`` and ``state`` then still show its end.

    Args:
        world: it must hold one world.

    Raises:
        ValueError: there are several worlds, or one agent with flat keys, or actions are continuous.
    """

    metadata = {"name": "world_v0", "render_modes": ["rgb_array"], "is_parallelizable": True}  # noqa: RUF012

    def __init__(self, world: World) -> None:
        name = type(world).__name__
        if world.num_agents is None:
            raise ValueError(f"{name} is a world of one agent: use envs.adapters.gymnasium_vector for it.")
        if world.num_envs != 1:
            raise ValueError(f"{name} holds {world.num_envs} worlds: PettingZoo knows one, use num_envs=1.")
        self._boxes, self._actions_space = observation_boxes(world), discrete_actions(world)
        self.world = world
        self.render_mode = "rgb_array" if hasattr(world, "draw") else None
        self.possible_agents = [f"agent_{index}" for index in range(world.num_agents)]
        self.agents: list[str] = []
        self._root: TensorDictBase = TensorDict()

    @functools.cache  # noqa: B019 - PettingZoo wants the same object every time
    def observation_space(self, agent: str) -> gymnasium.spaces.Space:
        """Observation space of an agent."""
        self._index(agent)
        return joined(self._boxes)

    @functools.cache  # noqa: B019
    def action_space(self, agent: str) -> gymnasium.spaces.Space:
        """Action space of an agent."""
        self._index(agent)
        return copy.deepcopy(self._actions_space)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, NDArray], dict[str, dict[str, Any]]]:
        """Begin a new episode; with a seed, the same one every time. ``options`` are not supported."""
        if seed is not None:
            self.world.set_seed(checked_seed(seed))
        self._root = self.world.reset()
        self.agents = list(self.possible_agents)
        return self._observations(self._root), self._infos(self._root)

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        """Step the living agents; return observations, rewards, terminations, truncations and infos by agent."""
        if not self.agents:
            raise ValueError("step was called without living agents: call reset first.")
        played = self.world.step(self._root.set(self.world.action_key, self._actions(actions)))
        self._root = ended = self.world.step_mdp(played)
        over, terminated = bool(ended["done"]), bool(ended["terminated"])
        alive = [True] * len(self.possible_agents)
        if "alive" in ended[GROUP].keys():
            alive = ended[GROUP, "alive"][0].tolist()
        rewards, observations = played["next", GROUP, "reward"][0, :, 0].tolist(), self._observations(ended)
        infos = self._infos(ended)
        acting = {agent: self._index(agent) for agent in self.agents}
        if over:
            statistics = {name: float(value) for name, value in ended["episode"].items()}
            for info in infos.values():
                info["episode"] = statistics
        self.agents = [agent for agent, index in acting.items() if alive[index] and not over]
        return (
            observations,
            {agent: rewards[index] for agent, index in acting.items()},
            {agent: terminated or not alive[index] for agent, index in acting.items()},
            {agent: over and not terminated and alive[index] for agent, index in acting.items()},
            infos,
        )

    def state(self) -> NDArray:
        """Global state of the world, for centralized critics."""
        if "state" not in self.world.observation_spec.keys():
            raise ValueError(f"{type(self.world).__name__} shows no state of the whole world: do without.")
        if self._root.is_empty():
            raise ValueError("state was asked for before reset: call reset first.")
        return self._root["state"][0].cpu().numpy()

    def render(self) -> NDArray[np.uint8]:
        """Return a picture, uint8 [height, width, 3]."""
        return self.world.render()

    def close(self) -> None:
        """Close the world."""
        if not self.world.is_closed:
            self.world.close()

    def _index(self, agent: str) -> int:
        if agent not in self.possible_agents:
            raise ValueError(f"there is no agent {agent!r}: use {', '.join(self.possible_agents)}.")
        return self.possible_agents.index(agent)

    def _actions(self, actions: dict[str, Any]) -> torch.Tensor:
        """Return the actions of all agents as a tensor; the world itself makes dead agents wait."""
        if not isinstance(actions, dict) or set(actions) != set(self.agents):
            given = ", ".join(map(str, actions)) if isinstance(actions, dict) else repr(actions)
            raise ValueError(f"actions are for {given or 'no agent'}: give one for {', '.join(self.agents)}.")
        together = self.world.full_action_spec[self.world.action_key].zero()
        for agent, action in actions.items():
            array, space = np.asarray(action), self.action_space(agent)
            if not np.issubdtype(array.dtype, np.integer) or not space.contains(array.astype(np.int64)):
                raise ValueError(f"{agent} cannot do {action!r}: its actions are {space}.")
            together[0, self._index(agent)] = torch.as_tensor(array.astype(np.int64))
        return together

    def _observations(self, tensordict: TensorDictBase) -> dict[str, Any]:
        rows = {key: as_array(tensordict[GROUP, key][0]) for key in self._boxes}
        seen = {agent: {key: rows[key][self._index(agent)] for key in rows} for agent in self.agents}
        return seen if len(rows) > 1 else {agent: next(iter(parts.values())) for agent, parts in seen.items()}

    def _infos(self, tensordict: TensorDictBase) -> dict[str, dict[str, Any]]:
        if "action_mask" not in tensordict[GROUP].keys():
            return {agent: {} for agent in self.agents}
        rows = tensordict[GROUP, "action_mask"][0].to(torch.int8).cpu().numpy()
        return {agent: {"action_mask": self._mask(agent, rows[self._index(agent)])} for agent in self.agents}

    def _mask(self, agent: str, row: NDArray[np.int8]) -> Any:
        """Action mask as ``action_space(agent).sample(mask)`` takes it: one array, or a tuple of one per head."""
        space = self.action_space(agent)
        if isinstance(space, gymnasium.spaces.Discrete):
            return row
        return tuple(np.split(row, np.cumsum(space.nvec)[:-1]))
