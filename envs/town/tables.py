"""The rules' content as small tensors, to be looked up by number on the device."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from envs.town.rules import HOURS, Character, Rules, visit


class ResidentTables(NamedTuple):
    """The C characters by number; character C is nobody's and does nothing. Kind K is "none"."""

    now: Tensor
    """[C + 1, 2, 24] kind of place of the appointment by mood (happy last) and hour, int32."""
    later: Tensor
    """The same, also in the hours before it."""
    early: Tensor
    """[C + 1] needs below this are seen to."""
    errands: Tensor
    """[C + 1, E] kinds, int32, and in ``num_errands`` [C + 1] how many, at least 1."""
    num_errands: Tensor
    speed: Tensor
    """[C + 1] cells per step, int32."""
    teaches: Tensor
    """[C + 1] kinds, int32."""
    lies: Tensor
    """[C + 1] bool."""
    drawn: Tensor
    """Numbers of the characters that residents may have, int32."""
    serves: Tensor
    """[M] kind of place that raises a meter most, int32."""
    raises: Tensor
    """[K + 1] number of the meter that a kind raises most, int32; money aside."""


class NoTables(NamedTuple):
    """In towns without residents."""


class Tables(NamedTuple):
    """The rules' content by number, so that it can be looked up on the device; kind K is "none"."""

    tick: Tensor
    """[M, K + 1] change of meters by each step of a visit, its price included (the whole visit without multi_tick)."""
    completion: Tensor
    """[M, K + 1] change of meters by the last step, on top (0 without multi_tick)."""
    price: Tensor
    """[K + 1] per step (per visit without multi_tick)."""
    duration: Tensor
    """[K + 1] steps of a visit, int32 (1 without multi_tick)."""
    opens: Tensor
    span: Tensor
    """Hour of opening and hours open, [K + 1]."""
    capacity: Tensor
    """[K + 1] seats per place, int32."""
    company: Tensor
    """[K + 1] others that must be there, int32."""
    working: Tensor
    """[K + 1] places that work, int32."""
    count: Tensor
    """[K + 1] places, int32."""
    actions: Tensor
    """[M, number of actions] change of meters by the actions themselves: effort and the content's own actions."""
    depletion: Tensor
    """[M, 1, 1]."""
    needs: Tensor
    """[M, 1, 1] whether a meter is a need that the town can serve."""
    exists: Tensor
    """[S, 1] whether a slot can hold a place."""
    cell_index: Tensor
    """[S] number of a slot among the places, for random layouts."""
    cell_x: Tensor
    cell_y: Tensor
    """[S, 1] cells of fixed layouts, int32."""
    residents: Any
    """:class:`ResidentTables`, or :class:`NoTables`."""


def make_tables(rules: Rules, device: torch.device) -> Tables:
    """The content of ``rules`` on a device."""
    places = [rules.affordances[kind] for kind in rules.kinds]
    multi = rules.multi_tick
    money = rules.meter_names.index("money") if "money" in rules.meters else None
    price = [place.tick_price if multi else place.price for place in places] + [0.0]
    tick, completion = [], []
    for name in rules.meter_names:
        steps = [place.tick.get(name, 0.0) for place in places]
        last = [place.completion.get(name, 0.0) for place in places]
        if not multi:
            steps = [place.duration * value + end for place, value, end in zip(places, steps, last, strict=True)]
            last = [0.0] * len(places)
        tick.append([*steps, 0.0])
        completion.append([*last, 0.0])
    if money is not None:
        tick[money] = [value - cost for value, cost in zip(tick[money], price, strict=True)]
    effort = [
        [*[-meter.move] * 4, -meter.interact, 0.0, *(effects.get(name, 0.0) for effects in rules.actions.values())]
        for name, meter in rules.meters.items()
    ]
    seats = [rules.population if place.capacity is None else place.capacity for place in places]
    exists, cells = _slots(rules)

    def floats(values: list) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device)

    def whole(values: list) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=device)

    return Tables(
        tick=floats(tick),
        completion=floats(completion),
        price=floats(price),
        duration=whole([place.duration if multi else 1 for place in places] + [1]),
        opens=floats([place.hours[0] % HOURS for place in places] + [0]),
        span=floats([place.hours[1] - place.hours[0] if rules.clock else HOURS for place in places] + [0]),
        capacity=whole([*seats, 0]),
        company=whole([*(place.company for place in places), 0]),
        working=whole([*(place.count if place.working is None else place.working for place in places), 0]),
        count=whole([*(place.count for place in places), 1]),
        actions=floats(effort),
        depletion=floats([meter.depletion for meter in rules.meters.values()]).reshape(-1, 1, 1),
        needs=torch.tensor([name in rules.needs for name in rules.meter_names], device=device).reshape(-1, 1, 1),
        exists=torch.tensor(exists, device=device).unsqueeze(1),
        cell_index=(torch.tensor(exists, device=device).long().cumsum(0) - 1).clamp_min(0),
        cell_x=whole([x for x, _ in cells]).unsqueeze(1),
        cell_y=whole([y for _, y in cells]).unsqueeze(1),
        residents=_resident_tables(rules, device) if rules.num_residents else NoTables(),
    )


def _resident_tables(rules: Rules, device: torch.device) -> ResidentTables:
    characters, none = [*rules.characters.values(), Character()], len(rules.kinds)
    longest = max(1, *(len(character.errands) for character in characters))

    def number(kind: str | None) -> int:
        return none if kind is None else rules.kinds.index(kind)

    def whole(values: list) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=device)

    def timetable(character: Character, start: int) -> list[list[int]]:
        days = (number(character.sad), number(character.happy))
        return [[kind if start <= hour < character.hours[1] else none for hour in range(HOURS)] for kind in days]

    gains = torch.tensor([[visit(rules.affordances[kind], name) for kind in rules.kinds] for name in rules.meter_names])
    there = torch.tensor([kind in rules.deployed for kind in rules.kinds])
    needs = torch.tensor([meter.need for meter in rules.meters.values()]).unsqueeze(1)
    raises = torch.where(needs, gains, -torch.inf).argmax(0)
    errands = [[number(kind) for kind in character.errands] or [none] for character in characters]
    return ResidentTables(
        now=whole([timetable(character, character.hours[0]) for character in characters]),
        later=whole([timetable(character, 0) for character in characters]),
        early=torch.tensor([character.early for character in characters], device=device),
        errands=whole([kinds + kinds[:1] * (longest - len(kinds)) for kinds in errands]),
        num_errands=whole([len(kinds) for kinds in errands]),
        speed=whole([character.speed for character in characters]),
        teaches=whole([number(character.teaches) for character in characters]),
        lies=torch.tensor([character.lies for character in characters], device=device),
        drawn=whole(list(rules.drawn)),
        serves=torch.where(there, gains, -torch.inf).argmax(1).int().to(device),
        raises=torch.cat((raises, raises.new_zeros(1))).int().to(device),
    )


def _slots(rules: Rules) -> tuple[list[bool], list[list[int]]]:
    """For each slot of the layout, whether a place can be there, and its cell in a fixed layout."""
    exists, cells = [], []
    for kind in rules.kinds:
        count = rules.affordances[kind].count if kind in rules.deployed else 0
        given = rules.affordances[kind].positions if count else None
        exists += [slot < count for slot in range(rules.places_per_kind)]
        cells += [*(given or [[0, 0]] * count), *[[0, 0]] * (rules.places_per_kind - count)]
    return exists, cells
