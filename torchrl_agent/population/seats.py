"""Holders of the seats of all worlds in a league. Seats are fixed, so that shapes are fixed; only the weights in a
frozen seat change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torchrl.envs import EnvBase

from torchrl_agent.core import keys
from torchrl_agent.core.abilities import abilities

SEATS = 2
"""Number of seats of a world for games of two."""


class Seats(NamedTuple):
    """The seats of all worlds. Players are numbered: members first, those that meet each other and their past selves
    before the exploiters; then frozen slots, the same number for each of the first kind; then frozen copies of the
    present members of the first kind, which exploiters meet; then scripted players.
    """

    player: Tensor
    """Holder of each seat, int64 [N, 2]."""
    home: Tensor
    """Member that owns each world and holds at least one of its seats, int64 [N]."""
    counts: tuple[int, int, int, int]
    """Members, slots, present copies, and scripted players."""

    @property
    def members(self) -> Tensor:
        """Rows (``world * 2 + seat``) of every member, from which it learns, int64 [P, K]."""
        return self._rows(0)

    @property
    def slots(self) -> Tensor:
        """Rows of every slot, int64 [slots, ...]."""
        return self._rows(1)

    @property
    def present(self) -> Tensor:
        """Rows of every present copy, int64 [copies, ...]."""
        return self._rows(2)

    def scripted(self, index: int) -> Tensor:
        """The seats of a scripted player, bool [N, 2]."""
        return self.player == sum(self.counts[:3]) + index

    def _rows(self, kind: int) -> Tensor:
        first, count, holders = sum(self.counts[:kind]), self.counts[kind], self.player.flatten()
        here = ((holders >= first) & (holders < first + count)).nonzero().flatten()
        return here[holders[here].argsort(stable=True)].view(count, len(here) // max(count, 1))


def seat_table(
    worlds: int, members: int, slots: int = 0, past: float = 0.0, scripted: Sequence[float] = (), exploiters: int = 0
) -> Seats:
    """Seats in which all members are seated equally often, and all slots, and every player on both sides.

    A member's worlds are next to each other: first those against its slots, then those against scripted players, then
    those in which it meets every member in turn, itself included. Exploiters meet copies of the others, in more worlds,
    as they learn from one seat of each alone.

    Args:
        worlds: number of worlds of each member that is no exploiter.
        members: number of members, with the exploiters.
        slots: number of frozen opponents of each one.
        past: fraction of its worlds against them, rounded down to a balanced number.
        scripted: fraction of its worlds against each scripted player, likewise.
        exploiters: number of exploiters, the last of the members.

    Raises:
        ValueError: a fraction is too small for one balanced round, or fractions exceed the worlds.
    """
    mains = members - exploiters
    frozen = _balanced("league.past", past, worlds, SEATS * slots)
    played = [_balanced("a share of league.scripted", share, worlds, SEATS) for share in scripted]
    live = worlds - frozen - sum(played)
    if live < 0:
        raise ValueError("league.past and the shares of league.scripted are together above 1: make them smaller.")
    copies = mains if exploiters else 0
    counts = (members, mains * slots if frozen else 0, copies, len(played))
    tables = []
    for member in range(mains):
        slot, round_, meeting = torch.arange(frozen), torch.arange(max([0, *played])), torch.arange(live)
        tables.append(_against(member, members + member * slots + slot % max(slots, 1), slot // max(slots, 1) % 2 == 1))
        for index, count in enumerate(played):
            theirs = torch.full((count,), sum(counts[:3]) + index)
            tables.append(_against(member, theirs, round_[:count] % 2 == 1))
        tables.append(_against(member, (member + meeting) % mains, torch.zeros(live, dtype=torch.bool)))
    of_exploiter = worlds + live  # as many seats as the others learn from
    if exploiters and of_exploiter % (SEATS * mains):
        raise ValueError(
            f"an exploiter meets {mains} members in {of_exploiter} worlds, which is not balanced: choose "
            f"world.num_envs so that they are a multiple of {SEATS * mains}."
        )
    for exploiter in range(mains, members):
        world = torch.arange(of_exploiter)
        tables.append(_against(exploiter, sum(counts[:2]) + world % mains, world // mains % 2 == 1))
    home = torch.arange(members).repeat_interleave(torch.tensor([worlds] * mains + [of_exploiter] * exploiters))
    return Seats(torch.cat(tables), home, counts)


def _against(member: int, opponents: Tensor, swapped: Tensor) -> Tensor:
    """A member's worlds against these opponents, which have the first seat where ``swapped``, int64 [worlds, 2]."""
    pairs = torch.stack((torch.full_like(opponents, member), opponents), 1)
    return torch.where(swapped.unsqueeze(1), pairs.flip(1), pairs)


def _balanced(name: str, share: float, worlds: int, block: int) -> int:
    """The largest number of worlds within a fraction of them that is a multiple of ``block``."""
    count = 0 if block == 0 else int(share * worlds) // block * block
    if share and block and not count:
        raise ValueError(
            f"{name} is {share:g} of world.num_envs={worlds}, too few for {block} balanced worlds: give more worlds."
        )
    return count


def pairings(players: int, games: int) -> Tensor:
    """Seats of a tournament in which every pair meets in ``games`` worlds, half of them with either in the first seat,
    int64 [N, 2].
    """
    first, second = torch.triu_indices(players, players, 1)
    pairs = torch.stack((first, second), 1).repeat_interleave(games, 0)
    swapped = torch.arange(games).repeat(len(first)) >= games // 2
    return torch.where(swapped.unsqueeze(1), pairs.flip(1), pairs)


def check_seats(env: EnvBase, name: str) -> None:
    """Raise ValueError unless two agents play against each other in a world, with a winner."""
    statistics = env.observation_spec.get(keys.EPISODE, {}).keys()
    if abilities(env).num_agents != SEATS or not {keys.EPISODE_WIN, keys.EPISODE_DRAW} <= set(statistics):
        raise ValueError(
            f"the world of {name} has no two seats with a winner: leagues and matches are for worlds such as the duel, "
            "without an opponent of its own."
        )
