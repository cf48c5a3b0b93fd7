"""A game as pure functions on tensors: what each game says, and the step and the reset that follow from it.

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
from envs.toolkit.records import choose, map_record, write


class GameStep(NamedTuple):
    """What a step makes of the games."""

    state: Any
    reward: Tensor
    """Of the whole step, [N] or [A, N]."""
    terminated: Tensor
    truncated: Tensor
    steps: Tensor | int
    """Steps of the game that were played, [N]: fewer than ``action_repeat`` where it ended before."""
    chance: Chance


class Names(TypedDict, total=False):
    """Words for what is a number in tensors, in its order."""

    actions: Sequence[str]
    meters: Sequence[str]
    observation: Mapping[str, Sequence[str]]
    """By key (of agents in a group, its key there): of a vector what each number is, of a picture what each channel
    is.
    """
    colors: Mapping[str, Sequence[tuple[int, int, int]]]
    """By key of a picture, what each channel is drawn in: red, green, blue, 0 to 255."""


class Game:
    """Functions on a record of tensors (nested ``NamedTuple``, world axis last)."""

    action_repeat: int = 1
    """Steps of the game with the same action in each step of the world, whose rewards are added up."""
    num_agents: int | None = None
    """Agents per world; None for a world of one agent with flat keys."""
    midway: bool
    """Whether a reset of all worlds begins them at random moments of their episodes."""
    _action_range: ActionRange
    _show_last: bool
    """Whether a step keeps the worlds that ended as they ended."""

    # --- what the game is, said by a subclass ------------------------------------------------------------------------

    def settings(self) -> Any:
        """Initial per-world settings: a record of [N] tensors."""
        raise NotImplementedError

    def spawn(self, settings: Any, chance: Chance, midway: bool) -> Any:
        """Fresh worlds; ``midway``: each at a random moment of its episode, so that resets desynchronize."""
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

    def names(self) -> Names:
        """Words for what is a number in tensors; by default none."""
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

    # --- the step, resets included, which is compiled as one; and a reset beside it ----------------------------------

    def _advance_and_replace(self, action: Tensor, snapshot: Snapshot) -> AutoResetStep:
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
        return AutoResetStep(ended, fresh, last)

    def _advance(self, action: Tensor, snapshot: Snapshot) -> GameStep:
        """The games after :attr:`action_repeat` steps with one action."""
        if self.action_repeat == 1:
            chance = snapshot.chance.tick()
            state = self.advance(snapshot.state, action, chance)
            return GameStep(state, *self.outcome(state), 1, chance)
        reward, steps = torch.zeros_like(snapshot.episode.total_reward), torch.zeros_like(snapshot.episode.length)
        ended = torch.zeros_like(snapshot.untouched)
        moment = GameStep(snapshot.state, reward, ended, ended, steps, snapshot.chance)
        for _ in range(self.action_repeat):
            moment = self._advance_further(moment, action)
        return moment

    @torch.compiler.nested_compile_region  # compiled once, however often a step repeats it
    def _advance_further(self, moment: GameStep, action: Tensor) -> GameStep:
        """One more step with the same action; a game that has ended stays as it ended."""
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

    def _report(self, state: Any, episode: EpisodeStats) -> dict[str, Any]:
        """Observations [N, ...] and episode statistics [N, 1], in memory of their own."""
        observed: dict[str, Any] = dict(self.observe(state))
        observed["episode"] = self._statistics(state, episode)
        return observed

    def _statistics(self, state: Any, episode: EpisodeStats) -> dict[str, Tensor]:
        """Episode statistics [N, 1]."""
        statistics = episode.statistics() | self.statistics(state)
        return {name: value.unsqueeze(-1).clone() for name, value in statistics.items()}


def _not_done(like: Tensor) -> dict[str, Tensor]:
    keys = ("done", "terminated", "truncated")
    return dict(zip(keys, like.new_zeros(len(keys), len(like), 1), strict=True))  # one kernel for all of them
