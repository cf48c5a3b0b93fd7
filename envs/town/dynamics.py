"""Fresh towns, and one step of a town: ``advance`` lists the mechanics in their order; each takes a state and returns
the next.

The order is the reference's: own actions, moves, effort, visits, depletion, modulation, cascades, death, retirement.
Where several agents request the last seat of a place, random numbers decide, not the agent's index.
"""

from __future__ import annotations

import torch
from torch import Tensor

from envs.toolkit.chance import Chance, shuffled_cells
from envs.toolkit.records import choose, every, map_record
from envs.town.people import act, characters, hurry, pretend, purses, wake
from envs.town.rules import INTERACT, WAIT, Rules, Settings
from envs.town.state import (
    ABSENT,
    NUM_TRAITS,
    STREAM_CONTEST,
    STREAM_CUES,
    STREAM_LAYOUT,
    STREAM_PLACES,
    STREAM_TRADES,
    STREAM_TRAITS,
    STREAM_WIDTH,
    Agents,
    Empty,
    Events,
    Layout,
    State,
    Tables,
    Tally,
    admits,
    is_open,
    kind_of,
    standing_on,
    step_of,
)


def advance(state: State, action: Tensor, symbol: Tensor | None, chance: Chance, rules: Rules, tables: Tables) -> State:
    """Apply all rules of one step; ``action`` and ``symbol`` [A, N] are those of the learning agents."""
    before = state
    state = begin_step(state)
    if rules.num_residents:
        action = torch.cat((action.to(torch.int32), act(state, rules, tables)))
    state = choose_actions(state, action, symbol, rules, tables)
    state = move(state)
    if rules.num_residents:
        state = hurry(state, rules, tables)
    state = make_effort(state, tables)
    state = visit(state, chance, rules, tables)
    state = deplete(state, tables)
    state = modulate_and_cascade(state, rules)
    state = end_lives(state, before, rules)
    state = move_places(state, chance, rules, tables)
    state = trade_places(state, chance, rules, tables)
    if rules.num_residents:
        state = wake(state, chance, rules)
    return show_cues(state, chance, rules, tables)


def spawn(rules: Rules, tables: Tables, settings: Settings, chance: Chance) -> State:
    """Make fresh towns at hour 0, with places and agents on cells of their own."""
    agents, worlds = rules.population, len(settings.depletion)
    layout, x, y = place(rules, tables, settings, chance)
    nothing = torch.zeros(agents, worlds, dtype=torch.int32, device=x.device)
    no = torch.zeros_like(nothing, dtype=torch.bool)
    zero = torch.zeros_like(nothing, dtype=torch.float32)
    traits = chance.uniform(STREAM_TRAITS, NUM_TRAITS * agents, STREAM_WIDTH)
    meters = settings.initial.unsqueeze(1).expand(-1, agents, -1)
    if "money" in rules.meters:
        row = rules.meter_names.index("money")
        purse = purses(meters[row], settings.people).unsqueeze(0)
        meters = torch.cat((meters[:row], purse, meters[row + 1 :]))
    return State(
        meters=meters.contiguous(),
        agents=Agents(
            x=x,
            y=y,
            alive=~no,
            slot=nothing + rules.num_slots,
            progress=nothing,
            action=nothing + WAIT,
            refused=no,
            symbol=nothing,
            cues=nothing,
        ),
        traits=characters(traits.reshape(NUM_TRAITS, agents, worlds), settings.people),
        layout=layout,
        step=nothing[0],
        events=Events(acted=no, died=no, retired=no),
        tally=every(Tally, zero),
        settings=settings._replace(people=Empty()),
    )


def place(rules: Rules, tables: Tables, settings: Settings, chance: Chance) -> tuple[Layout, Tensor, Tensor]:
    """Draw the layout, and the agents' cells [A, N]."""
    agents = rules.population
    present = (settings.deployed.repeat_interleave(rules.places_per_kind, 0) > 0) & tables.exists
    if rules.random_layout:
        x, y = shuffled_cells(chance, STREAM_LAYOUT, agents + rules.num_places, settings.width, settings.height)
        places = Layout(x[agents:][tables.cell_index], y[agents:][tables.cell_index])
        x, y = x[:agents], y[:agents]
    else:
        places = Layout(tables.cell_x, tables.cell_y)
        luck = chance.uniform(STREAM_PLACES, 2 * agents, STREAM_WIDTH)
        x, y = (luck[:agents] * settings.width).int(), (luck[agents:] * settings.height).int()
    return map_record(lambda cell: torch.where(present, cell, ABSENT), places), x, y


def begin_step(state: State) -> State:
    """Clear the events of the last step."""
    nothing = torch.zeros_like(state.agents.alive)
    return state._replace(events=Events(acted=state.agents.alive, died=nothing, retired=nothing))


