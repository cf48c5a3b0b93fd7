"""TorchRL environment of the duel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.data import Bounded, Categorical, Composite
from typing_extensions import override

from envs.arena.rules import THRUSTING, Rules, make_rules
from envs.base.contract import GROUP
from envs.base.game import Names, NoSettings
from envs.base.world import World
from envs.duel.dynamics import advance, ends, result, reward
from envs.duel.observation import NAMES, observe
from envs.duel.picture import SIZE, marks, scene, sketch
from envs.duel.rules import DUEL, SEATS
from envs.duel.scripted import ScriptedPlayer, play
from envs.duel.state import STREAM_OPPONENT, State, spawn
from envs.toolkit.chance import Chance
from envs.toolkit.names import did_you_mean

OPPONENTS = ("scripted", "turret", "random", "idle")
"""Opponents for the second seat: a scripted policy that flies, one that stands and shoots, random actions, and no
actions.
"""


class DuelEnv(World):
    """Two ships of the Arena against each other, each with six hits to lose; ``num_envs`` worlds at once on one device.

    Each observes the game in its own frame, so that one policy plays both seats (self-play); with an ``opponent`` the
    world plays the second seat itself, and there is one agent.

    Keys: ``("agents", "observation")`` float32 [N, A, 38] (envs/duel/observation.py names the features); ``("agents",
    "action")`` int64 [N, A] as in the Arena's style 1; ``("agents", "reward")`` [N, A, 1], 0.1 for a hit dealt, -0.1
    for one taken and 1, -1 or 0 for the result, a zero-sum game; ``done``, ``terminated`` (a ship is dead),
    ``truncated`` (time is up: the ship with more health wins) [N, 1]; ``("episode", name)`` [N, 1], the statistics of
    the running episode from the first seat's view: ``win``, ``draw``, ``hits_dealt``, ``hits_taken``, ``knockout``.

    Args:
        num_envs: number of worlds.
        device: device of the worlds; the CPU by default.
        seed: world i has the same game for the same seed, whatever ``num_envs`` is.
        rules: a :class:`~envs.arena.rules.Rules`, or a mapping of differences from the duel's.
        opponent: None for two agents, or the second seat's policy: ``scripted``, ``turret``, ``random`` or ``idle``.
        desynchronize: start worlds at random step counts, so that they do not all end at once.
        action_repeat: number of game steps with the same action in each step of the world.
        compile: (taken by TorchRL's metaclass) ``True``, or options of ``torch.compile``: see :meth:`World.compile`.

    Raises:
        ValueError: an argument is out of its range; the sentence names it and the valid values.
    """

    film_fps = 60

    def __init__(
        self,
        num_envs: int = 1,
        *,
        device: torch.device | str | None = None,
        seed: int = 0,
        rules: Rules | dict[str, float] | None = None,
        opponent: str | None = None,
        desynchronize: bool = False,
        action_repeat: int = 1,
    ) -> None:
        if opponent is not None and opponent not in OPPONENTS:
            raise ValueError(
                f"opponent is {opponent!r}{did_you_mean(opponent, OPPONENTS)}: use one of {', '.join(OPPONENTS)}, or "
                "None for two agents."
            )
        super().__init__(num_envs, device=device, seed=seed, action_repeat=action_repeat)
        self.rules, self.opponent = make_rules({} if rules is None else rules, DUEL), opponent
        self.num_agents = SEATS if opponent is None else 1
        self.truncation_limit = math.ceil(self.rules.max_steps / self.action_repeat)
        shape = (num_envs, self.num_agents)
        seen = Bounded(-1.0, 1.0, (*shape, len(NAMES)), device=self.device)
        group = Composite(observation=seen, shape=shape, device=self.device)
        observations = Composite({GROUP: group}, shape=(num_envs,), device=self.device)
        actions = Categorical(len(THRUSTING), shape=shape, dtype=torch.int64, device=self.device)
        self._build(observations, actions, midway=desynchronize)

    @override
    def spawn(self, settings: NoSettings, chance: Chance, midway: bool) -> State:
        """Return worlds with ships at opposite positions."""
        return spawn(settings.worlds, chance, self.rules, midway)

    @override
    def advance(self, state: State, action: Tensor, chance: Chance) -> State:
        """Return the state after one step of the game."""
        seats = action.T
        if self.opponent is not None:
            seats = torch.cat((seats, self._opponents(state, chance).unsqueeze(0)))
        return advance(state, seats, self.rules)

    def _opponents(self, state: State, chance: Chance) -> Tensor:
        """Compute the opponent's actions in the second seat, int64 [N]."""
        if self.opponent == "random":
            return (chance.uniform(STREAM_OPPONENT, 1)[0] * len(THRUSTING)).long()
        if self.opponent == "idle":
            return torch.zeros_like(state.step, dtype=torch.int64)
        return play(state, self.rules, flies=self.opponent == "scripted")[1]

    @override
    def observe(self, state: State) -> dict[str, dict[str, Tensor]]:
        """Return the agents' observations."""
        return {GROUP: {"observation": observe(state, self.rules)[:, : self.num_agents].clone()}}

    @override
    def outcome(self, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """Return reward, terminated and truncated of the last step."""
        return reward(state, self.rules)[: self.num_agents], *ends(state, self.rules)

    @override
    def statistics(self, state: State) -> dict[str, Tensor]:
        """Return the statistics so far, from the first seat's view."""
        first, dead = result(state, self.rules)[0], ends(state, self.rules)[0]
        over = dead | ends(state, self.rules)[1]
        return {
            "win": (first > 0).float(),
            "draw": (over & (first == 0)).float(),
            "hits_dealt": state.total[0],
            "hits_taken": state.total[1],
            "knockout": dead.float(),
        }

    @override
    def names(self) -> Names:
        """Return names of the actions and of the observation's components."""
        return {"actions": THRUSTING._fields, "observation": {"observation": NAMES}}

    @override
    def players(self) -> dict[str, TensorDictModuleBase]:
        """Return policies of this world instance: a scripted one that flies, one that does not, and the random one."""
        return {
            "scripted": ScriptedPlayer(self, flies=True),
            "turret": ScriptedPlayer(self, flies=False),
            **super().players(),
        }

    def draw(self, world: int = 0, size: tuple[int, int] = SIZE) -> np.ndarray:
        """Return a picture of one world's present state, uint8 [height, width, 3]; ``size`` is (width, height)."""
        return sketch(self.state, world, self.rules, size).picture()

    def scene(self, world: int = 0) -> dict[str, Any]:
        """Return the drawing of one world's present state as vectors, with lines to what each ship observes."""
        return scene(self.state, world, self.rules)

    def marks(self) -> dict[str, Any]:
        """Return the drawing of any moment as shapes whose numbers are read from the record."""
        return marks(self.rules).plain()

    @override
    def extra_repr(self) -> str:
        """See :meth:`World.extra_repr`."""
        return f"opponent={self.opponent}, {super().extra_repr()}"
