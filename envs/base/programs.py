"""Reset and step of a world's games as functions of named tensors alone, which can be exported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from envs.base.episode import begin_episode
from envs.base.snapshot import Snapshot
from envs.toolkit.records import filled, named_tensors

if TYPE_CHECKING:
    from envs.base.world import World

ACTION = "action"
"""Name of the action among the tensors that :func:`step` takes."""


def reset(world: World, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Replace all games by fresh ones, from the record ``given`` by dotted name; return the record and the
    observations, by dotted name.
    """
    snapshot = _snapshot(world, given)
    chance = snapshot.chance.tick()
    state = world.spawn(snapshot.settings, chance, midway=False)
    episode = begin_episode(snapshot.stage, world.num_agents, complete=True)
    return _named(world, snapshot._replace(state=state, episode=episode, chance=chance))


def step(world: World, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Step all games without resets, from the record ``given`` and its ``action``; return the record, the observations
    and ``reward``, [N] or [A, N], ``terminated`` and ``truncated``, [N].
    """
    snapshot = _snapshot(world, given)
    action = world._action_range.nearest(given[ACTION])
    state, reward, terminated, truncated, steps, chance = world._advance(action, snapshot)
    after = snapshot._replace(state=state, episode=snapshot.episode.add(reward, steps), chance=chance)
    return {
        **_named(world, after),
        "reward": reward.clone(),
        "terminated": terminated.clone(),
        "truncated": truncated.clone(),
    }


def _snapshot(world: World, given: dict[str, Tensor]) -> Snapshot:
    return filled(world._snapshot, (given[name] for name, _ in named_tensors(world._snapshot)))


def _named(world: World, snapshot: Snapshot) -> dict[str, Tensor]:
    """Return the record and its observations by dotted name, in memory of their own."""
    record = {name: value.clone() for name, value in named_tensors(snapshot)}
    return record | {name: value.clone() for name, value in flat(world.observe(snapshot.state)).items()}


def flat(nested: dict[str, Any], prefix: str = "") -> dict[str, Tensor]:
    """Return nested dicts of tensors as one, by dotted name."""
    result: dict[str, Tensor] = {}
    for name, value in nested.items():
        result |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return result
