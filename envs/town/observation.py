"""Observations of the agents of a town: named groups of numbers between -1 and 1, the same sizes on every map.

They contain nothing that is hidden from the agent; :func:`privileged` is for training labels only.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from envs.toolkit.geometry import nearest
from envs.town.people import learners, sought
from envs.town.rules import HOURS, Rules
from envs.town.state import TRAITS, State, Tables, holds_place, hour, kind_of, standing_on

MODES = ("flat", "groups")
"""Modes of the observation: one vector ``observation``, or one key per group."""


def group_names(rules: Rules) -> dict[str, list[str]]:
    """Names of the components of each group, in the order of the flat observation; groups without meaning in this town
    are left out.
    """
    did, reach = [f"did {name}" for name in rules.action_names], rules.view or 0
    cells = range(-reach, reach + 1)
    of_other = ["x", "y", "exists", *(["family"] if rules.family_size > 1 else []), *did, *rules.cues]
    others = ["nearest", *(f"nearest but {slot}" for slot in range(1, num_visible(rules)))][: num_visible(rules)]
    offsets = [f"{kind} {value}" for kind in rules.kinds for value in ("x", "y", "exists")]
    window = [f"{channel} at ({x}, {y})" for channel in channel_names(rules) for y in cells for x in cells]
    names = {
        "meters": list(rules.meter_names),
        "position": ["x", "y"],
        "standing_on": [*rules.kinds, "no place"],
        "progress": ["of the visit"],
        "time": ["sine of the hour", "cosine of the hour", "share of the time"],
        "previous_action": [*did, "refused"],
        **({"map": offsets} if rules.view is None else {"window": window}),
        "others": [f"{other} {value}" for other in others for value in of_other],
        "traits": list(TRAITS) if rules.traits else [],
        "messages": [
            f"member {member} says {symbol}"
            for member in range(1, rules.family_size)
            for symbol in range(rules.symbols)
        ],
    }
    return {group: words for group, words in names.items() if words}


def channel_names(rules: Rules) -> list[str]:
    """Names of the channels of the window."""
    return [*rules.kinds, "other agent", "wall"]


def group_shapes(rules: Rules) -> dict[str, tuple[int, ...]]:
    """Shapes of the groups: vectors, and the window as a picture [channels, side, side]."""
    side = 2 * (rules.view or 0) + 1
    picture = (len(rules.kinds) + 2, side, side)
    return {name: picture if name == "window" else (len(words),) for name, words in group_names(rules).items()}


def observation_names(rules: Rules, mode: str) -> dict[str, list[str]]:
    """Names of the observation's entries by key: of the components of a group, and of the channels of the window; for
    the flat observation all components in sequence.
    """
    names = group_names(rules)
    if mode == "groups":
        return {group: channel_names(rules) if group == "window" else words for group, words in names.items()}
    return {"observation": [f"{group} {name}" for group, words in names.items() for name in words]}


def num_visible(rules: Rules) -> int:
    """Number of slots for other agents."""
    return min(rules.visible_agents, rules.population - 1)


def observe(state: State, rules: Rules) -> dict[str, Tensor]:
    """Compute every group, [N, A, size]:

    - ``meters``: own meters. ``position``: x and y as fractions of the map. ``standing_on``: kind of the place at the
      agent's cell, one-hot, "none" last. ``progress``: fraction of the running visit. ``time``: sine and cosine of the
      hour, fraction of the longest life. ``previous_action``: one-hot, and 1 if the last request was refused.
    - ``map`` (without fog): for every kind, the offset (x, y) to the nearest place as fractions of the map, and 1 if
      there is one. ``window`` (with fog): a picture of the cells around the agent, row by row, one channel for each
      kind of place, then other agents, then walls; [N, A, channels, side, side], in the flat observation as one vector.
    - ``others``: the nearest visible agents, for each the offset (x, y) as fractions of the sight, 1 if there is one, 1
      if it is family, its last action one-hot, and its cues. ``traits``: own character. ``messages``: one-hot symbols
      of the family's other members.
    """
    own = learners(state, rules)
    agents, settings, lived = own.agents, own.settings, own.step.float() / rules.max_steps
    slot = standing_on(own, rules)
    kind = kind_of(slot, rules)
    across, down = (settings.width - 1).clamp_min(1), (settings.height - 1).clamp_min(1)
    angle = hour(state) * (2 * math.pi / HOURS)
    durations = [float(rules.affordances[name].duration if rules.multi_tick else 1) for name in rules.kinds]
    everyone = torch.zeros_like(own.tally.lifetime)
    rows: dict[str, list[Tensor]] = {
        "meters": list(own.meters.unbind(0)),
        "position": [agents.x / across, agents.y / down],
        "standing_on": _one_hot(kind, len(rules.kinds) + 1),
        "progress": [agents.progress / max(durations)],
        "time": [everyone + value for value in (torch.sin(angle), torch.cos(angle), lived)],
        "previous_action": [*_one_hot(agents.action, len(rules.action_names)), agents.refused.float()],
    }
    if rules.view is None:
        rows["map"] = _map(own, rules)
    groups = {name: _stacked(values) for name, values in rows.items()}
    if rules.view is not None:
        groups["window"] = _window(state, rules)
    if num_visible(rules):
        groups["others"] = _stacked(_others(state, rules))
    if rules.traits:
        groups["traits"] = _stacked(list(own.traits.unbind(0)))
    if rules.symbols:
        groups["messages"] = _stacked(_messages(state, rules))
    return groups


def _stacked(values: list[Tensor]) -> Tensor:
    """Stack components [A, N] to [N, A, size]."""
    return torch.stack(values).permute(2, 1, 0).contiguous()


def _one_hot(index: Tensor, size: int) -> list[Tensor]:
    return [(index == category).float() for category in range(size)]


def _map(state: State, rules: Rules) -> list[Tensor]:
    """Offset to the nearest place of every kind."""
    agents, layout, settings, values = state.agents, state.layout, state.settings, []
    for kind in range(len(rules.kinds)):
        first = kind * rules.places_per_kind
        dx, dy = layout.x[first] - agents.x, layout.y[first] - agents.y
        for slot in range(first + 1, first + rules.places_per_kind):
            other_x, other_y = layout.x[slot] - agents.x, layout.y[slot] - agents.y
            nearer = other_x.abs() + other_y.abs() < dx.abs() + dy.abs()
            dx, dy = torch.where(nearer, other_x, dx), torch.where(nearer, other_y, dy)
        there = holds_place(dx)
        values += [
            torch.where(there, dx / settings.width, 0.0),
            torch.where(there, dy / settings.height, 0.0),
            there.float(),
        ]
    return values


def _window(state: State, rules: Rules) -> Tensor:
    """Draw the window, [N, A, K + 2, side, side]. Nearly all of it is 0, so places and agents are scattered. Those
    outside are written as a 0 to a cell that is always 0: the wall on the agent's own cell.
    """
    agents, everyone, layout, view = learners(state, rules).agents, state.agents, state.layout, rules.view or 0
    side, kinds = 2 * view + 1, len(rules.kinds)
    cells, channels = side * side, kinds + 2
    walls = (kinds + 1) * cells
    slots = torch.arange(rules.num_slots, dtype=torch.int32, device=agents.x.device).reshape(-1, 1, 1)
    kind = kind_of(slots, rules)
    cell = _cell_seen(layout.x.unsqueeze(1) - agents.x, layout.y.unsqueeze(1) - agents.y, view)  # [S, A, N]
    index, seen = [kind * cells + cell], [cell >= 0]
    if rules.population > 1:
        cell = _cell_seen(everyone.x.unsqueeze(1) - agents.x, everyone.y.unsqueeze(1) - agents.y, view)  # [other, A, N]
        myself = torch.eye(rules.population, rules.num_agents, dtype=torch.bool, device=cell.device).unsqueeze(-1)
        index.append(kinds * cells + cell)
        seen.append((cell >= 0) & everyone.alive.unsqueeze(1) & ~myself)
    shown = torch.cat(seen)
    places = torch.where(shown, torch.cat(index), walls + cells // 2).permute(2, 1, 0).long()
    cell = torch.arange(cells, dtype=torch.int32, device=agents.x.device).reshape(-1, 1, 1)
    row = torch.div(cell, side, rounding_mode="floor")
    x, y = agents.x + cell - row * side - view, agents.y + row - view
    wall = (x < 0) | (y < 0) | (x >= state.settings.width) | (y >= state.settings.height)
    window = torch.zeros(*places.shape[:2], cells * channels, device=places.device)
    window[..., walls:] = wall.permute(2, 1, 0)
    window.scatter_(-1, places, shown.permute(2, 1, 0).float())
    return window.unflatten(-1, (channels, side, side))


def _cell_seen(dx: Tensor, dy: Tensor, view: int) -> Tensor:
    """Index of the window's cell at (dx, dy), -1 outside."""
    inside = (dx.abs() <= view) & (dy.abs() <= view)
    return torch.where(inside, (dy + view) * (2 * view + 1) + dx + view, -1)


