"""Adapter between a game's pure functions and TorchRL: specs, seeds, branchless reset, compilation.

A game is a record of tensors (nested ``NamedTuple``, world axis last) and functions on it. :class:`World` keeps the
record in place on the device, and turns it into an :class:`~torchrl.envs.EnvBase` whose step never waits for the host:
worlds that end are replaced by fresh ones through a masked select *inside* the step's graph, so step and reset are one
compiled function.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
import torch._inductor.config
from numpy.typing import NDArray
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import Categorical, Composite, TensorSpec, Unbounded
from torchrl.envs import EnvBase, TransformedEnv
from typing_extensions import Self

from envs.base import programs
from envs.base.action_range import ActionRange
from envs.base.arguments import checked_device, checked_number, checked_repeat, checked_seed
from envs.base.contract import GROUP, ask, check_game, check_record, check_specs, check_statistics, explain
from envs.base.episode import EpisodeStats, begin_episode
from envs.base.snapshot import Snapshot, load_snapshot
from envs.base.staged_game import StagedGame
from envs.base.waiting import AutoResetStep
from envs.toolkit.chance import seed_chance
from envs.toolkit.records import choose, map_record, named_tensors, write


def inductor_options(device: torch.device) -> dict[str, int]:
    """Return the options with which Inductor compiles a function that contains the step.

    A game is one long chain of small operations. On a CPU, intermediate results of more than 20 of them are kept in
    memory instead of recomputed in every consumer: with Inductor's default of 30 the Arena compiles 1.4 times longer
    for 3 % more speed. Sizes are not asserted again in each region: TorchDynamo guards them. A GPU has other compilers
    and is bound by memory: there, kernels that do not depend on each other are one launch. They may fuse more than
    Inductor's default of 64 operations, so that shared inputs are read once; but not with the Triton of PyTorch 2.11,
    which fails at the largest kernel of the Arena's pictures.
    """
    options = {"realize_opcount_threshold": 20, "size_asserts": False}
    if device.type != "cpu":
        options = {"combo_kernels": True, **({"max_fusion_size": 200} if torch.__version__ >= (2, 13) else {})}
    return {name: value for name, value in options.items() if hasattr(torch._inductor.config, name)}


CURRICULUM = "curriculum"
"""Key of the curriculum's state among saved worlds."""


