"""Abilities of worlds beyond TorchRL's ``EnvBase``, asked by one protocol, without side effects on any world."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.envs import EnvBase, TransformedEnv

from torchrl_agent.core import ranks


class WorldAbilities(Protocol):
    """Attributes and methods that a world may have, with the default for worlds that lack them; a world need not
    inherit from it.
    """

    branchless: bool = False
    """True if the step, resets included, can be traced as one graph, and ``state_dict`` continues the games."""
    steps_arrays: bool = False
    """True if ``begin`` and ``play`` step the world by arrays, without tensordicts."""
    transformed_class: Callable[..., TransformedEnv] = functools.partial(TransformedEnv, auto_unwrap=True)
    """Class that wraps the world in transforms."""
    action_repeat: int = 1
    """Number of game steps with the same action in each step."""
    action_choices: Sequence[int] = ()
    """Sizes of the choices that precede the numbers in an action of both kinds."""
    num_agents: int | None = None
    """Number of agents per world; None for a world of one agent."""
    truncation_limit: int | None = None
    """Number of steps after which an episode is truncated, never before; None if it may be truncated earlier."""
    time_limit: int | None = None
    """Number of steps after which an episode is truncated, for the choice of defaults; None if unknown."""
    goal_outcome: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None
    """Function of achieved and desired goals, [n, ...] each, to rewards and terminations, [n, 1] each."""
    info_dict_reader: Sequence[Any] = ()
    """TorchRL's readers of ``info``, whose entries are no observations."""
    take_shard: Callable[[int, int], None] | None = None
    """Function that makes the worlds those from index ``first`` on of a set of ``total`` worlds."""
    curriculum: Any = None
    """Curriculum of the worlds, with ``stage``, ``state_dict`` and ``load_state_dict``."""
    curricula: Sequence[Any] = ()
    """Curriculum of each group of worlds after ``split_curriculum``."""
    traits: Mapping[str, float] | None = None
    """Traits of the agents by name, which a population may evolve by ``set_people(traits, money)``."""
    draw: Callable[[int], NDArray[np.uint8]] | None = None
    """Function that returns a picture of a world's present state, uint8 [height, width, 3]."""
    scene: Callable[[int], Any] | None = None
    """Function that returns a world's present state as drawing calls, for replays."""
    marks: Callable[[], dict[str, Any]] | None = None
    """Function that returns the drawing of any moment as shapes whose numbers are read from the record, for games in a
    page.
    """
    programs: Callable[[], tuple[dict[str, Callable], dict[str, Tensor]]] | None = None
    """Function that returns reset and step as functions of tensors, and the record that they take, for exports."""
    film_fps: float | None = None
    """Number of game steps per second of a film; None for the ``render_fps`` of ``metadata``, else 10."""
    metadata: Mapping[str, Any] | None = None
    """Metadata of a world of Gymnasium or PettingZoo."""
    film_arguments: Mapping[str, Any] = {}
    """Arguments with which a world can be drawn."""
    live_arguments: Mapping[str, Any] = {}
    """Arguments with which a world opens a window of its own."""

    def begin_stage(self) -> None:
        """Give the curriculum's stage to the worlds from their next reset on."""
        return None

    def update_curriculum(self, finished: dict[str, Tensor], group: int | None = None) -> dict[str, float]:
        """Update the curriculum (of a group) with statistics of finished episodes; return its metrics."""
        return {}

    def split_curriculum(self, groups: int) -> None:
        """Split the worlds into groups of neighbors, each with its own curriculum."""
        return None

    def copy_curricula(self, sources: Sequence[int]) -> None:
        """Copy to each group the curriculum state of its source group."""
        return None

    def players(self) -> Mapping[str, TensorDictModuleBase]:
        """Return scripted policies by name."""
        return {}

    def experts(self) -> Mapping[str, tuple[TensorDictModuleBase, ...]]:
        """Return scripted policies that bound the benefit of an agent's modules, by the module's name."""
        return {}

    def episode_events(self) -> Sequence[Mapping[str, Any]]:
        """Return the events of the longest of the running episodes, as plain values with their ``kind``."""
        return []

    def names(self) -> Mapping[str, Any]:
        """Return names of ``actions``, their ``heads``, the ``choices`` of each and ``meters``, by key those of
        ``observation`` and its ``colors``, the pictures' ``legend``, what is ``raised`` and the observations that show
        what is ``around``.
        """
        return {}

    def check_game(self) -> None:
        """Check the game's functions; raise ValueError with the first violation."""
        return None

    def compile_options_on(self, device: torch.device) -> dict[str, int] | None:
        """Options of Inductor for a function that contains the step, on a device."""
        return None


class _Defaults(WorldAbilities):
    pass


class _Abilities:
    def __init__(self, env: EnvBase) -> None:
        self._env = env

    def __getattr__(self, name: str) -> Any:
        env, default = self._env, getattr(_Defaults(), name)
        # ``hasattr`` of a world would query the processes of a ParallelEnv, which end when the attribute is missing
        while not (name in vars(env) or hasattr(type(env), name)):
            if not isinstance(env, TransformedEnv):
                return default
            env = env.base_env
        return getattr(env, name, default)


def abilities(env: EnvBase) -> WorldAbilities:
    """Return the abilities of a world, or of the environment inside its transforms, each asked when it is read."""
    return cast(WorldAbilities, _Abilities(env))


def inner_world(env: EnvBase) -> Any:
    """Return the world inside its transforms."""
    while isinstance(env, TransformedEnv):
        env = env.base_env
    return env


def world_name(env: EnvBase) -> str:
    """Name of a world's class, whatever transforms it has."""
    return type(inner_world(env)).__name__


# --- seeds -----------------------------------------------------------------------------------------------------------


def world_seed(env: EnvBase, seed: int, *begun_at: int) -> int:
    """Return the seed to give a world, such that no other seed leads to the same games.

    Worlds of Gymnasium, PettingZoo and TorchRL seed row ``i`` with the given seed plus ``i``, so that neighboring
    seeds share all games but one: they are given a hash. Branchless worlds hash every row themselves.

    Args:
        env: the world that will be given the seed.
        seed: of a training or an evaluation.
        begun_at: frames after which a training resumes with new games, if it does.
    """
    if abilities(env).branchless and not begun_at:
        return seed
    hashed = np.random.SeedSequence(seed, spawn_key=begun_at).generate_state(1)
    return int(hashed[0]) >> 2  # room for a row's number below 2^31, where some worlds' seeds end


def own_seed(env: EnvBase, seed: int, *begun_at: int) -> int:
    """Return :func:`world_seed` for the worlds of this rank, which are rows of a set that all ranks step: worlds with
    a ``take_shard`` know which rows, others are given the seed of their first row.
    """
    first = 0 if abilities(env).take_shard else ranks.rank() * env.batch_size[0]
    return world_seed(env, seed, *begun_at) + first