def _others(state: State, rules: Rules) -> list[Tensor]:
    values = []
    for distance, dx, dy, cues, family, action, _ in _sightings(state, rules):
        there = distance < torch.inf
        values += [torch.where(there, dx / rules.sight, 0.0), torch.where(there, dy / rules.sight, 0.0), there.float()]
        if rules.family_size > 1:
            values.append(torch.where(there, family, 0.0))
        values += _one_hot(torch.where(there, action, -1), len(rules.action_names))
        bits = cues.to(torch.int32)
        for number, cue in enumerate(rules.cues.values()):
            shown = there & ((bits >> number) & 1 > 0) & (distance <= cue.radius)
            values.append((shown & (family > 0) if cue.family_only else shown).float())
    return values


def _sightings(state: State, rules: Rules) -> list[tuple[Tensor, ...]]:
    """Return for each slot of the visible others: (distance, dx, dy, cues, family, last action, index), [A, N]; the
    distance of an empty slot is infinite.
    """
    agents, own, count = state.agents, learners(state, rules).agents, rules.num_agents
    # every pair of agents, then the nearest of those in sight by slot
    dx = (agents.x.unsqueeze(1) - own.x).float()  # [other, A, N]
    dy = (agents.y.unsqueeze(1) - own.y).float()
    index = torch.arange(rules.population, device=dx.device)
    other = (index.unsqueeze(1) != index[:count]).unsqueeze(-1)
    distance = dx.abs() + dy.abs()
    seen = other & agents.alive.unsqueeze(1) & (distance <= rules.sight)
    families = torch.div(index, rules.family_size, rounding_mode="floor")
    family = (families.unsqueeze(1) == families[:count]).float().unsqueeze(-1).expand_as(dx)
    cues = agents.cues.float().unsqueeze(1).expand_as(dx)
    action = agents.action.float().unsqueeze(1).expand_as(dx)
    who = index.float().reshape(-1, 1, 1).expand_as(dx)
    columns = [value.flatten(1) for value in (dx, dy, cues, family, action, who)]
    found = nearest(torch.where(seen, distance, torch.inf).flatten(1), num_visible(rules), *columns)
    return [tuple(value.reshape(count, -1) for value in row) for row in found]


