"""The one adapter between a game's pure functions and TorchRL: specs, seeds, branchless reset, compilation.

A game is a record of tensors (nested ``NamedTuple``, world axis last) and functions on it. :class:`World` keeps the
record in place on the device, and turns it into an :class:`~torchrl.envs.EnvBase` whose step never waits for the host:
worlds that end are replaced by fresh ones through a masked select *inside* the step's graph, so stepping and resetting
is one compiled function.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch._inductor.config
from numpy.typing import NDArray
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.data import Categorical, Composite, TensorSpec, Unbounded
from torchrl.envs import EnvBase, TransformedEnv
from typing_extensions import Self

from envs.action_range import ActionRange
from envs.arguments import checked_device, checked_number, checked_repeat, checked_seed
from envs.contract import GROUP, ask, check_game, check_record, check_specs, check_statistics, explain
from envs.curriculum import Curriculum
from envs.episode import Episode, begin_episode, books_of_an_older_version
from envs.moved import old_arguments
from envs.players import RandomPlayer
from envs.toolkit.chance import Chance, seed_chance
from envs.toolkit.records import choose, map_record, named_tensors, write
from envs.waiting import Step


def inductor_options(device: torch.device) -> dict[str, int]:
    """How Inductor compiles a function that holds the step.

    A game is one long chain of small operations. On a CPU, intermediate results of more than 20 of them are kept in
    memory instead of computed again in every consumer: with Inductor's default of 30 the Arena compiles 2.6 times
    longer for 13 % more speed. A GPU has other compilers, and memory is what bounds it: there, kernels may do more at
    once than Inductor's default of 64 operations, and read what they share once.
    """
    options = {"realize_opcount_threshold": 20} if device.type == "cpu" else {"max_fusion_size": 200}
    return {name: value for name, value in options.items() if hasattr(torch._inductor.config, name)}


CURRICULUM = "curriculum"
"""Where the curriculum is found among saved worlds."""


class Snapshot(NamedTuple):
    """All that changes in a batch of worlds; every tensor has the world axis last."""

    state: Any
    """The game's record."""
    episode: Episode
    """What is reported of the running episodes, whatever the game."""
    settings: Any
    """A record of per-world settings that fresh worlds are made with (such as their difficulty); survives resets."""
    stage: Tensor
    """Index of the curriculum's stage that fresh worlds get, int16 [N]; 0 without a curriculum."""
    chance: Chance
    untouched: Tensor
    """Worlds that no step or reset has touched since the last step replaced them, bool [N]."""


class Moment(NamedTuple):
    """What a step makes of the games."""

    state: Any
    reward: Tensor
    """Of the whole step, [N] or [A, N]."""
    terminated: Tensor
    truncated: Tensor
    steps: Tensor | int
    """Steps of the game that were played, [N]: fewer than ``action_repeat`` where it ended before."""
    chance: Chance


