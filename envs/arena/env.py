"""TorchRL environment of the Arena: wiring, no game logic."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.data import Bounded, Categorical, Composite
from typing_extensions import override

from envs.arena.dynamics import advance
from envs.arena.mirror import choose_mirrors, exchanged, mirrored
from envs.arena.observation import MODES, PICTURES, observation_names, observe, observed
from envs.arena.picture import SIZE, marks, scene, sketch
from envs.arena.rules import ACTIONS, Difficulty, Rules, make_rules
from envs.arena.scoring import ends, reward, reward_parts, statistics
from envs.arena.scripted import ScriptedPlayer
from envs.arena.state import STREAM_START, State, spawn
from envs.base.curriculum import load_curriculum
from envs.base.game import GameStep, Names
from envs.base.snapshot import Snapshot
from envs.base.world import World, inductor_options
from envs.toolkit.chance import Chance
from envs.toolkit.names import check_choice, did_you_mean

CURRICULA = Path(__file__).parent / "curricula"


def _options_on(device: torch.device) -> dict[str, int]:
    """Return a world's options, and on a GPU keep results of more than 26 operations for their consumers: with
    Inductor's default of 30 code takes 1.5 times as long to generate, for as many launches.
    """
    return {"realize_opcount_threshold": 26} | inductor_options(device)


class ArenaEnv(World):
    """Ship against spawners and the enemies they send, in five phases; ``num_envs`` worlds at once on one device.

    Keys: ``observation`` float32 [N, 32] (``classic``), [N, 44] (``extended``) or [N, 59] (``offsets``), or one key per
    group (``dict``), or a picture: ``pixels`` uint8 [N, 3, 64, 64] (``pixels``), or ``observation`` [N, 8, 16, 16] in
    [0, 1] (``heatmap``, channels as in envs/arena/heatmap.py); ``action`` int64 [N]; ``reward``, ``done``,
    ``terminated``, ``truncated`` [N, 1]; ``("episode", name)`` float32 [N, 1], the statistics of the running
    episode, final where ``("next", "done")``.

    Args:
        num_envs: number of worlds.
        device: device of the worlds; the CPU by default.
        seed: world i has the same game for the same seed, whatever ``num_envs`` is.
        style: 1 rotate and thrust (5 actions), 2 directional (6 actions).
        observation: ``classic``, ``extended``, ``offsets``, ``dict``, ``pixels`` or ``heatmap``.
        rules: a :class:`Rules`, the name of a preset, or a mapping of differences from the classic one; None is the
            classic one.
        curriculum: None for the full game; ``reference``, ``ladder`` or the path of a YAML list of stages
            (envs/base/curriculum.py).
        stage: with a curriculum: ``auto`` to move on by its criteria, or the number of the stage to stay in.
        desynchronize: start worlds at random step counts, so that they do not all end at once.
        action_repeat: number of game steps with the same action in each step of the world; their rewards are summed.
        mirror: show each world so that the nearest spawner is to the ship's right (style 2: right of and below it),
            reflected if need be, and take actions in the reflected view: a policy learned on one side holds on the
            other.
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
        style: int = 1,
        observation: str = "classic",
        rules: Rules | str | dict[str, float] | None = None,
        curriculum: str | Path | None = None,
        stage: int | str = "auto",
        desynchronize: bool = False,
        action_repeat: int = 1,
        mirror: bool = False,
    ) -> None:
        if style not in ACTIONS:
            raise ValueError(f"style is {style!r}: use 1 (rotate and thrust) or 2 (directional).")
        check_choice(observation, MODES, "observation")
        rules = make_rules("classic" if rules is None else rules)
        super().__init__(num_envs, device=device, seed=seed, action_repeat=action_repeat)
        self.rules, self.style, self.mode, self.mirror = rules, style, observation, mirror
        self.truncation_limit = math.ceil(rules.max_steps / self.action_repeat)
        if curriculum is not None:
            self.curriculum = load_curriculum(curriculum, CURRICULA, num_envs, stage, Difficulty._fields)
        actions = Categorical(len(ACTIONS[style]), shape=(num_envs,), dtype=torch.int64, device=self.device)
        self._build(self._observation_spec(), actions, midway=desynchronize)

    def _observation_spec(self) -> Composite:
        n, device = self.num_envs, self.device
        picture = (n, *PICTURES.get(self.mode, ()))
        if self.mode == "pixels":
            seen = {"pixels": Bounded(0, 255, picture, dtype=torch.uint8, device=device)}
        elif self.mode == "heatmap":
            seen = {"observation": Bounded(0.0, 1.0, picture, device=device)}
        else:
            names = observation_names(self.mode)
            seen = {key: Bounded(-1.0, 1.0, (n, len(words)), device=device) for key, words in names.items()}
        return Composite(**seen, shape=(n,), device=device)

    compile_options_on = staticmethod(_options_on)

    @override
    def settings(self) -> Difficulty:
        """Return the difficulty of the full game for all worlds, or that of the curriculum's stage."""
        difficulty = Difficulty(*torch.ones(len(Difficulty._fields), self.num_envs, device=self.device))
        if self.curriculum is not None:
            _assign(difficulty, self.curriculum.current.difficulty)
        return difficulty

    @override
    def spawn(self, settings: Difficulty, chance: Chance, midway: bool) -> State:
        """Return worlds at the start of phase one."""
        state = spawn(self.rules, settings, chance)
        if not midway:
            return state
        step = torch.floor(chance.uniform(STREAM_START, 1)[0] * self.rules.max_steps)
        return state._replace(progress=state.progress._replace(step=step, phase_step=step))

    @override
    def respawn(self, state: State, settings: Difficulty, chance: Chance) -> State:
        """Return worlds at the start of phase one; enemies and shots keep their positions, but are dead."""
        fresh = self.spawn(settings, chance, midway=False)
        return fresh._replace(
            enemies=state.enemies._replace(health=fresh.enemies.health),
            shots=state.shots._replace(life=fresh.shots.life),
            enemy_shots=state.enemy_shots._replace(life=fresh.enemy_shots.life),
        )

    @override
    def advance(self, state: State, action: Tensor, chance: Chance) -> State:
        """Return the state after one step of the game."""
        return advance(state, action, chance, self.rules, self.style)

    @override
    @torch.compiler.nested_compile_region  # compiled once for the state that ended and the one that follows
    def observe(self, state: State) -> dict[str, Tensor]:
        """Return observations by key."""
        if self.mirror:
            state = mirrored(state, choose_mirrors(state, self.style), self.rules)
        return observe(state, self.rules, self.mode, self.style)

    def as_seen(self, action: Tensor, state: State) -> Tensor:
        """Convert actions between the world's and the agent's view, either way, int64 [N]: reflected in a mirror."""
        return exchanged(action, choose_mirrors(state, self.style), self.style) if self.mirror else action

    @override
    def _advance(self, action: Tensor, snapshot: Snapshot) -> GameStep:
        return super()._advance(self.as_seen(action, snapshot.state), snapshot)

    @override
    def outcome(self, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """Return reward, terminated and truncated of the last step."""
        return reward(state, self.rules), *ends(state, self.rules)

    @override
    def reward_parts(self, state: State) -> dict[str, Tensor]:
        """Return the reward of the last step by part, [N] each."""
        return reward_parts(state, self.rules)

    @override
    def reward_by_part(self, action: Tensor) -> dict[str, Tensor]:
        """Return the reward by part that an action would bring now."""
        return super().reward_by_part(self.as_seen(action, self.state))

    @override
    def statistics(self, state: State) -> dict[str, Tensor]:
        """Return the game's episode statistics (envs/arena/scoring.py)."""
        return statistics(state)

    @override
    def names(self) -> Names:
        """Return names of the control style's actions and of the observation's entries; in a mirror, of the reflected
        view.
        """
        return {"actions": ACTIONS[self.style]._fields, "observation": observation_names(self.mode)}

    @override
    def players(self) -> dict[str, TensorDictModuleBase]:
        """Return the scripted policy of this world instance, and the random one."""
        return {"scripted": ScriptedPlayer(self), **super().players()}

    def draw(self, world: int = 0, size: tuple[int, int] = SIZE) -> np.ndarray:
        """Return a picture of one world's present state, uint8 [height, width, 3]; ``size`` is (width, height)."""
        return sketch(self.state, self.episode, world, self.rules, size).picture()

    def scene(self, world: int = 0) -> dict[str, Any]:
        """Return the drawing of one world's present state as vectors, with lines to what the ship observes."""
        return scene(self.state, self.episode, world, self.rules, observed(self.mode))

    def marks(self) -> dict[str, Any]:
        """Return the drawing of any moment as shapes whose numbers are read from the record."""
        return marks(self.rules).plain()

    @override
    def extra_repr(self) -> str:
        """See :meth:`World.extra_repr`."""
        return f"style={self.style}, observation={self.mode}, {super().extra_repr()}"

    def set_difficulty(self, **multipliers: float | Tensor) -> None:
        """Set multipliers (fields of :class:`Difficulty`; a number, or a tensor [N]) from the worlds' next reset on."""
        for name in multipliers:
            if name not in Difficulty._fields:
                known = Difficulty._fields
                raise ValueError(
                    f"difficulty {name!r} is unknown{did_you_mean(name, known)}: use one of {', '.join(known)}."
                )
        _assign(self._snapshot.settings, multipliers)


def _assign(difficulty: Difficulty, values: dict[str, Any]) -> None:
    for name, value in values.items():
        getattr(difficulty, name).copy_(torch.as_tensor(value, dtype=torch.float32))