def legal_actions(state: State, rules: Rules, tables: Tables) -> list[Tensor]:
    """Masks of the agents [A, N] that may take each action now. The dead may wait; visits that an agent cannot pay are
    legal.
    """
    agents, settings = state.agents, state.settings
    kind = kind_of(standing_on(state, rules), rules)
    usable = kind < len(rules.kinds)
    if rules.clock:
        usable = usable & is_open(kind, state, tables)
    alive = agents.alive
    moves = [agents.y > 0, agents.y < settings.height - 1, agents.x > 0, agents.x < settings.width - 1]
    own = [alive if name in rules.enabled else torch.zeros_like(alive) for name in rules.actions]
    return [*(alive & legal for legal in (*moves, usable)), torch.ones_like(alive), *own]


def choose_actions(state: State, action: Tensor, symbol: Tensor | None, rules: Rules, tables: Tables) -> State:
    """Set the agents' actions; an illegal one becomes waiting and is counted. Only the living post symbols."""
    action = action.to(torch.int32)
    legal = torch.zeros_like(state.agents.alive)
    for index, allowed in enumerate(legal_actions(state, rules, tables)):
        legal = torch.where(action == index, allowed, legal)
    alive = state.agents.alive
    agents = state.agents._replace(action=torch.where(legal, action, WAIT))
    if symbol is not None:
        agents = agents._replace(symbol=torch.where(alive, symbol.to(torch.int32), agents.symbol))
    illegal = state.tally.illegal + (alive & ~legal)
    return state._replace(agents=agents, tally=state.tally._replace(illegal=illegal))


def move(state: State) -> State:
    """Move agents by one cell; an agent that leaves a cell ends its running visit."""
    agents = state.agents
    dx, dy = step_of(agents.action)
    progress = torch.where(agents.action < INTERACT, 0, agents.progress)
    return state._replace(agents=agents._replace(x=agents.x + dx, y=agents.y + dy, progress=progress))


def make_effort(state: State, tables: Tables) -> State:
    """Apply the effects of the actions themselves on the meters, wherever they are taken."""
    return state._replace(meters=(state.meters + tables.actions[:, state.agents.action]).clamp(0.0, 1.0))


def visit(state: State, chance: Chance, rules: Rules, tables: Tables) -> State:
    """Let agents use the place they stand on, if it admits them, they can pay and a seat is left."""
    agents, none = state.agents, len(rules.kinds)
    slot = standing_on(state, rules)
    kind = kind_of(slot, rules)
    asks = agents.action == INTERACT
    kind = torch.where(asks, kind, none)
    admitted = asks & admits(slot, kind, state, rules, tables) if rules.selective else asks
    pays = admitted
    if "money" in rules.meters:
        pays = admitted & (state.meters[rules.meter_names.index("money")] >= tables.price[kind])
    seated = pays
    if rules.contested:
        keys = chance.uniform(STREAM_CONTEST, rules.population, STREAM_WIDTH)
        seated = win_seats(pays, slot, keys, tables.capacity[kind])
    kind = torch.where(seated, kind, none)
    progress = torch.where(slot == agents.slot, agents.progress, 0) + 1
    completes = seated & (progress >= tables.duration[kind])
    change = tables.tick[:, kind]
    if rules.multi_tick:
        change = change + tables.completion[:, torch.where(completes, kind, none)]
    progress = torch.where(completes, 0, progress)
    tally = state.tally
    return state._replace(
        meters=(state.meters + change).clamp(0.0, 1.0),
        agents=agents._replace(
            slot=torch.where(seated, slot, agents.slot),
            progress=torch.where(seated, progress, agents.progress),
            refused=asks & ~seated,
        ),
        tally=tally._replace(
            visits=tally.visits + completes,
            contested=tally.contested + (pays & ~seated),
            unpaid=tally.unpaid + (admitted & ~pays),
        ),
    )


def win_seats(asks: Tensor, slot: Tensor, keys: Tensor, seats: Tensor) -> Tensor:
    """Mask of agents that get a seat among those that request the same place: the lowest keys; all [A, N].

    One comparison of all pairs of agents, so it is fair if the keys are and needs neither sorting nor a loop.
    """
    index = torch.arange(slot.shape[0], device=slot.device).reshape(-1, 1, 1)
    # lower keys come first, of equal keys the lower index
    other_first = (keys.unsqueeze(1) < keys) | ((keys.unsqueeze(1) == keys) & (index < index.squeeze(-1)))
    ahead = other_first & asks.unsqueeze(1) & (slot.unsqueeze(1) == slot)
    return asks & (ahead.sum(0) < seats)


def deplete(state: State, tables: Tables) -> State:
    """Deplete the meters; the only law that the level's difficulty scales."""
    return state._replace(meters=(state.meters - tables.depletion * state.settings.depletion).clamp(0.0, 1.0))


