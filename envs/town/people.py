"""People whom somebody sends to a town: their character and their purse, where chance and the level do not decide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

TRAITS = ("neuroticism", "greed", "agreeableness", "curiosity")
"""What a character is made of, each in [0, 1], in the order of the state's rows."""


DRAWN = -1.0
"""In place of a trait that chance draws at every birth: unlike NaN it is equal to itself."""


class People(NamedTuple):
    """Who is born in fresh towns; A agents that learn, N worlds."""

    traits: Tensor
    """[4, A, N], or :data:`DRAWN`."""
    money: Tensor
    """[A, N], what a life begins with besides the level's, as inherited."""


def anybody(num_agents: int, num_envs: int, device: torch.device) -> People:
    """Those that chance and the level make."""
    unknown = torch.full((len(TRAITS), num_agents, num_envs), DRAWN, device=device)
    return People(unknown, torch.zeros(num_agents, num_envs, device=device))


def send(people: People, traits: Mapping[str, Any] | None, money: Any) -> None:
    """Write what is given over ``people``: numbers, or tensors that fit [N, A].

    Raises:
        ValueError: an unknown trait, or what is no number in [0, 1] for each agent; nothing is changed then.
    """
    if not isinstance(traits, Mapping | None):
        raise ValueError(f"traits are {traits!r}: give them by name, such as traits={{greed: 0.3}}.")
    places = []
    for name, value in (traits or {}).items():
        if name not in TRAITS:
            raise ValueError(f"trait {name!r} is unknown: use {', '.join(TRAITS)}.")
        places.append((people.traits[TRAITS.index(name)], _rows(f"trait {name}", value, people, unknown=True)))
    if money is not None:
        places.append((people.money, _rows("money", money, people, unknown=False)))
    for place, value in places:
        place.copy_(value)


def _rows(what: str, value: Any, people: People, unknown: bool) -> Tensor:
    """A value for every agent, [A, N]."""
    agents, worlds = people.money.shape
    try:
        given = torch.as_tensor(value, dtype=torch.float32, device=people.money.device)
        given = given.broadcast_to(worlds, agents).T
    except (TypeError, ValueError, RuntimeError):
        shown = f"of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
        raise ValueError(
            f"{what} is {shown}: give a number, or a tensor that fits [{worlds}, {agents}] worlds and agents."
        ) from None
    fits = (given >= 0) & (given <= 1) | (given.isnan() & unknown)
    if not bool(fits.all()):
        raise ValueError(f"{what} is {given[~fits][0].item():g}: give a number in [0, 1].")
    return given.nan_to_num(DRAWN)


def characters(drawn: Tensor, people: People) -> Tensor:
    """Traits [4, A, N] of the agents that learn as they are given, those that are not given and those of residents as
    they were drawn.
    """
    count = people.traits.shape[1]
    born = torch.where(people.traits == DRAWN, drawn[:, :count], people.traits)
    return born if count == drawn.shape[1] else torch.cat((born, drawn[:, count:]), 1)


def purses(money: Tensor, people: People) -> Tensor:
    """Money [A, N] at birth: the level's, and what is inherited."""
    count = people.money.shape[0]
    born = (money[:count] + people.money).clamp_max(1.0)
    return born if count == money.shape[0] else torch.cat((born, money[count:]))
