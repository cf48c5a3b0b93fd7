"""Reward of a step for each agent, its drives, end of a world's episode, and its statistics.

Drives are signals of the last step, one per character trait, for intrinsic rewards of agents (docs/families.md).
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from envs.toolkit.geometry import total
from envs.town.people import learners
from envs.town.rules import Rules
from envs.town.state import TRAITS, Drives, State, Tally, kind_of

FEAR = 0.3
"""Threshold of a fatal meter below which neuroticism is felt; below it the cascades begin, and agents look tired or
sick.
"""


def reward(state: State, rules: Rules) -> Tensor:
    """Compute the reward of the last step, [A, N]; 0 for agents that were dead before it (see rules.Reward)."""
    total = functools.reduce(torch.add, _parts(state, rules).values())
    return torch.where(state.events.acted, total, 0.0)


def reward_parts(state: State, rules: Rules) -> dict[str, Tensor]:
    """Compute the reward of the last step by part, [A, N] each, in the order in which they are summed."""
    return {name: torch.where(state.events.acted, part, 0.0) for name, part in _parts(state, rules).items()}


def _parts(state: State, rules: Rules) -> dict[str, Tensor]:
    kind, meters = rules.reward, dict(zip(rules.meter_names, state.meters.unbind(0), strict=True))
    events, lived = state.events, state.tally.lifetime
    parts: dict[str, Tensor] = {"base": torch.full_like(lived, kind.base)}
    if kind.combine != "none":
        names = rules.needs if kind.meters == "needs" else kind.meters
        parts["wellbeing"] = _combine([meters[name] for name in names], kind.combine)
    for name, weight in kind.weights.items():
        parts[name] = weight * (meters[name] - kind.center)
    if kind.low:
        low = sum((meters[name] < kind.low["threshold"]).float() for name in _needs(rules))
        parts["low meters"] = kind.low["penalty"] * low
    for period, bonus in kind.milestones.items():
        parts[f"milestone {period}"] = bonus * (lived - period * torch.floor(lived / period) == 0).float()
    if kind.proximity:
        parts["proximity"] = kind.proximity * _nearness(state)
    parts |= {"death": kind.death * events.died, "retirement": kind.retirement * events.retired}
    if kind.terminal:
        parts["lifetime"] = _lifetime_reward(state, meters, rules)
    return parts


def wellbeing(state: State, rules: Rules) -> Tensor:
    """Geometric mean of the needs that the town can serve, [A, N]: a potential for shaping."""
    rows = dict(zip(rules.meter_names, state.meters.unbind(0), strict=True))
    return _combine([rows[name] for name in rules.needs], "geometric_mean")


def _combine(meters: list[Tensor], how: str) -> Tensor:
    result = meters[0]
    for meter in meters[1:]:
        result = torch.minimum(result, meter) if how == "minimum" else result * meter
    # not a power: on a CPU its last bit depends on a world's place among the others; the root of 0 is 0
    return result if how != "geometric_mean" else torch.exp(torch.log(result) / len(meters))


def _needs(rules: Rules) -> list[str]:
    return [name for name, meter in rules.meters.items() if meter.need]


def _nearness(state: State) -> Tensor:
    agents, layout = state.agents, state.layout
    distance = (layout.x.unsqueeze(1) - agents.x).abs() + (layout.y.unsqueeze(1) - agents.y).abs()
    farthest = (state.settings.width + state.settings.height - 2).clamp_min(1)
    return (1.0 - distance.amin(0) / farthest).clamp(0.0, 1.0)


def _lifetime_reward(state: State, meters: dict[str, Tensor], rules: Rules) -> Tensor:
    weight = rules.reward.terminal
    needs = _needs(rules)
    value = weight.get("lifespan", 0.0) * state.tally.lifetime / rules.max_steps
    value = value + weight.get("meters", 0.0) * sum(meters[name] for name in needs) / len(needs)
    if "money" in meters:
        value = value + weight.get("money", 0.0) * meters["money"].sqrt()
    share = state.events.retired + weight.get("early_death", 0.0) * state.events.died
    return value * share


def money(state: State, rules: Rules) -> Tensor:
    """Mean money of a world's agents, float32 [N]; 0 in towns without money."""
    row = torch.zeros_like(state.tally.lifetime)
    if "money" in rules.meters:
        row = state.meters[rules.meter_names.index("money")]
    return row.mean(0)


