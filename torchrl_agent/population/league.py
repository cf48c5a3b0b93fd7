"""State of a league: past selves, holders of the frozen seats, points between players, and ratings of all players."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from torchrl_agent.core import keys
from torchrl_agent.core.checkpoint import find_checkpoint, load_checkpoint
from torchrl_agent.core.run_names import find_run
from torchrl_agent.population.config import LeagueConfig
from torchrl_agent.population.evolution import EvolutionStep
from torchrl_agent.population.pool import Pool, draw_weights
from torchrl_agent.population.ratings import Ratings, Standings, bradley_terry
from torchrl_agent.population.seats import Seats, seat_table
from torchrl_agent.population.stack import Stack

FADES = 0.98
"""Weight that a game keeps from one iteration to the next: members change."""


def make_seats(config: LeagueConfig, members: int, worlds: int) -> Seats:
    """Seats by a league's configuration, with the given number of worlds of each member."""
    shares = list(config.scripted.values())
    return seat_table(worlds, members, config.slots, config.past, shares, config.exploiters)


class League:
    """Opponents of a population's members, and results of games; independent of worlds, policies and learning.

    Args:
        seats: holder of each seat, see :func:`make_seats`.

    Attributes:
        pool: past selves.
        slots: members in the frozen seats, [slots].
        present: copies, from the last draw, of the members that are no exploiters; exploiters meet them.
        first: exploiters in their initial state.
        standings: points of members, scripted players and snapshots, in this order.
        ratings: ratings of these, as of the last :meth:`rate`.
        held: place in the pool of the snapshot in each slot, int64 [slots].
        clean: mask of the worlds in which no player was replaced since the game began, bool [N].
        begun: frames after which each member was last reset, as exploiters are, int64 [members].
        snapshot_at: frames after which the next snapshot is due.
    """

    def __init__(self, config: LeagueConfig, seats: Seats, stack: Stack, seed: int) -> None:
        self.config, self.seats, self.stack = config, seats, stack
        self.members, slots, copies, scripted = seats.counts
        self.mains = self.members - config.exploiters
        self.random = torch.Generator().manual_seed(seed)
        self.pool = Pool(stack, config.pool)
        self.slots = stack.take(torch.arange(slots) // config.slots)
        self.present = stack.take(torch.arange(copies))
        self.first = stack.take(torch.arange(self.mains, self.members))
        self.snapshots_from = self.members + scripted
        """Place of the first snapshot in the standings."""
        self.standings = Standings(self.snapshots_from + config.pool)
        self.held = torch.zeros(slots, dtype=torch.int64)
        self.clean = torch.ones(len(seats.player), dtype=torch.bool)
        self.begun = torch.zeros(self.members, dtype=torch.int64)
        self.snapshot_at = config.snapshot_every
        self.rate()

    # --- opponents ----------------------------------------------------------------------------------------------------

    def meet(self, device: torch.device) -> None:
        """Fill the slots with the agents of the runs that the configuration names.

        Raises:
            ValueError: an agent is of another kind than the members.
        """
        for slot, run in enumerate(self.config.against):
            agent = load_checkpoint(find_checkpoint(find_run(run)), device)["agent"]
            place = self.pool.add(0, slot, self.shares())
            for name, value in self.pool.snapshots.member(place).items():
                part, _, name = name.partition(".")
                if part != "agent":
                    continue
                if name not in agent or agent[name].shape != value.shape:
                    raise ValueError(f"the agent of {run} has no {name} as these members do: meet agents alike.")
                value.copy_(agent[name])
            self._hold(torch.arange(slot, len(self.held), self.config.slots), place)

    def snapshot(self, frames: int) -> None:
        """Add a snapshot of every member to the pool and draw opponents: one in a slot may have been removed."""
        for member in range(self.members):
            self.keep(member, frames)
        self.snapshot_at = frames + self.config.snapshot_every
        self.draw()

    def keep(self, member: int, frames: int) -> None:
        """Add a snapshot of a member to the pool, after this many frames."""
        place = self.pool.add(member, frames, self.shares())
        self.standings.forget(self.snapshots_from + place)

    def draw(self) -> None:
        """Draw snapshots for the slots of every member, and copy the members that exploiters meet."""
        if len(self.held):
            count, used = self.config.slots, self.pool.used
            drawn = torch.multinomial(self.weights(), count, replacement=len(used) < count, generator=self.random)
            self._hold(torch.arange(len(self.held)), used[drawn.flatten()])
        if self.present.size:
            everybody = torch.arange(self.mains)
            self.present.put(everybody, self.stack, everybody)

    def weights(self) -> Tensor:
        """Weights with which each member draws each snapshot in the pool, [mains, snapshots]."""
        return draw_weights(self.shares()[: self.mains, self.pool.used], self.config.choose)

    def _hold(self, slots: Tensor, places: Tensor | int) -> None:
        before = self.held.clone()
        self.held[slots] = places
        self.slots.put(slots, self.pool.snapshots, self.held[slots])
        self.interrupt(self.members + (self.held != before).nonzero().flatten())

    def interrupt(self, players: Tensor) -> None:
        """Exclude running games with one of these players from the results, as the player has been replaced."""
        self.clean &= ~torch.isin(self.seats.player, players).any(1)

    def follow(self, step: EvolutionStep) -> None:
        """Give children the standings of their first parents."""
        self.standings.copy(step.parents[:, 0])
        self.interrupt(step.children.nonzero().flatten())

    def begin_anew(self, exploiter: int, frames: int) -> Mapping[str, Tensor]:
        """Add a snapshot of an exploiter to the pool and clear its standings; return its initial tensors."""
        self.keep(exploiter, frames)
        self.begun[exploiter] = frames
        self.standings.forget(exploiter)
        self.interrupt(torch.tensor([exploiter]))
        return self.first.member(exploiter - self.mains)

    # --- results ------------------------------------------------------------------------------------------------------

    def enter(self, finished: Mapping[str, Tensor], worlds: Tensor) -> None:
        """Add the results of games [games] that ended in these worlds, in the order of time."""
        self.standings.fade(FADES)
        counted = self._counts(finished, worlds)
        players = self._places()[self.seats.player[worlds[counted]]]
        points = finished[keys.EPISODE_WIN] + finished[keys.EPISODE_DRAW] / 2
        self.standings.enter(players[:, 0], players[:, 1], points[counted])

    def _counts(self, finished: Mapping[str, Tensor], worlds: Tensor) -> Tensor:
        """Mask of the games that count: whole ones, in which no player was replaced, bool [games]."""
        places = torch.arange(len(worlds))
        first = torch.full((len(self.clean),), len(worlds)).scatter_reduce(0, worlds, places, "amin")
        clean = self.clean[worlds] | (places != first[worlds])
        self.clean[worlds] = True
        return clean & (finished.get(keys.EPISODE_COMPLETE, torch.ones(len(worlds))) > 0)

    def _places(self) -> Tensor:
        """The place in the standings of every player of the seats, int64 [players]."""
        members, _, copies, scripted = self.seats.counts
        frozen = self.snapshots_from + self.held
        return torch.cat((torch.arange(members), frozen, torch.arange(copies), members + torch.arange(scripted)))

    def shares(self) -> Tensor:
        """Fraction of the points that members and scripted players take from each snapshot, [players, pool]."""
        return self.standings.shares()[: self.snapshots_from, self.snapshots_from :]

    def rate(self) -> None:
        """Compute ratings from the standings, anchored at the first scripted player that is met, if there is one."""
        met = [place for place, share in enumerate(self.config.scripted.values(), self.members) if share]
        anchor = met[0] if met else None
        self.ratings = bradley_terry(self.standings.points, self.standings.games, anchor)

    def taken(self, players: slice) -> tuple[Tensor, Tensor]:
        """Points that each member took from these players together, and games with them, [members] each."""
        points, games = (
            table[: self.members, players].sum(1) for table in (self.standings.points, self.standings.games)
        )
        return points, games

    def of_members(self) -> dict[str, Tensor]:
        """Results of each member, [members]: its rating, and its fractions of the points against past selves and
        scripted players, NaN where it has met none.
        """
        opponents = {"past": slice(self.snapshots_from, None)}
        opponents |= {name: slice(at, at + 1) for at, name in enumerate(self.config.scripted, self.members)}
        shares = {f"win_vs_{name}": torch.div(*self.taken(players)) for name, players in opponents.items()}
        return {"rating": self.ratings.rating[: self.members], **shares}

    def summary(self) -> dict[str, float]:
        """Rating of the best member, number of snapshots, misfit of the ratings, and effective number of opponents of a
        member: the exponential of the entropy.
        """
        weights = self.weights()
        chances = weights / weights.sum(1, keepdim=True)
        return {
            "rating_best": float(self.ratings.rating[: self.mains].max()),
            "pool": float(len(self.pool.used)),
            "misfit": self.ratings.misfit,
            "effective_opponents": float((chances * chances.log()).sum(1).mean().neg().exp()),
        }

    # --- saving -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values from which :meth:`load_state_dict` goes on."""
        return {
            "pool": self.pool.state_dict(),
            **{name: stack.state_dict() for name, stack in self._stacks().items()},
            "standings": self.standings.state_dict(),
            "ratings": self.ratings._asdict(),
            "held": self.held.clone(),
            "clean": self.clean.clone(),
            "begun": self.begun.clone(),
            "snapshot_at": self.snapshot_at,
            "random": self.random.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`, on whatever device its tensors are."""
        self.pool.load_state_dict(state["pool"])
        for name, stack in self._stacks().items():
            stack.load_state_dict(state[name])
        self.standings.load_state_dict(state["standings"])
        self.ratings = Ratings(**tree_map_only(Tensor, Tensor.cpu, state["ratings"]))
        self.held.copy_(state["held"])
        self.clean.copy_(state["clean"])
        self.begun.copy_(state["begun"])
        self.snapshot_at = state["snapshot_at"]
        self.random.set_state(state["random"].cpu())

    def _stacks(self) -> dict[str, Stack]:
        return {"slots": self.slots, "present": self.present, "first": self.first}