def modulate_and_cascade(state: State, rules: Rules) -> State:
    """Apply modulations (low fitness drains health) and cascades (low meters drain others), each law on the meters that
    the previous ones left.
    """
    meters = dict(zip(rules.meter_names, state.meters.unbind(0), strict=True))
    for law in rules.modulations:
        drain = law.rate * (law.least + law.range * (1.0 - meters[law.source]))
        meters[law.target] = (meters[law.target] - drain).clamp(0.0, 1.0)
    for cascade in rules.cascades:
        drain = (cascade.threshold - meters[cascade.source]).clamp_min(0.0) * (cascade.strength / cascade.threshold)
        meters[cascade.target] = (meters[cascade.target] - drain).clamp(0.0, 1.0)
    return state._replace(meters=torch.stack(list(meters.values())))


def end_lives(state: State, before: State, rules: Rules) -> State:
    """Count the step and end lives. An agent whose fatal meter is empty dies, one that is alive when time is up
    retires, and dead agents keep their state.
    """
    step = state.step + 1
    acted = state.events.acted
    lethal = torch.zeros_like(acted)
    for name, meter in rules.meters.items():
        if meter.fatal:
            lethal = lethal | (state.meters[rules.meter_names.index(name)] <= 0.0)
    if rules.num_residents:
        lethal = lethal & (torch.arange(rules.population, device=acted.device) < rules.num_agents).unsqueeze(1)
    alive = acted & ~lethal
    agents = state.agents._replace(
        alive=alive,
        action=torch.where(acted, state.agents.action, WAIT),
        progress=torch.where(acted, state.agents.progress, 0),
    )
    return state._replace(
        meters=torch.where(acted, state.meters, before.meters),
        agents=agents,
        step=step,
        events=Events(acted=acted, died=acted & lethal, retired=alive & (step >= rules.max_steps)),
        tally=state.tally._replace(lifetime=state.tally.lifetime + acted),
    )


def move_places(state: State, chance: Chance, rules: Rules, tables: Tables) -> State:
    """Move all places to new cells every ``moves_every`` steps, so that agents have to search for them again."""
    if rules.moves_every is None:
        return state
    fresh, _, _ = place(rules, tables, state.settings, chance)
    moves = torch.remainder(state.step, rules.moves_every) == 0
    return state._replace(layout=choose(moves, fresh, state.layout))


def trade_places(state: State, chance: Chance, rules: Rules, tables: Tables) -> State:
    """Rotate the cells of each kind's places by a random number, once in ``trades_every`` steps on average; as they
    look the same, no agent observes it, and one that is refused where it was served has to try the others again.
    """
    if rules.trades_every is None:
        return state
    slots = torch.arange(rules.num_slots, dtype=torch.int32, device=state.step.device)
    kind = kind_of(slots, rules)
    number, count = (slots - kind * rules.places_per_kind).unsqueeze(1), tables.count[kind].unsqueeze(1)
    luck = chance.uniform(STREAM_TRADES, 2, STREAM_WIDTH)
    moves = (luck[0] * rules.trades_every < 1) & (number < count)
    shift = 1 + (luck[1] * (count - 1)).int()  # at least one cell on; a single place stays
    following = (number + shift) % count + (kind * rules.places_per_kind).unsqueeze(1)
    traded = map_record(lambda cell: cell.gather(0, following.long()), state.layout)
    return state._replace(layout=choose(moves, traded, state.layout))


def show_cues(state: State, chance: Chance, rules: Rules, tables: Tables) -> State:
    """Compute the visible cues: the ``max_cues`` of highest priority (then alphabetical) that hold, with noise."""
    if not rules.cues:
        return state
    noisy = [name for name, cue in rules.cues.items() if cue.reliability < 1 or cue.false_positive > 0]
    noise = chance.uniform(STREAM_CUES, len(noisy) * rules.population, STREAM_WIDTH)
    noise = noise.reshape(len(noisy), *state.agents.x.shape)
    kind = kind_of(standing_on(state, rules), rules)
    looks = pretend(state, rules, tables) if rules.num_residents else state
    names = list(rules.cues)
    bits = torch.zeros_like(state.agents.cues)
    room = torch.full_like(bits, rules.max_cues)
    for name in sorted(names, key=lambda name: (-rules.cues[name].priority, name)):
        cue, index = rules.cues[name], names.index(name)
        holds = _holds(looks, name, kind, rules)
        if name in noisy:
            holds = noise[noisy.index(name)] < torch.where(holds, cue.reliability, cue.false_positive)
        shown = holds & (room > 0) & state.agents.alive
        bits = bits + shown.int() * (1 << index)
        room = room - shown.int()
    return state._replace(agents=state.agents._replace(cues=bits))


def _holds(state: State, name: str, kind: Tensor, rules: Rules) -> Tensor:
    cue = rules.cues[name]
    if cue.at is not None:
        return kind == rules.kinds.index(cue.at)
    results = []
    for meter, comparison, value in cue.conditions():
        level = state.meters[rules.meter_names.index(meter)]
        results.append(level < value if comparison == "<" else level > value)
    result = results[0]
    for other in results[1:]:
        result = result | other if cue.any else result & other
    return result
