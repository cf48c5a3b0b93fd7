"""PettingZoo's worlds of several agents as batched TorchRL worlds."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from tensordict import TensorDict, TensorDictBase
from torchrl.data import Bounded, Categorical, Composite, Unbounded
from torchrl.envs import EnvBase
from typing_extensions import override

from envs.base.arguments import MOST_OBJECTS, checked_number
from envs.libs import GROUP, Drawn, picture, require, to_device
from envs.libs.others import Others


class VectorPettingZooEnv(Drawn, EnvBase):
    """``num_envs`` copies of a parallel PettingZoo world, stepped one after the other in this process.

    TorchRL's wrapper holds one world; sixteen of them in a ``SerialEnv`` make a third of the steps per second. All
    agents are in one group, ``agents``. ``alive`` [N, A] is True for agents that still act; agents that left have
    observation and reward zero. ``truncated`` [N, A] is True for agents that just left without having died, while
    others go on. A world ends when no agent acts any more, and counts as truncated if an agent was truncated.

    Args:
        module: Python module with a ``parallel_env``, such as ``mpe2.simple_spread_v3``.
        num_envs: number of worlds.
        device: device of their tensors.
        show_state: also show PettingZoo's ``state`` [N, G], for a centralized critic.
        show_others: also show each agent the others' last actions (see :class:`~envs.libs.others.Others`).
        **kwargs: arguments of ``parallel_env``, such as ``render_mode="rgb_array"``, with which the world can be drawn.

    Raises:
        ValueError: PettingZoo or the module is missing, the agents differ in their spaces, or their observations are no
            box or their actions neither a box nor one discrete choice.
    """

    def __init__(
        self,
        module: str,
        num_envs: int = 1,
        *,
        device: str | torch.device = "cpu",
        show_state: bool = False,
        show_others: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(device=torch.device(device), batch_size=[num_envs])
        self.module = module
        self.worlds = [_parallel_env(module, kwargs) for _ in range(checked_number(num_envs, MOST_OBJECTS))]
        self.agents, self.show_state = list(self.worlds[0].possible_agents), show_state
        self.metadata = getattr(self.worlds[0], "metadata", {})
        self.render_mode = getattr(self.worlds[0], "render_mode", None)
        self.group_map = {GROUP: self.agents}
        self._seeds: list[int | None] = [None] * num_envs
        seen, act = _shared_spaces(self.worlds[0], module)
        agents = (num_envs, len(self.agents))
        flags = {name: Categorical(2, shape=agents, dtype=torch.bool) for name in ("alive", "truncated")}
        group = Composite(observation=Unbounded((*agents, *seen.shape)), **flags, shape=agents)
        self.observation_spec = Composite({GROUP: group}, shape=(num_envs,)).to(self.device)
        self._seen = np.zeros((*agents, *seen.shape), dtype=np.float32)
        self._alive: NDArray = np.zeros(agents, dtype=bool)
        self._truncated = self._alive.copy()
        if show_state:
            self.worlds[0].reset(seed=0)
            self._state = np.zeros((num_envs, np.asarray(self.worlds[0].state()).size), dtype=np.float32)
            self.observation_spec["state"] = Unbounded(self._state.shape, device=self.device)
        choices = int(act.n) if isinstance(act, spaces.Discrete) else None
        self._first_action = int(act.start) if isinstance(act, spaces.Discrete) else 0
        self._others = Others(*agents, choices, self.device) if show_others else None
        if self._others is not None:
            self._others.add_specs(self.observation_spec[GROUP])
        action = _box(act, agents) if choices is None else Categorical(choices, shape=agents)
        self.action_spec = Composite({GROUP: Composite(action=action, shape=agents)}, shape=(num_envs,)).to(self.device)
        self._make_outcome_specs(agents)

    def _make_outcome_specs(self, agents: tuple[int, int]) -> None:
        reward = Composite(reward=Unbounded((*agents, 1)), shape=agents)
        self.reward_spec = Composite({GROUP: reward}, shape=(agents[0],)).to(self.device)
        flag = Categorical(2, shape=(agents[0], 1), dtype=torch.bool)
        flags = {name: flag.clone() for name in ("done", "terminated", "truncated")}
        self.done_spec = Composite(flags, shape=(agents[0],)).to(self.device)

    def _set_seed(self, seed: int | None) -> None:
        """Set a seed of its own for each world, used by its next reset."""
        self._seeds = [None if seed is None else seed + index for index in range(len(self.worlds))]

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        chosen = None if tensordict is None else tensordict.get("_reset", None)
        self._truncated[:] = False
        for row, world in enumerate(self.worlds):
            if chosen is None or bool(chosen[row]):
                seen, _ = world.reset(seed=self._seeds[row])
                self._seeds[row] = None
                self._alive[row] = True
                self._write_observations(row, seen)
        if self._others is not None:
            self._others.begin(chosen)
        return self._shown()

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        actions = tensordict.get((GROUP, "action")).cpu().numpy() + self._first_action
        if self._others is not None:
            self._others.act(tensordict.get((GROUP, "action")))
        reward = np.zeros((*actions.shape[:2], 1), dtype=np.float32)
        ended: NDArray = np.zeros((len(self.worlds), 1), dtype=bool)
        cut = ended.copy()
        self._truncated[:] = False
        for row, world in enumerate(self.worlds):
            chosen = {agent: actions[row, self.agents.index(agent)] for agent in world.agents}
            seen, rewards, terminated, truncated, _ = world.step(chosen)
            playing = {agent for agent in world.agents if not (terminated.get(agent) or truncated.get(agent))}
            ended[row], cut[row] = not playing, not playing and any(truncated.values())
            for agent, value in rewards.items():
                index = self.agents.index(agent)
                reward[row, index] = value
                # an agent that is truncated with the world is still alive; one that leaves a running world is not
                self._alive[row, index] = not terminated[agent] and (agent in playing or cut[row].item())
                self._truncated[row, index] = truncated[agent] and not terminated[agent] and bool(playing)
            self._write_observations(row, seen)
        flags = {"done": ended, "terminated": ended & ~cut, "truncated": cut}
        shown = self._shown().update({name: to_device(flag, self.device) for name, flag in flags.items()})
        shown.set((GROUP, "reward"), to_device(reward, self.device))
        return shown

    @override
    def _draw(self, world: int = 0) -> NDArray[np.uint8]:
        return picture(self.module, self.worlds[world].render)

    def close(self, *, raise_if_closed: bool = True) -> None:
        """Close all worlds."""
        super().close(raise_if_closed=raise_if_closed)
        for world in self.worlds:
            world.close()

    def extra_repr(self) -> str:
        """Return the text that PyTorch prints between the parentheses."""
        return f"module={self.module}, num_envs={len(self.worlds)}, device={self.device}"

    def _write_observations(self, row: int, seen: dict[str, NDArray]) -> None:
        """Store the observations of a world's agents."""
        for index, agent in enumerate(self.agents):
            self._seen[row, index] = seen.get(agent, 0.0)
        if self.show_state:
            self._state[row] = np.asarray(self.worlds[row].state()).reshape(-1)

    def _shown(self) -> TensorDict:
        arrays = {"observation": self._seen, "alive": self._alive, "truncated": self._truncated}
        group = {name: to_device(array, self.device) for name, array in arrays.items()}
        shown = TensorDict({GROUP: TensorDict(group, self._alive.shape, self.device)}, self.batch_size, self.device)
        if self.show_state:
            shown.set("state", to_device(self._state, self.device))
        if self._others is not None:
            self._others.show(shown.get(GROUP))
        return shown