class World(EnvBase):
    """A game as a batch-locked TorchRL environment.

    A subclass says what the game is in five methods (:meth:`settings`, :meth:`spawn`, :meth:`advance`, :meth:`observe`,
    :meth:`outcome`; in :meth:`statistics` what else it reports) and calls :meth:`_build` at the end of its
    ``__init__``. A world of several agents sets :attr:`num_agents` before; what each of them sees, does and gets is
    then found under ``"agents"``, [N, A, ...].

    The world keeps the books of the running episodes itself: their ``return``, ``length``, whether they are
    ``complete`` and their curriculum's ``stage`` (:class:`~envs.episode.Episode`).

    Two guarantees beyond TorchRL's: the game of row i depends on the seed and on i alone, not on ``num_envs`` or on the
    other rows; and nothing returned shares memory with the state. After a step, worlds that ended already hold a fresh
    game; the ``"next"`` entries describe the ended one, and a reset of such a row before its next step returns that
    fresh game unchanged. A row that is stepped on without a reset stays as it ended: done, without reward.

    Actions that cannot be are refused where looking at them costs no wait, on the CPU outside of compiled code;
    elsewhere they count as the nearest one that can.
    """

    branchless = True
    """The step, resets included, can be traced as one graph without asking the device anything."""
    curriculum: Curriculum | None = None
    """Set by a subclass that has stages of difficulty; where groups of worlds have one each, that of any of them."""
    curricula: Sequence[Curriculum] = ()
    """One for each group of worlds, if there are groups (see :meth:`split_curriculum`)."""
    transformed_class: type[TransformedEnv]
    """What to wrap such a world in so that it keeps its branchless reset."""
    action_repeat: int = 1
    """Steps of the game with the same action in each step of the world, whose rewards are added up."""
    num_agents: int | None = None
    """Agents per world; None for a world of one agent with flat keys."""
    truncation_limit: int | None = None
    """Steps after which an episode is truncated, never before; None if that may be. Rollouts that are no longer keep
    each picture once, and need fewer values.
    """

    @old_arguments
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
        self._last_step: Step | None = None
        self._show_last = False

    # --- the game, said by the subclass ---------------------------------------------------------------------------

    def settings(self) -> Any:
        """Initial per-world settings: a record of [N] tensors."""
        raise NotImplementedError

    def spawn(self, settings: Any, chance: Chance, midway: bool) -> Any:
        """Fresh worlds; ``midway``: each at a random moment of its episode, so that resets desynchronise."""
        raise NotImplementedError

    def respawn(self, state: Any, settings: Any, chance: Chance) -> Any:
        """Fresh worlds for those of ``state`` that end; by default as :meth:`spawn` makes them.

        A game may leave tensors of ``state`` in them that nobody reads in a fresh world (such as where a dead thing
        is): they are then not written again.
        """
        return self.spawn(settings, chance, midway=False)

    def advance(self, state: Any, action: Tensor, chance: Chance) -> Any:
        """One step of the game."""
        raise NotImplementedError

    def observe(self, state: Any) -> dict[str, Tensor]:
        """Observations by key, [N, ...]; those of several agents in a dict under ``"agents"``, [N, A, ...]."""
        raise NotImplementedError

    def outcome(self, state: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Reward ([N], or [A, N] with several agents), terminated, truncated (both [N]) of the last step."""
        raise NotImplementedError

    def statistics(self, state: Any) -> dict[str, Tensor]:
        """What else the game reports of the running episode, by name, float32 [N]; by default nothing."""
        return {}

    def names(self) -> dict[str, Sequence[str]]:
        """Words for what is a number in tensors, in its order: ``actions``, ``meters``, ``places``; by default none."""
        return {}

    def players(self) -> dict[str, TensorDictModuleBase]:
        """Players of this very world, by name: policies that may look at its record; here ``random``."""
        return {"random": RandomPlayer(self)}

    def experts(self) -> dict[str, tuple[TensorDictModuleBase, ...]]:
        """For modules of an agent, by name, a player whose first agent knows what the module could at best know, and
        one or more that are the same without it: what it earns beyond the best of them is to be gained here; by default
        none.

        The other agents play alike for all.
        """
        return {}

    # --- TorchRL ---------------------------------------------------------------------------------------------------

    def _build(self, observations: Composite, actions: TensorSpec, midway: bool) -> None:
        """Make the specs and the first worlds.

        Args:
            observations: specs of :meth:`observe`, [N, ...] each; with a nested ``"agents"`` for a world of several.
            actions: spec of the action, [N, ...], or [N, A, ...] with several agents, who then have an action and a
                reward each.
            midway: begin at random moments of the episode.
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
        books, extras = episode.statistics(), ask(self, "statistics", state)
        check_statistics(self, extras, books)
        # clone: fresh records may use one tensor in several places, and each place is written to
        self._snapshot: Snapshot = map_record(
            torch.clone,
            Snapshot(state, episode, settings, stage, chance, torch.zeros(n, dtype=torch.bool, device=device)),
        )
        reported = {name: Unbounded((n, 1), device=device) for name in books | extras}
        if self.curriculum is not None:
            self.curriculum.check_statistics(reported)
        observations["episode"] = Composite(**reported, shape=(n,), device=device)
        self._set_specs(observations, actions)
        self.set_seed(self._seed_given)

    def _set_specs(self, observations: Composite, actions: TensorSpec) -> None:
        """Tell TorchRL what is seen, done, earned and flagged; actions and rewards of several agents in their group."""
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

    def compile(self, *, warmup: int | None = None, **kwargs: Any) -> Self:
        """Compile the step with its reset as one graph; also reached by ``compile=True`` (or a dict of options) at
        construction.

        Unlike TorchRL's default this compiles the game's tensors only, so ``step`` gains as ``step_and_maybe_reset``
        does and the layout of the tensordict does not matter (hence ``warmup`` does nothing). Inside a larger compiled
        function it is inlined.
        """
        options = {} if "mode" in kwargs else {"options": self.compile_options}
        self._compiled = kwargs
        self._transition = torch.compile(
            self._advance_and_replace, **{"fullgraph": True, "dynamic": False, **options, **kwargs}
        )
        return self

    @property
    def compile_options(self) -> dict[str, int]:
        """Options for ``torch.compile`` of a function that holds the step, on this device."""
        return self.compile_options_on(self.device)

    compile_options_on = staticmethod(inductor_options)

    def eager(self) -> Self:
        """Undo :meth:`compile`."""
        self._compiled = None
        self._transition = self._advance_and_replace
        return self

    def check_game(self) -> None:
        """Check that what the game's functions give agrees with each other and with the specs; nothing is played.

        Raises:
            ValueError: the first breach, in one sentence.
        """
        check_game(self)

    @property
    def state(self) -> Any:
        """The game's record now (the live tensors: read, or write in place in tests)."""
        return self._snapshot.state

    @property
    def episode(self) -> Episode:
        """The books of the running episodes (the live tensors, as :attr:`state`)."""
        return self._snapshot.episode

    def render(
        self, mode: str = "rgb_array", env_index: int | None = 0, agent_index_focus: int | None = None
    ) -> NDArray[np.uint8]:
        """A picture of a world, uint8 [height, width, 3]; a world that ended in the last step is shown as it ended,
        until it is reset (which ``step_and_maybe_reset`` does at once).

        The first call makes each further step keep what this needs.

        Args:
            mode: ``rgb_array``, what scripts for TorchRL ask for.
            env_index: number of the world; None for all of them, [N, height, width, 3].
            agent_index_focus: None; scripts for VMAS have it.

        Raises:
            ValueError: the world has no ``draw``, or an argument is another.
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

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDict:
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
        """Observations after the reset that the last step has already done; no question is asked of the device."""
        if self._last_step is not None:
            tensordict = tensordict.update(self._tensordict(self._last_step.fresh))
            self.nobody_waits()
        return tensordict

    def nobody_waits(self) -> None:
        """Say that every world that ended in the last step was reset."""
        self._last_step = None

    def _tensordict(self, values: dict[str, Any]) -> TensorDict:
        result = TensorDict(values, batch_size=self.batch_size, device=self.device)
        if self.num_agents is not None:
            result.get(GROUP).batch_size = (self.num_envs, self.num_agents)
        return result

    # --- pure tensor functions, compiled as one ----------------------------------------------------------------------

    def _advance_and_replace(self, action: Tensor, snapshot: Snapshot) -> Step:
        """Step all worlds, then replace those that ended, and update ``snapshot`` in place."""
        action = self._action_range.nearest(action)
        state, reward, terminated, truncated, steps, chance = self._advance(action, snapshot)
        episode = snapshot.episode.add(reward, steps)
        done = terminated | truncated
        ended = {
            **self.observe(state),
            "done": done.unsqueeze(-1),
            "terminated": terminated.unsqueeze(-1),
            "truncated": truncated.unsqueeze(-1),
        }
        if self.num_agents is None:
            ended["reward"] = reward.unsqueeze(-1)
        else:
            ended[GROUP]["reward"] = reward.T.unsqueeze(-1).clone()
        after = snapshot._replace(state=state, episode=episode, chance=chance, untouched=done)
        last = map_record(torch.clone, after) if self._show_last else None
        after = after._replace(
            state=choose(done, self.respawn(state, snapshot.settings, chance), state),
            episode=choose(done, begin_episode(snapshot.stage, self.num_agents, complete=True), episode),
        )
        fresh = self._report(after.state, after.episode) | _not_done(done)
        ended["episode"] = self._statistics(state, episode)  # here, where a compiler puts it beside what replaces it
        write(snapshot, after)
        return Step(ended, fresh, last)

    def _advance(self, action: Tensor, snapshot: Snapshot) -> Moment:
        """The games after :attr:`action_repeat` steps with one action."""
        if self.action_repeat == 1:
            chance = snapshot.chance.tick()
            state = self.advance(snapshot.state, action, chance)
            return Moment(state, *self.outcome(state), 1, chance)
        reward, steps = torch.zeros_like(snapshot.episode.total_reward), torch.zeros_like(snapshot.episode.length)
        ended = torch.zeros_like(snapshot.untouched)
        moment = Moment(snapshot.state, reward, ended, ended, steps, snapshot.chance)
        for _ in range(self.action_repeat):
            moment = self._advance_further(moment, action)
        return moment

    @torch.compiler.nested_compile_region  # compiled once, however often a step repeats it
    def _advance_further(self, moment: Moment, action: Tensor) -> Moment:
        """One more step with the same action; a game that has ended stays as it ended."""
        state, reward, terminated, truncated, steps, chance = moment
        goes_on, chance = ~(terminated | truncated), chance.tick()
        later = self.advance(state, action, chance)
        earned, dies, time_is_up = self.outcome(later)
        after = Moment(
            choose(goes_on, later, state),
            reward + torch.where(goes_on, earned, 0.0),
            terminated | (goes_on & dies),
            truncated | (goes_on & time_is_up),
            steps + goes_on,
            chance,
        )
        return map_record(torch.clone, after)  # what a step leaves alone must not be given back as it is

    def _replace(self, worlds: Tensor | None, snapshot: Snapshot) -> dict:
        """Replace ``worlds`` (bool [N], None for all) by fresh ones, except where they are fresh already."""
        midway = worlds is None and self.midway
        episode = begin_episode(snapshot.stage, self.num_agents, complete=not midway)
        if worlds is None:
            chance = snapshot.chance.tick()
            state = self.spawn(snapshot.settings, chance, midway)
            untouched = torch.zeros_like(snapshot.untouched)
        else:
            worlds = worlds & ~snapshot.untouched
            chance = snapshot.chance.tick(worlds)
            state = choose(worlds, self.respawn(snapshot.state, snapshot.settings, chance), snapshot.state)
            episode, untouched = choose(worlds, episode, snapshot.episode), snapshot.untouched
        write(snapshot, snapshot._replace(state=state, episode=episode, chance=chance, untouched=untouched))
        return self._report(state, episode) | _not_done(snapshot.untouched)

    def _report(self, state: Any, episode: Episode) -> dict[str, Any]:
        """Observations [N, ...] and episode statistics [N, 1], in memory of their own."""
        observed: dict[str, Any] = dict(self.observe(state))
        observed["episode"] = self._statistics(state, episode)
        return observed

    def _statistics(self, state: Any, episode: Episode) -> dict[str, Tensor]:
        """Episode statistics [N, 1]."""
        statistics = episode.statistics() | self.statistics(state)
        return {name: value.unsqueeze(-1).clone() for name, value in statistics.items()}

    # --- curriculum --------------------------------------------------------------------------------------------------

    def split_curriculum(self, groups: int) -> None:
        """Let so many equal groups of neighbouring worlds go through the curriculum, each at its own pace; where other
        processes play some of the worlds (see :meth:`take_part`), the groups are those of the whole set.

        Raises:
            ValueError: the worlds cannot be divided like that.
        """
        if self._total % groups:
            raise ValueError(f"{self._total} worlds are no {groups} equal groups: give a multiple of {groups}.")
        if self.curriculum is not None:
            self.curriculum.num_envs = self._total // groups
            self.curricula = [copy.deepcopy(self.curriculum) for _ in range(groups)]

    def take_part(self, first: int, total: int) -> None:
        """Let these be the worlds from number ``first`` on of a set of so many in ``total``, which other processes play
        the rest of: from the next seed on row i plays what row ``first + i`` of the set would, and the curriculum waits
        for as many episodes as it would there.
        """
        self._first, self._total = first, total
        if self.curriculum is not None:
            self.curriculum.num_envs = total

    def begin_stage(self, group: int | None = None) -> None:
        """Give the curriculum's current stage to worlds from their next reset on: their :meth:`settings`, made anew.

        Args:
            group: of :meth:`split_curriculum`, by its number; None for all worlds.
        """
        snapshot, worlds = self._snapshot, torch.ones_like(self._snapshot.untouched)
        if group is not None:
            self.curriculum = self.curricula[group]  # whose stage the settings are those of
            size = self._total // len(self.curricula)
            worlds = (self._first + torch.arange(self.num_envs, device=self.device)) // size == group
        assert self.curriculum is not None
        write(snapshot.settings, choose(worlds, self.settings(), snapshot.settings))
        snapshot.stage.masked_fill_(worlds, self.curriculum.stage)

    def update_curriculum(self, finished: dict[str, Tensor], group: int | None = None) -> dict[str, float]:
        """Tell the curriculum of finished episodes (statistics by name, [episodes] on the CPU); returns its metrics.

        Args:
            finished: the episodes.
            group: that played them, if groups go through the curriculum at their own pace.
        """
        curriculum = self.curriculum if group is None or not self.curricula else self.curricula[group]
        if curriculum is None:
            return {}
        if curriculum.update(finished):
            self.begin_stage(group)
        return curriculum.metrics()

    def copy_curricula(self, sources: Sequence[int]) -> None:
        """Put each group at the place in the curriculum where another is, from its worlds' next reset on."""
        states = [curriculum.state_dict() for curriculum in self.curricula]
        for group, curriculum in enumerate(self.curricula):
            if sources[group] != group:
                curriculum.load_state_dict(states[sources[group]])
                self.begin_stage(group)

    def record(self, finished: dict[str, Tensor]) -> dict[str, float]:
        """An older name of :meth:`update_curriculum`."""
        warnings.warn("record is called update_curriculum now.", DeprecationWarning, stacklevel=2)
        return self.update_curriculum(finished)

    # --- saving and moving -------------------------------------------------------------------------------------------

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Every tensor of every world by dotted name (copies), and the curriculum's state if there is one."""
        state: dict[str, Any] = {name: value.detach().clone() for name, value in named_tensors(self._snapshot)}
        if self.curricula:
            return {**state, CURRICULUM: [curriculum.state_dict() for curriculum in self.curricula]}
        return state if self.curriculum is None else {**state, CURRICULUM: self.curriculum.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any], strict: bool = True) -> None:
        """Continue the games of :meth:`state_dict`; the number of worlds must be the same."""
        if (self.curriculum is None) != (CURRICULUM not in state_dict):
            raise ValueError(
                "the saved worlds and these differ in having a curriculum: use the same curriculum setting."
            )
        curriculum = state_dict.get(CURRICULUM, {})
        state_dict = {name: value for name, value in state_dict.items() if name != CURRICULUM}
        self.nobody_waits()
        mine = dict(named_tensors(self._snapshot))
        if "episode.length" not in state_dict:
            state_dict = books_of_an_older_version(state_dict, mine)
        if mine.keys() != state_dict.keys():
            names = ", ".join(sorted(mine.keys() ^ state_dict.keys())[:3])
            raise ValueError(
                f"the saved worlds are of another game or version ({names} differ): reset the worlds instead."
            )
        for name, value in state_dict.items():
            if mine[name].shape != value.shape:
                raise ValueError(
                    f"saved worlds have {name} of shape {tuple(value.shape)}, these have {tuple(mine[name].shape)}: "
                    "use the same num_envs and rules."
                )
            mine[name].copy_(value)
        if self.curricula:
            for group, saved in zip(self.curricula, curriculum, strict=True):
                group.load_state_dict(saved)
        elif self.curriculum is not None:
            self.curriculum.load_state_dict(curriculum)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> World:
        super()._apply(fn, recurse)
        self._snapshot = map_record(fn, self._snapshot)
        self._action_range.moved(fn)
        self.nobody_waits()
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
    """Specs [N, A, ...] as those of the agents."""
    agents = Composite(**specs, shape=shape, device=device)
    return Composite({GROUP: agents}, shape=shape[:1], device=device)


def _not_done(like: Tensor) -> dict[str, Tensor]:
    keys = ("done", "terminated", "truncated")
    return dict(zip(keys, like.new_zeros(len(keys), len(like), 1), strict=True))  # one kernel for all of them