class World(StagedGame, EnvBase):
    """A game as a batch-locked TorchRL environment.

    A subclass defines the game by four methods (:meth:`spawn`, :meth:`advance`, :meth:`observe`, :meth:`outcome`;
    optionally :meth:`settings` and :meth:`statistics`) and calls :meth:`_build` at the end of its ``__init__``. A world
    of several agents sets :attr:`num_agents` before; their observations, actions and rewards are then under
    ``"agents"``, [N, A, ...].

    The world keeps the episode statistics itself: ``return``, ``length``, ``complete`` (the episode began at the game's
    initial state) and the curriculum's ``stage`` (:class:`~envs.base.episode.EpisodeStats`).

    Two guarantees beyond TorchRL's: the game of row i depends on the seed and on i alone, not on ``num_envs`` or on the
    other rows (to the last bit; compiled for another ``num_envs``, which may take other instructions, up to rounding);
    and returned tensors share no memory with the state. After a step, worlds that ended already hold a fresh
    game; the ``"next"`` entries describe the ended one, and a reset of such a row before its next step returns that
    fresh game unchanged. A row that is stepped on without a reset keeps its final state: done, without reward.

    Actions outside the range raise an error where the check needs no synchronization, on the CPU outside of compiled
    code; elsewhere they are clamped to the range.
    """

    branchless = True
    """True: the step, resets included, can be traced as one graph without synchronization with the device."""
    transformed_class: type[TransformedEnv]
    """Class that wraps a world in transforms and keeps its branchless reset."""
    truncation_limit: int | None = None
    """Number of steps after which an episode is truncated, never before; None if it may be truncated earlier. Rollouts
    of at most this length store each picture once and need fewer value estimates.
    """
    film_fps: float = 10
    """Number of game steps per second of a film."""
    tables: Any = ()
    """Constants of the game as a record of tensors, which move with the world."""

    def __init__(
        self, num_envs: int, *, device: torch.device | str | None = None, seed: int = 0, action_repeat: int = 1
    ) -> None:
        super().__init__(device=checked_device(device), batch_size=[checked_number(num_envs)])
        self.num_envs = num_envs
        self.action_repeat = checked_repeat(action_repeat)
        self._seed_given = checked_seed(seed)
        self._first, self._total = 0, num_envs
        self._transition: Callable = self._advance_and_replace
        self._compiled: dict[str, Any] | None = None
        self._last_step: AutoResetStep | None = None
        self._show_last = False

    # --- specs and the first worlds ----------------------------------------------------------------------------------

    def _build(self, observations: Composite, actions: TensorSpec, midway: bool) -> None:
        """Make the specs and the first worlds.

        Args:
            observations: specs of :meth:`observe`, [N, ...] each; with a nested ``"agents"`` for several agents.
            actions: spec of the action, [N, ...], or [N, A, ...] with several agents, each with its own action and
                reward.
            midway: start at random time steps of the episode.
        """
        n, device = self.num_envs, self.device
        self.midway = midway
        check_specs(self, observations, actions)
        settings = ask(self, "settings")
        check_record(self, "settings", settings)
        chance = seed_chance(self._seed_given, n, device)
        state = ask(self, "spawn", settings, chance, midway)
        check_record(self, "spawn", state)
        number = 0 if self.curriculum is None else self.curriculum.stage
        stage = torch.full((n,), number, dtype=torch.int16, device=device)
        episode = begin_episode(stage, self.num_agents, complete=not midway)
        own, extras = episode.statistics(), ask(self, "statistics", state)
        check_statistics(self, extras, own)
        # clone: fresh records may use one tensor in several places, and each place is written to
        self._snapshot: Snapshot = map_record(
            torch.clone,
            Snapshot(state, episode, settings, stage, chance, torch.zeros(n, dtype=torch.bool, device=device)),
        )
        reported = {name: Unbounded((n, 1), device=device) for name in own | extras}
        if self.curriculum is not None:
            self.curriculum.check_statistics(reported)
        observations["episode"] = Composite(**reported, shape=(n,), device=device)
        self._set_specs(observations, actions)
        self.set_seed(self._seed_given)

    def _set_specs(self, observations: Composite, actions: TensorSpec) -> None:
        """Set the specs of observations, actions, rewards and done flags; actions and rewards of several agents are in
        their group.
        """
        n, device = self.num_envs, self.device
        self.observation_spec = observations
        self._action_range = ActionRange(actions, observations.ndim + (self.num_agents is not None))
        shape = (n,) if self.num_agents is None else (n, self.num_agents)
        reward = Unbounded((*shape, 1), device=device)
        if self.num_agents is None:
            self.action_spec, self.reward_spec = actions, reward
        else:
            self.group_map = {GROUP: [f"agent_{index}" for index in range(self.num_agents)]}
            self.full_action_spec = _grouped({"action": actions}, shape, device)
            self.full_reward_spec = _grouped({"reward": reward}, shape, device)
        flag = Categorical(2, shape=(n, 1), dtype=torch.bool, device=device)
        self.full_done_spec = Composite(
            done=flag, terminated=flag.clone(), truncated=flag.clone(), shape=(n,), device=device
        )

    @EnvBase.is_spec_locked.getter
    def is_spec_locked(self) -> bool:
        """Return TorchRL's flag, but False where code is traced: values that TorchRL caches while specs are locked,
        such as the names of keys, are looked up in a way that TorchDynamo of PyTorch 2.11 does not support.
        """
        return not torch.compiler.is_compiling() and EnvBase.is_spec_locked.fget(self)

    # --- stepping ----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> Any:
        """Present record of the game (the live tensors: read, or write in place in tests)."""
        return self._snapshot.state

    @property
    def episode(self) -> EpisodeStats:
        """Statistics of the running episodes (the live tensors, as :attr:`state`)."""
        return self._snapshot.episode

    def _set_seed(self, seed: int | None) -> None:
        write(self._snapshot.chance, seed_chance(checked_seed(seed), self.num_envs, self.device, self._first))

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        action, earlier = tensordict.get(self.action_key, None), self._last_step
        if action is None:
            raise ValueError(
                f"{type(self).__name__} is stepped without an action: set {self.action_key!r} in the tensordict before."
            )
        self._action_range.check(action, type(self).__name__)
        before = None if earlier is None else map_record(torch.clone, self._snapshot)
        try:
            step = self._transition(action, self._snapshot)
        except Exception as error:
            explain(self, error)
        if earlier is not None:
            write(self._snapshot, choose(earlier.waiting, before, self._snapshot))
            step = step.held_by(earlier, ("reward",) if self.num_agents is None else (GROUP, "reward"))
        self._last_step = step
        return self._tensordict(step.ended)

    def _reset(self, tensordict: TensorDictBase | None = None, replaced: bool = False, **kwargs: Any) -> TensorDict:
        """Reset worlds; if the last step has ``replaced`` them already, return what it observed then."""
        if replaced and self._last_step is not None:
            return self._tensordict(self._last_step.fresh)
        worlds = None if tensordict is None else tensordict.get("_reset", None)
        worlds = None if worlds is None else worlds.reshape(self.batch_size)
        try:
            observed = self._replace(worlds, self._snapshot)
        except Exception as error:
            explain(self, error)
        if self._last_step is not None:
            self._last_step = None if worlds is None else self._last_step.reset_by(worlds)
        return self._tensordict(observed)

    def maybe_reset(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return observations after the reset that the last step has already done, without synchronization."""
        if self._last_step is not None:
            tensordict = tensordict.update(self._tensordict(self._last_step.fresh))
            self.mark_reset()
        return tensordict

    def mark_reset(self) -> None:
        """Mark every world that ended in the last step as reset."""
        self._last_step = None

    def _tensordict(self, values: dict[str, Any]) -> TensorDict:
        result = TensorDict(values, batch_size=self.batch_size, device=self.device)
        if self.num_agents is not None:
            result.get(GROUP).batch_size = (self.num_envs, self.num_agents)
        return result

    # --- compiling ---------------------------------------------------------------------------------------------------

    def compile(self, *, warmup: int | None = None, **kwargs: Any) -> Self:
        """Compile the step with its reset as one graph; also reached by ``compile=True`` (or a dict of options) at
        construction.

        Unlike TorchRL's default this compiles the game's tensors only, so ``step`` gains as much as
        ``step_and_maybe_reset`` and the layout of the tensordict does not matter (hence ``warmup`` has no effect).
        Inside a larger compiled function it is inlined.
        """
        options = {} if "mode" in kwargs else {"options": self.compile_options_on(self.device)}
        self._compiled = kwargs
        self._transition = torch.compile(
            self._advance_and_replace, **{"fullgraph": True, "dynamic": False, **options, **kwargs}
        )
        return self

    compile_options_on = staticmethod(inductor_options)
    """Options for ``torch.compile`` of a function that contains the step, on a device."""

    def eager(self) -> Self:
        """Undo :meth:`compile`."""
        self._compiled = None
        self._transition = self._advance_and_replace
        return self

    def extra_repr(self) -> str:
        """Return the text that PyTorch prints between the parentheses; subclasses prepend their own settings."""
        return f"num_envs={self.num_envs}, device={self.device}"

    # --- checks and pictures -----------------------------------------------------------------------------------------

    def check_game(self) -> None:
        """Check that the results of the game's functions agree with each other and with the specs; the world is left as
        it was.

        Raises:
            ValueError: the first violation, in one sentence.
        """
        check_game(self)

    def render(
        self, mode: str = "rgb_array", env_index: int | None = 0, agent_index_focus: int | None = None
    ) -> NDArray[np.uint8]:
        """Return a picture of a world, uint8 [height, width, 3]; a world that ended in the last step is shown in its
        final state, until it is reset (which ``step_and_maybe_reset`` does at once).

        From the first call on, each further step keeps the final states that this needs.

        Args:
            mode: ``rgb_array``; scripts for TorchRL pass it.
            env_index: index of the world; None for all of them, [N, height, width, 3].
            agent_index_focus: None; scripts for VMAS pass it.

        Raises:
            ValueError: the world has no ``draw``, or an argument has another value.
        """
        if not hasattr(self, "draw"):
            raise ValueError(f"{type(self).__name__} cannot be drawn: it has no draw method.")
        if mode != "rgb_array" or agent_index_focus is not None:
            raise ValueError(
                f"mode is {mode!r} and agent_index_focus {agent_index_focus}: use 'rgb_array' and None, which show "
                "everything."
            )
        self._show_last = True
        live, step = self._snapshot, self._last_step
        try:
            if step is not None and step.last is not None:
                self._snapshot = choose(step.waiting, step.last, live)
            if env_index is not None:
                return self.draw(env_index)
            return np.stack([self.draw(index) for index in range(self.num_envs)])
        finally:
            self._snapshot = live

    def programs(self) -> tuple[dict[str, Callable], dict[str, Tensor]]:
        """Return ``reset`` and ``step`` as functions of named tensors alone, to be exported, and the present record by
        dotted name, which both take (envs/base/programs.py).
        """
        functions: dict[str, Callable] = {"reset": partial(programs.reset, self), "step": partial(programs.step, self)}
        return functions, {name: value.clone() for name, value in named_tensors(self._snapshot)}

    # --- saving and moving -------------------------------------------------------------------------------------------

    def state_dict(self, *args: Any, **kwargs: Any) -> OrderedDict[str, Any]:
        """Return every tensor of every world by dotted name (copies), and the curriculum's state if there is one."""
        # an OrderedDict, in which TorchRL's EnvCreator finds the tensors wherever a transformed environment puts it
        state = OrderedDict((name, value.detach().clone()) for name, value in named_tensors(self._snapshot))
        if self.curricula:
            state[CURRICULUM] = [curriculum.state_dict() for curriculum in self.curricula]
        elif self.curriculum is not None:
            state[CURRICULUM] = self.curriculum.state_dict()
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Continue the games of :meth:`state_dict`; the number of worlds must be the same.

        Args:
            state_dict: state of such worlds. An empty one, which TorchRL's collectors save of a world, changes nothing.
            strict: raise an error if names are missing or unknown; else load the entries that fit.

        Raises:
            ValueError: the state is of another game, another version of it, or of another number of worlds; nothing is
                changed then.
        """
        if not state_dict:
            return
        if strict and (self.curriculum is None) != (CURRICULUM not in state_dict):
            raise ValueError(
                "the saved worlds and these differ in having a curriculum: use the same curriculum setting."
            )
        load_snapshot(self._snapshot, {key: value for key, value in state_dict.items() if key != CURRICULUM}, strict)
        self.mark_reset()
        if self.curriculum is not None and CURRICULUM in state_dict:
            saved = state_dict[CURRICULUM]
            pairs = zip(self.curricula, saved, strict=True) if self.curricula else [(self.curriculum, saved)]
            for curriculum, state in pairs:
                curriculum.load_state_dict(state)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> World:
        super()._apply(fn, recurse)
        self._snapshot, self.tables = map_record(fn, self._snapshot), map_record(fn, self.tables)
        self._action_range.moved(fn)
        self.mark_reset()
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_transition": None}  # compiled code cannot be pickled, but made again

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self._compiled is None:
            self.eager()
        else:
            self.compile(**self._compiled)


def _grouped(specs: dict[str, TensorSpec], shape: tuple[int, ...], device: torch.device) -> Composite:
    """Return specs [N, A, ...] nested under the agents' group."""
    agents = Composite(**specs, shape=shape, device=device)
    return Composite({GROUP: agents}, shape=shape[:1], device=device)