def ends(state: State, rules: Rules) -> tuple[Tensor, Tensor]:
    """Return (terminated, truncated), bool [N]: all agents are dead; time is up."""
    terminated = (~state.agents.alive).to(torch.int32).amin(0) > 0
    return terminated, (state.step >= rules.max_steps) & ~terminated


def statistics(state: State, rules: Rules) -> dict[str, Tensor]:
    """Return the statistics of the running episode, float32 [N], means over a world's agents: ``win`` is the fraction
    that retired, ``lifetime`` the number of steps lived, ``survival`` the same as a fraction of the longest life,
    ``visits`` the completed ones, ``contested`` and ``unpaid`` the requests that failed.
    """
    mean = Tally(*(value.mean(0) for value in state.tally))
    return {
        "win": state.events.retired.float().mean(0),
        "lifetime": mean.lifetime,
        "survival": mean.lifetime / rules.max_steps,
        "visits": mean.visits,
        "illegal_actions": mean.illegal,
        "contested": mean.contested,
        "unpaid": mean.unpaid,
    }


def calm(state: State, rules: Rules) -> State:
    """Return fresh towns with zero drives and no known kinds of place."""
    lived = learners(state, rules).tally.lifetime
    unknown = torch.zeros(len(rules.kinds), *lived.shape, dtype=torch.bool, device=lived.device)
    return state._replace(drives=Drives(torch.zeros(len(TRAITS), *lived.shape, device=lived.device), unknown))


def feel(state: State, before: State, rules: Rules) -> State:
    """Compute the drives of the step from ``before`` to ``state`` for each learning agent, all in [-1, 1], 0 for the
    dead:

    - neuroticism: minus the depth of the lowest fatal meter below :data:`FEAR`, as a fraction of it;
    - greed: the change of money;
    - agreeableness: the change of the meter ``social``, mean over the family;
    - curiosity: 1 for using a kind of place for the first time in this life.

    Meters that the town lacks have no change.
    """
    own, past = learners(state, rules), learners(before, rules)
    acted = own.events.acted
    change = dict(zip(rules.meter_names, own.meters - past.meters, strict=True))
    nothing = torch.zeros_like(own.tally.lifetime)
    new = _served_by(own, rules) & ~state.drives.known
    felt = {
        "neuroticism": -_depth(own.meters, rules),
        "greed": change.get("money", nothing),
        "agreeableness": _of_family(change.get("social", nothing), rules),
        "curiosity": new.any(0).float(),
    }
    rows = torch.stack([torch.where(acted, felt[name], 0.0) for name in TRAITS])
    return state._replace(drives=Drives(rows, state.drives.known | new))


def _depth(meters: Tensor, rules: Rules) -> Tensor:
    fatal = [meters[row] for row, name in enumerate(rules.meter_names) if rules.meters[name].fatal]
    return (FEAR - torch.stack(fatal).amin(0)).clamp_min(0.0) / FEAR


def _of_family(change: Tensor, rules: Rules) -> Tensor:
    """Mean [A, N] over each agent's family, itself included."""
    families = change.unflatten(0, (-1, rules.family_size)).transpose(0, 1)
    return (total(families) / rules.family_size).repeat_interleave(rules.family_size, 0)


def _served_by(own: State, rules: Rules) -> Tensor:
    """Kind of the place that served each agent last in this life, one-hot, bool [K, A, N]."""
    kinds = torch.arange(len(rules.kinds), dtype=torch.int32, device=own.step.device).reshape(-1, 1, 1)
    kind = kind_of(own.agents.slot, rules)
    return kinds == kind
