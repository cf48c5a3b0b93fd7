"""Drives: signals of the last step, one per character trait, for intrinsic rewards of agents (docs/families.md)."""

from __future__ import annotations

import torch
from torch import Tensor

from envs.toolkit.geometry import total
from envs.town.people import TRAITS
from envs.town.residents import learners
from envs.town.rules import Rules
from envs.town.state import Drives, State, kind_of

FEAR = 0.3
"""Threshold of a fatal meter below which neuroticism is felt; below it the cascades begin, and agents look tired or
sick.
"""


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
