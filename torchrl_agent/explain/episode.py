"""One pass over an evaluation episode: frames of every step and agent, and everything that led to chosen actions."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs import EnvBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_agent.core import keys
from torchrl_agent.core.abilities import abilities
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.planned_policy import acting_policy
from torchrl_agent.modules.specs import group_spec

LONGEST = 100_000
"""Largest number of steps of an episode."""


class Frame(NamedTuple):
    """Record of every step of an agent."""

    action: Tensor
    reward: Tensor
    log_std: Tensor
    known: Tensor
    """Own state after the step."""
    terminated: Tensor
    written: Tensor | None
    """Keys under which the step was written to the memory of each other agent, by number, [A + 1, K]; None without an
    associative memory.
    """


class Moment(NamedTuple):
    """Record of a step to explain; ``rows`` are the agents' own tensordicts, [1] each, with their modules' outputs."""

    rows: list[TensorDictBase]
    actions: Tensor
    """Actions of all learning agents of the world, [agents, heads]."""
    afters: list[TensorDictBase]
    """The following tensordicts, like ``rows``."""
    picture: Any


@dataclass
class Episode:
    """An episode of one world: ``frames[agent][step]`` until the agent's end, and ``moments[step]`` of chosen steps."""

    frames: list[list[Frame]]
    moments: dict[int, Moment] = field(default_factory=dict)


Watch = Callable[[TensorDictBase], None]


@torch.no_grad()
def play_episode(
    env: EnvBase,
    agent: Agent,
    world: int,
    steps: Container[int],
    index: int | None = None,
    watch: Watch | None = None,
    most: int = LONGEST,
    pictures: Container[int] = (),
) -> Episode:
    """Play one episode with the most likely actions.

    Args:
        env: a world with the agent's transforms (``agent.attach``).
        world: row of ``env``.
        steps: steps of which everything is kept, counted from 0.
        index: number of an agent with whose end the episode ends; None for the world's.
        watch: called in every step with what the policy wrote, before the world takes it.
        pictures: those of the kept steps in which the world is drawn, if it can be.

    Raises:
        ValueError: the episode does not end within :data:`LONGEST` steps.
    """
    count = number_of_agents(env, agent)
    episode, ended = Episode([[] for _ in range(count)]), [False] * count
    root, policy = env.reset(), acting_policy(agent)
    draw, group = abilities(env).draw, agent.group
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        for step in range(most):
            root = policy(root)
            if watch is not None:
                watch(root)
            if step in steps:
                rows = [_row(root, group, world, number) for number in range(count)]
                actions = root[env.action_key][world].reshape(count, -1).cpu()
                picture = draw(world) if draw is not None and step in pictures else None
            played, root = env.step_and_maybe_reset(root)
            if step in steps:
                afters = [_row(played.get(keys.NEXT), group, world, number) for number in range(count)]
                episode.moments[step] = Moment(rows, actions, afters, picture)
            for number in range(count):
                if not ended[number]:
                    frame = _frame(agent, played, world, number)
                    episode.frames[number].append(frame)
                    ended[number] = bool(frame.terminated)
            if bool(played[keys.NEXT, keys.DONE][world]) or (all(ended) if index is None else ended[index]):
                return episode
    if most < LONGEST:
        return episode
    raise ValueError(f"world {world} did not end within {LONGEST} steps: the world needs a time limit.")


def number_of_agents(env: EnvBase, agent: Agent) -> int:
    """Return the number of learning agents in each world."""
    return 1 if agent.group is None else group_spec(env).shape[1]


def _row(root: TensorDictBase, group: str | None, world: int, index: int) -> TensorDictBase:
    """Return a copy of the agent's own tensordict [1] in a world, with the world's ``state`` if there is one."""
    if group is None:
        return root[world : world + 1].clone()
    row = root.get(group)[world : world + 1, index].clone()
    return row.set(keys.STATE, root[keys.STATE][world : world + 1].clone()) if keys.STATE in root.keys() else row


def _frame(agent: Agent, played: TensorDictBase, world: int, index: int) -> Frame:
    row = _row(played.exclude(keys.NEXT), agent.group, world, index)
    after = _row(played.get(keys.NEXT), agent.group, world, index)
    terminated = played[keys.NEXT, keys.TERMINATED][world].reshape(())
    if agent.group is not None and keys.ALIVE in after.keys():
        terminated = terminated | ~after[keys.ALIVE].reshape(())
    nothing = torch.zeros(0)
    names = [] if agent.perception is None else agent.perception.known  # none where all observations are pictures
    known = torch.cat([after[name] for name in names], -1)[0] if names else nothing
    log_std = row[keys.BELIEF, "log_std"].mean() if agent.perception is not None else nothing
    action, reward = row[keys.ACTION].reshape(-1), after[keys.REWARD].reshape(())
    return Frame(action, reward, log_std, known, terminated, _written(agent, row))


def _written(agent: Agent, row: TensorDictBase) -> Tensor | None:
    written = row.get((keys.SOCIAL, "written"), None)
    if written is None:
        return None
    assert agent.perception is not None, "it is perception that shows others"
    nothing = written.new_zeros(agent.perception.empty_slot + 1, written.shape[-1])
    return nothing.index_add(0, row[keys.BELIEF, "number"][0], written[0]).cpu()
