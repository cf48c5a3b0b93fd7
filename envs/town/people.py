"""Given traits and initial money of a town's agents, in place of random draws and the level's values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

TRAITS = ("neuroticism", "greed", "agreeableness", "curiosity")
"""Traits of a character, each in [0, 1], in the order of the state's rows."""


DRAWN = -1.0
"""Placeholder of a trait that is drawn at every birth: unlike NaN it is equal to itself."""


class People(NamedTuple):
    """Traits and initial money of agents in fresh towns; A learning agents, N worlds."""

    traits: Tensor
    """Traits [4, A, N]; :data:`DRAWN` for those that are drawn."""
    money: Tensor
    """Initial money [A, N] in addition to the level's, as inherited."""


def anybody(num_agents: int, num_envs: int, device: torch.device) -> People:
    """Return people whose traits are all drawn and whose money is the level's."""
    unknown = torch.full((len(TRAITS), num_agents, num_envs), DRAWN, device=device)
    return People(unknown, torch.zeros(num_agents, num_envs, device=device))


def send(people: People, traits: Mapping[str, Any] | None, money: Any) -> None:
    """Overwrite ``people`` by the given values: numbers, or tensors that fit [N, A].

    Raises:
        ValueError: a trait is unknown, or a value is not a number in [0, 1] for each agent; nothing is changed then.
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
    """Return a value for every agent, [A, N]."""
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
    """Return traits [4, A, N]: the given ones of learning agents; those not given and those of residents as drawn."""
    count = people.traits.shape[1]
    born = torch.where(people.traits == DRAWN, drawn[:, :count], people.traits)
    return born if count == drawn.shape[1] else torch.cat((born, drawn[:, count:]), 1)


def purses(money: Tensor, people: People) -> Tensor:
    """Return initial money [A, N]: the level's plus the inherited."""
    count = people.money.shape[0]
    born = (money[:count] + people.money).clamp_max(1.0)
    return born if count == money.shape[0] else torch.cat((born, money[count:]))
