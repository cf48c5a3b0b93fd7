"""A game as pure functions on tensors: the functions that define a game, and the step and the reset built from them.

:class:`~envs.base.world.World` makes a TorchRL environment of it, and compiles the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

import torch
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from envs.base.action_range import ActionRange
from envs.base.contract import GROUP
from envs.base.episode import EpisodeStats, begin_episode
from envs.base.players import RandomPlayer
from envs.base.snapshot import Snapshot
from envs.base.waiting import AutoResetStep
from envs.toolkit.chance import Chance
from envs.toolkit.records import choose, filled, map_record, named_tensors, write


class GameStep(NamedTuple):
    """Result of a step of the games."""

    state: Any
    reward: Tensor
    """Reward of the whole step, [N] or [A, N]."""
    terminated: Tensor
    truncated: Tensor
    steps: Tensor | int
    """Number of game steps taken, [N]: fewer than ``action_repeat`` where the game ended before."""
    chance: Chance


class Names(TypedDict, total=False):
    """Names of the entries of tensors, in their order."""

    actions: Sequence[str]
    heads: Sequence[str]
    choices: Sequence[Sequence[str]]
    """Names of the values of each head; without heads those of the action are ``actions``."""
    meters: Sequence[str]
    observation: Mapping[str, Sequence[str]]
    """Names by key (of agents in a group, the key within the group): of the components of a vector, or of the channels
    of a picture.
    """
    colors: Mapping[str, Sequence[tuple[int, int, int]]]
    """Color in which each channel of a picture is drawn, by key: red, green, blue, 0 to 255."""
    raised: Sequence[str]
    """Names of the meters that something in the world can raise."""
    legend: Mapping[str, tuple[int, int, int]]
    """Color in which pictures show a thing, by its name; meters have the color of their bars."""
    around: Sequence[str]
    """Keys of the observations that show where things are."""


class NoSettings(NamedTuple):
    """Settings of a game that has none; the tensor has one entry per world."""

    worlds: Tensor


class Game:
    """Functions on a record of tensors (nested ``NamedTuple``, world axis last)."""

    action_repeat: int = 1
    """Number of game steps with the same action in each step of the world; their rewards are summed."""
    num_agents: int | None = None
    """Number of agents per world; None for a world of one agent with flat keys."""
    num_envs: int
    device: torch.device
    midway: bool
    """True if a reset of all worlds starts them at random time steps of their episodes."""
    _action_range: ActionRange
    _snapshot: Snapshot
    _show_last: bool
    """True if a step keeps the final state of worlds that ended, for rendering."""

    # --- definition of the game, by a subclass -----------------------------------------------------------------------

    def settings(self) -> Any:
        """Return the initial per-world settings: a record of [N] tensors; by default none."""
        return NoSettings(torch.zeros(self.num_envs, device=self.device))

    def spawn(self, settings: Any, chance: Chance, midway: bool) -> Any:
        """Return fresh worlds; with ``midway`` each at a random time step of its episode, so that resets
        desynchronize.
        """
        raise NotImplementedError

    def respawn(self, state: Any, settings: Any, chance: Chance) -> Any:
        """Return fresh worlds to replace those of ``state`` that end; by default as :meth:`spawn` makes them.

        A game may leave tensors of ``state`` in them that are not read in a fresh world (such as positions of dead
        objects): they are then not written again.
        """
        return self.spawn(settings, chance, midway=False)

    def advance(self, state: Any, action: Tensor, chance: Chance) -> Any:
        """Return the state after one step of the game."""
        raise NotImplementedError

    def observe(self, state: Any) -> dict[str, Tensor]:
        """Return observations by key, [N, ...]; those of several agents in a dict under ``"agents"``, [N, A, ...]."""
        raise NotImplementedError

    def outcome(self, state: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Return reward ([N], or [A, N] with several agents), terminated and truncated (both [N]) of the last step."""
        raise NotImplementedError

    def reward_parts(self, state: Any) -> dict[str, Tensor]:
        """Return the parts of which the reward of the last step is the sum, by name; by default none."""
        return {}

    def statistics(self, state: Any) -> dict[str, Tensor]:
        """Return further statistics of the running episode by name, float32 [N]; by default none."""
        return {}

    def names(self) -> Names:
        """Return names of the entries of tensors; by default none."""
        return {}

    def players(self) -> dict[str, TensorDictModuleBase]:
        """Return scripted policies of this world instance, by name, which may read its record; here ``random``."""
        return {"random": RandomPlayer(self)}

    def experts(self) -> dict[str, tuple[TensorDictModuleBase, ...]]:
        """Return scripted policies that bound the benefit of modules of an agent, by the module's name: first a policy
        whose first agent has the information that the module could at best provide, then one or more without it. Its
        return beyond the best of these is what the module can gain in this world. By default none.

        The other agents act alike in all of them.
        """
        return {}

    def reward_by_part(self, action: Tensor) -> dict[str, Tensor]:
        """Return the reward by part ([N], or [A, N]) that an action would bring now; the games are left as they are."""
        state, chance, action = self._snapshot.state, self._snapshot.chance, self._action_range.nearest(action)
        total: dict[str, Tensor] = {}
        over = torch.zeros_like(self._snapshot.untouched)
        for _ in range(self.action_repeat):
            chance = chance.tick()
            later = self.advance(state, action, chance)
            for name, value in self.reward_parts(later).items():
                total[name] = total.get(name, torch.zeros_like(value)) + torch.where(over, 0.0, value)
            state = choose(over, state, later)
            _, terminated, truncated = self.outcome(later)
            over = over | terminated | truncated
        return total

    # --- the step, resets included, which is compiled as one; and a reset beside it ----------------------------------

    def _advance_and_replace(self, action: Tensor, snapshot: Snapshot) -> AutoResetStep:
        """Step all worlds, replace those that ended, and update ``snapshot`` in place."""
        action = self._action_range.nearest(action)
        state, reward, terminated, truncated, steps, chance = self._advance(action, snapshot)
        episode = snapshot.episode.add(reward, steps)
        done = terminated | truncated
        ended = {
            **self.observe(state),
            "done": done.unsqueeze(-1),
            "terminated": terminated.unsqueeze(-1).clone(),  # a game may return a part of its state
            "truncated": truncated.unsqueeze(-1).clone(),
        }
        if self.num_agents is None:
            ended["reward"] = reward.unsqueeze(-1).clone()
        else:
            ended[GROUP]["reward"] = reward.T.unsqueeze(-1).clone()
        after = snapshot._replace(state=state, episode=episode, chance=chance, untouched=done)
        last = map_record(torch.clone, after) if self._show_last else None
        after = after._replace(
            state=choose(done, self.respawn(state, snapshot.settings, chance), state),
            episode=choose(done, begin_episode(snapshot.stage, self.num_agents, complete=True), episode),
        )
        fresh = self._report(after.state, after.episode) | _not_done(done)
        ended["episode"] = self._statistics(state, episode)  # here, so that a compiler places it beside its replacement
        write(snapshot, after)
        return AutoResetStep(ended, fresh, last)

    def _advance(self, action: Tensor, snapshot: Snapshot) -> GameStep:
        """Return the games after :attr:`action_repeat` steps with one action."""
        if self.action_repeat == 1:
            chance = snapshot.chance.tick()
            state = self.advance(snapshot.state, action, chance)
            return GameStep(state, *self.outcome(state), 1, chance)
        reward, steps = torch.zeros_like(snapshot.episode.total_reward), torch.zeros_like(snapshot.episode.length)
        died, stopped = (torch.zeros_like(snapshot.untouched) for _ in range(2))  # a region takes no tensor twice
        moment = GameStep(snapshot.state, reward, died, stopped, steps, snapshot.chance)
        for _ in range(self.action_repeat):
            moment = filled(moment, self._advance_further(moment, action))
        return moment

    @torch.compiler.nested_compile_region  # traced and compiled once, however often a step repeats it
    def _advance_further(self, moment: GameStep, action: Tensor) -> tuple[Tensor, ...]:
        """Take one more step with the same action; a game that has ended keeps its final state."""
        # as results of this region, because TorchDynamo evaluates attributes (``.T``) of its inputs outside of it
        action, moment = action.view_as(action), map_record(lambda value: value.view_as(value), moment)
        state, reward, terminated, truncated, steps, chance = moment
        goes_on, chance = ~(terminated | truncated), chance.tick()
        later = self.advance(state, action, chance)
        earned, dies, time_is_up = self.outcome(later)
        after = GameStep(
            choose(goes_on, later, state),
            reward + torch.where(goes_on, earned, 0.0),
            terminated | (goes_on & dies),
            truncated | (goes_on & time_is_up),
            steps + goes_on,
            chance,
        )
        # in memory of their own, of which the next call has the layout; a record would be traced each time
        return tuple(value.clone(memory_format=torch.contiguous_format) for _, value in named_tensors(after))

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

    def _report(self, state: Any, episode: EpisodeStats) -> dict[str, Any]:
        """Return observations [N, ...] and episode statistics [N, 1], in memory of their own."""
        observed: dict[str, Any] = dict(self.observe(state))
        observed["episode"] = self._statistics(state, episode)
        return observed

    def _statistics(self, state: Any, episode: EpisodeStats) -> dict[str, Tensor]:
        """Return the episode statistics, [N, 1]."""
        statistics = episode.statistics() | self.statistics(state)
        return {name: value.unsqueeze(-1).clone() for name, value in statistics.items()}


def _not_done(like: Tensor) -> dict[str, Tensor]:
    keys = ("done", "terminated", "truncated")
    return dict(zip(keys, like.new_zeros(len(keys), len(like), 1), strict=True))  # one kernel for all of them