def _messages(state: State, rules: Rules) -> list[Tensor]:
    """One-hot symbols of the other members of each agent's family; dead agents post symbol 0."""
    posted = torch.where(state.agents.alive, state.agents.symbol, 0)
    families = posted.unflatten(0, (-1, rules.family_size))
    values = []
    for place in range(1, rules.family_size):
        values += _one_hot(families.roll(-place, 1).flatten(0, 1), rules.symbols)
    return values


def others_number(state: State, rules: Rules) -> Tensor:
    """Index of the agent in each slot of the visible others (agents know each other), int64 [N, A, V]; in empty slots
    the number of all agents, residents included.
    """
    rows = [torch.where(row[0] < torch.inf, row[-1], rules.population) for row in _sightings(state, rules)]
    return torch.stack(rows).long().permute(2, 1, 0).contiguous()


def privileged(state: State, rules: Rules, tables: Tables) -> dict[str, Tensor]:
    """Return labels for training, never for acting: of each visible other agent its meters [N, A, V, M], its most
    pressing need (index of the meter; for residents the one they pursue) and its last action, [N, A, V]; 0 in empty
    slots.
    """
    number = others_number(state, rules).permute(2, 1, 0)  # [V, A, N]
    seen = number < rules.population
    index = torch.where(seen, number, 0)
    meters = state.meters.unsqueeze(2).expand(-1, -1, index.shape[1], -1)  # [M, other, A, N]
    theirs = meters.gather(1, index.unsqueeze(0).expand(meters.shape[0], -1, -1, -1))  # [M, V, A, N]

    def theirs_of(values: Tensor) -> Tensor:
        """Return the entry of ``values`` [A, N] for each visible other agent, [V, A, N]."""
        return torch.where(seen, values.unsqueeze(1).expand(-1, index.shape[1], -1).gather(0, index), 0)

    need = pressing_need(state.meters, tables)
    if rules.num_residents:
        need = torch.cat((need[: rules.num_agents], sought(state, rules, tables)))
    return {
        "others_meters": torch.where(seen, theirs, 0.0).permute(3, 2, 1, 0).contiguous(),
        "others_need": theirs_of(need).permute(2, 1, 0).contiguous(),
        "others_action": theirs_of(state.agents.action.long()).permute(2, 1, 0).contiguous(),
    }


def pressing_need(meters: Tensor, tables: Tables) -> Tensor:
    """Index of the lowest need that the town can serve, int64 [A, N], from meters [M, A, N]."""
    return torch.where(tables.needs, meters, torch.inf).argmin(0)


def global_state(state: State, rules: Rules) -> Tensor:
    """Global state of a world for centralized critics, [N, F]: meters, positions and ``alive`` of all agents, all
    places, the hour, and the fraction of elapsed time.
    """
    agents, layout, settings = state.agents, state.layout, state.settings
    across, down = (settings.width - 1).clamp_min(1), (settings.height - 1).clamp_min(1)
    present = holds_place(layout.x)
    angle = hour(state) * (2 * math.pi / HOURS)
    parts = [
        state.meters.flatten(0, 1),
        agents.x / across,
        agents.y / down,
        agents.alive.float(),
        torch.where(present, layout.x / across, -1.0),
        torch.where(present, layout.y / down, -1.0),
        torch.stack([torch.sin(angle), torch.cos(angle), state.step.float() / rules.max_steps]),
    ]
    return torch.cat(parts).T.contiguous()


def global_size(rules: Rules) -> int:
    """Number of components of :func:`global_state`."""
    return rules.population * (len(rules.meters) + 3) + 2 * rules.num_slots + 3


def action_mask(legal: list[Tensor], state: State, rules: Rules) -> Tensor:
    """Mask of legal actions, bool [N, A, actions], followed by that of the message head."""
    rows = list(legal)
    if rules.symbols:
        ones = torch.ones_like(state.agents.alive)
        rows += [ones if symbol == 0 else state.agents.alive for symbol in range(rules.symbols)]
    return torch.stack(rows).permute(2, 1, 0).contiguous()
