"""VMAS's worlds of several agents as batched TorchRL worlds."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDictBase
from torchrl.data import Categorical, Unbounded
from torchrl.envs import MarlGroupMapType, VmasEnv
from typing_extensions import override

from envs.libs import GROUP, Drawn, picture, require
from envs.libs.others import Others
from envs.toolkit.names import did_you_mean


class VectorVmasEnv(Drawn, VmasEnv):
    """Scenario of VMAS (Bettini et al. 2022), whose worlds are stepped together as tensors.

    TorchRL 0.14.1 reports the time limit as termination; here it is truncation, so that the value of the last state is
    bootstrapped. All agents are in one group, ``agents``.

    Args:
        scenario: VMAS's name, such as ``balance`` or ``navigation``.
        num_envs: number of worlds.
        max_steps: number of steps until the world is truncated.
        show_state: also show ``state`` [N, A * F], all agents' observations side by side, for a centralized critic.
        show_others: also show each agent the others' last actions (see :class:`~envs.libs.others.Others`).
        render_mode: ``rgb_array`` for a world that can be drawn.
        **kwargs: arguments of :class:`~torchrl.envs.VmasEnv`, such as ``continuous_actions``, and of the scenario, such
            as ``n_agents``.

    Raises:
        ValueError: VMAS is not installed or has no such scenario, or the agents differ in their observation or action
            spaces.
    """

    def __init__(
        self,
        scenario: str,
        num_envs: int = 1,
        *,
        max_steps: int = 100,
        show_state: bool = False,
        show_others: bool = False,
        render_mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        require("vmas", "vmas")
        if isinstance(scenario, str) and scenario.removesuffix(".py") not in self.available_envs:
            raise ValueError(
                f"VMAS has no scenario {scenario!r}{did_you_mean(scenario, self.available_envs)}: use one of "
                f"{', '.join(self.available_envs)}."
            )
        self.render_mode = render_mode
        self.time_limit, self.show_state, self.show_others = max_steps, show_state, show_others
        kwargs.setdefault("group_map", MarlGroupMapType.ALL_IN_ONE_GROUP)
        super().__init__(scenario, num_envs=num_envs, **kwargs)
        if self.het_specs:
            raise ValueError(
                f"the agents of VMAS's {scenario!r} differ in what they see or do, but one policy is learned for all: "
                "choose another scenario."
            )

    @override
    def _draw(self, world: int = 0) -> NDArray[np.uint8]:
        return picture(self.scenario_name, self._env.render, "rgb_array", world)

    def _make_specs(self, env: Any) -> None:
        super()._make_specs(env)
        done, shown = self.full_done_spec.clone(), self.full_observation_spec.clone()
        done["truncated"] = Categorical(2, shape=(*self.batch_size, 1), dtype=torch.bool, device=self.device)
        if self.show_state:
            size = shown[GROUP, "observation"].shape[1:].numel()
            shown["state"] = Unbounded((*self.batch_size, size), device=self.device)
        self._others = None
        if self.show_others:
            action = self.full_action_spec[GROUP, "action"]
            choices = int(action.space.n) if isinstance(action, Categorical) else None
            self._others = Others(action.shape[0], action.shape[1], choices, self.device)
            self._others.add_specs(shown[GROUP])
        self.done_spec, self.observation_spec = done, shown

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        if self._others is not None:
            self._others.begin(None if tensordict is None else tensordict.get("_reset", None))
        return self._complete(super()._reset(tensordict, **kwargs))

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        if self._others is not None:
            self._others.act(tensordict.get((GROUP, "action")))
        return self._complete(super()._step(tensordict))

    def _complete(self, tensordict: TensorDictBase) -> TensorDictBase:
        truncated = (self._env.steps >= self.time_limit).unsqueeze(-1)
        tensordict.set("truncated", truncated)
        tensordict.set("done", tensordict.get("terminated") | truncated)
        if self.show_state:
            tensordict.set("state", tensordict.get((GROUP, "observation")).flatten(-2).clone())
        if self._others is not None:
            self._others.show(tensordict.get(GROUP))
        return tensordict