def _parallel_env(module: str, options: dict[str, Any]) -> Any:
    require("pettingzoo", "multiagent")
    try:
        return importlib.import_module(module).parallel_env(**options)
    except (ImportError, AttributeError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"PettingZoo's world {module} cannot be made ({reason}): name a module with a parallel_env."
        ) from None


def _shared_spaces(world: Any, module: str) -> tuple[spaces.Box, spaces.Box | spaces.Discrete]:
    """Return the observation and action space that all agents share."""
    agents = world.possible_agents
    seen, act = world.observation_space(agents[0]), world.action_space(agents[0])
    if any(world.observation_space(agent) != seen or world.action_space(agent) != act for agent in agents):
        raise ValueError(
            f"the agents of {module} differ in what they see or do, but one policy is learned for all: choose another "
            "world."
        )
    if not isinstance(seen, spaces.Box) or not isinstance(act, (spaces.Box, spaces.Discrete)):
        raise ValueError(f"the agents of {module} see {seen} and do {act}: boxes are seen, boxes or one choice done.")
    return seen, act


def _box(space: spaces.Box, agents: tuple[int, int]) -> Bounded:
    low, high = (torch.as_tensor(bound).expand(*agents, *space.shape) for bound in (space.low, space.high))
    return Bounded(low, high, dtype=torch.float32)
