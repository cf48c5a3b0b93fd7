"""Rollouts of scripted and random policies, as sequences for an agent's losses."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.envs import EnvBase
from torchrl.modules import RandomPolicy

from torchrl_agent.core import keys
from torchrl_agent.core.abilities import abilities
from torchrl_agent.core.progress import Progress
from torchrl_agent.core.text import did_you_mean
from torchrl_agent.models.agent import Agent
from torchrl_agent.training.collector import agent_rows, play, under
from torchrl_agent.transforms import RewardScaler

RANDOM = "random"
HELD_BACK = 5
"""One in this many worlds of each policy is held out: half of them for validation, the others for test."""
STRETCH = 5
"""Mean length, in steps, of a disturbed policy's stretches of other actions."""
MOST_DISTURBED = 0.8
"""Largest fraction of steps in such stretches: with a single step between any two it is 5/6."""
STATES = (keys.HIDDEN, keys.CELL, keys.OTHERS_HIDDEN)


@dataclass
class Sequences:
    """Recorded sequences of scripted policies, for training, validation and test.

    Attributes:
        train: [rows, T] frames: the agent's inputs, ``action``, scaled ``reward``, ``done``, ``terminated``,
            ``value_target`` (discounted rewards to the episode's or the recording's end), ``shifted_valid`` (alive),
            and the labels of other agents if the agent observes any.
        validation: likewise, of other worlds, to choose the best weights.
        test: likewise, of further worlds, to evaluate those weights.
        players: names of the policies.
        frames: number of steps, summed over worlds.
        scaler: scaler of the rewards.
    """

    train: TensorDictBase
    validation: TensorDictBase
    test: TensorDictBase
    players: list[str]
    frames: int
    scaler: RewardScaler


def choose_players(
    env: Any, names: Sequence[str] | None, imitate: bool, disturbed: float = 0.0
) -> dict[str, TensorDictModuleBase]:
    """Return the named policies of a world; by default its first (the expert) and, unless imitated, random actions.

    Args:
        disturbed: fraction of steps in which they act randomly instead, in stretches.

    Raises:
        ValueError: there is no such policy, or none to imitate.
    """
    there = abilities(env).players() or {RANDOM: RandomPolicy(env.full_action_spec)}
    experts = [name for name in there if name != RANDOM]
    if names is None:
        if imitate and not experts:
            raise ValueError("this world has no hand-written player to imitate: choose a world that has players().")
        names = experts[:1] if imitate else [*experts[:1], RANDOM]
    missing = [name for name in names if name not in there]
    if missing:
        raise ValueError(
            f"this world has no player {missing[0]!r}{did_you_mean(missing[0], there)}: use some of {', '.join(there)}."
        )
    chosen = {name: there[name] for name in names}
    if not disturbed:
        return chosen
    strange = RandomPolicy(env.full_action_spec)
    return {name: Disturbed(player, strange, env, disturbed) for name, player in chosen.items()}


class Disturbed(TensorDictModuleBase):
    """Policy with noise injection (Laskey et al. 2017): for stretches of steps, drawn per world, another policy acts in
    its place. Its actions and their outcomes are so recorded in many more states than it reaches by itself.

    Args:
        other: the policy that acts in a stretch, such as random actions.
        share: fraction of the steps that are in a stretch, 0 to :data:`MOST_DISTURBED`.
    """

    def __init__(self, player: TensorDictModuleBase, other: TensorDictModuleBase, env: EnvBase, share: float) -> None:
        super().__init__()
        self.player, self.other, self.key = player, other, env.action_key
        self.in_keys, self.out_keys = player.in_keys, player.out_keys
        self.begins = share / (STRETCH * (1 - share))
        self.astray = torch.zeros(env.batch_size[0], dtype=torch.bool, device=env.device)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the action of one of the two policies."""
        intended, strange = (player(tensordict).get(self.key) for player in (self.player, self.other))
        chance = torch.rand(self.astray.shape, device=self.astray.device)
        self.astray = torch.where(self.astray, chance >= 1 / STRETCH, chance < self.begins)
        astray = self.astray.reshape(-1, *[1] * (intended.ndim - 1))
        return tensordict.set(self.key, torch.where(astray, strange, intended))


def collect(
    env: EnvBase,
    agent: Agent,
    players: Mapping[str, TensorDictModuleBase],
    frames: int,
    length: int,
    goals: bool,
    learned: Agent | None = None,
) -> TensorDict:
    """Collect frames of the policies, each in its own worlds (world i has policy i modulo their number).

    Args:
        env: the same world object that the policies were made for.
        agent: agent whose inputs are recorded.
        frames: least number of steps, summed over worlds.
        length: T; whole sequences are recorded.
        goals: also run the agent, to record the goals that its manager would choose.
        learned: agent that acts, with its own memory, instead of the policies; the recorded agent's is left out then.

    Returns:
        frames [steps, rows] as returned by ``agent_rows``; every agent of every world is a row.
    """
    world, group = (learned or agent).attach(env), agent.group
    choose = _mixture(list(players.values()), env) if learned is None else learned.policy
    steps = length * max(1, math.ceil(frames / (length * env.batch_size[0])))
    alive = [] if group is None else [keys.ALIVE]
    decided = agent.manager.replayed_keys if goals and agent.manager is not None else ()  # outputs are computed anew
    left_out = {keys.STATE, *agent.replayed_keys, *(() if learned is None else keys.MEMORY)} - set(decided)
    mine = [key for key in agent.recorded_keys if key not in left_out]
    recorded = [
        *(under(group, key) for key in (*mine, keys.ACTION, *alive)),
        *(under(keys.NEXT, under(group, key)) for key in (keys.REWARD, *alive)),
        (keys.NEXT, keys.DONE),
        (keys.NEXT, keys.TERMINATED),
    ]

    def act(root: TensorDictBase) -> TensorDictBase:
        return choose(agent.policy(root) if goals else root)

    history, progress = [], Progress(steps, "step", "playing", leave=False)
    with torch.no_grad():
        for played in progress.over(play(world, act, world.reset(), steps)):
            history.append(played.select(*recorded, strict=group is None).clone())
    return agent_rows(torch.stack(history), group)


def make_sequences(
    rollout: TensorDictBase, agent: Agent, worlds: int, players: Sequence[str], length: int, scaler: RewardScaler
) -> Sequences:
    """Cut the recorded frames into sequences; first update the normalizer (unless frozen) and the reward scaler.

    Args:
        rollout: from :func:`collect`, [steps, rows].
        agent: agent whose normalizer is updated.
        length: T.

    Raises:
        ValueError: too few worlds to hold some out.
    """
    rows, later, alive = rollout.shape[1], rollout.get(keys.NEXT), rollout.get(keys.ALIVE, None)
    if worlds < 3 * len(players):
        raise ValueError(
            f"world.num_envs is {worlds} but {len(players)} players need {3 * len(players)} worlds, one each to learn "
            "from, one to choose the weights by and one to judge them by: use more."
        )
    scaler.update(later.get(keys.REWARD), later.get(keys.DONE), alive)
    data = rollout.exclude(keys.NEXT, keys.ALIVE)
    for key in (keys.DONE, keys.TERMINATED):
        data.set(key, later.get(key))
    data.set(keys.REWARD, scaler.scale(later.get(keys.REWARD)))
    data.set(keys.VALUE_TARGET, discounted_returns(data.get(keys.REWARD), data.get(keys.DONE), float(scaler.gamma)))
    data.set(keys.VALID, torch.ones(rollout.shape, dtype=torch.bool, device=rollout.device) if alive is None else alive)
    data = data.transpose(0, 1).reshape(-1, length)  # a row's sequences are adjacent
    if keys.IS_INIT in data.keys():  # memory is empty at the start of each sequence
        data.get(keys.IS_INIT)[:, 0] = True
        for state in STATES:
            if state in data.keys():
                data.get(state).zero_()
    groups = worlds // len(players)  # worlds of every policy; the last ones are held out
    held = max(2, groups // HELD_BACK)
    world = torch.arange(data.shape[0], device=data.device) // (data.shape[0] // rows) // (rows // worlds)
    part = torch.div(world, len(players), rounding_mode="floor")
    begins = (0, groups - held, groups - held // 2, groups)
    train, validation, test = (data[(part >= first) & (part < end)] for first, end in itertools.pairwise(begins))
    agent.normalizer.update(agent.normalizer.join(train), train.get(keys.VALID))
    return Sequences(train, validation, test, list(players), rollout.shape[0] * worlds, scaler)


def join_recordings(parts: Sequence[tuple[TensorDict, Sequence[str], int]]) -> tuple[TensorDict, list[str], int]:
    """Join rollouts, each with its players and its number of worlds, so that world i has player i modulo their number.
    Steps and worlds of a player that others lack are left out.
    """
    steps = min(len(rollout) for rollout, _, _ in parts)
    groups = min(worlds // len(players) for _, players, worlds in parts)
    split = []
    for rollout, players, worlds in parts:
        shape = (worlds // len(players), len(players), rollout.shape[1] // worlds)
        used = rollout[:steps, : math.prod(shape)]
        split.append(used.unflatten(1, shape)[:, :groups])
    names = [name for _, players, _ in parts for name in players]
    return torch.cat(split, 2).flatten(1, 3), names, groups * len(names)


def discounted_returns(reward: Tensor, done: Tensor, gamma: float) -> Tensor:
    """Return the discounted return after each step, [T, rows, 1], up to the episode's or the recording's end."""
    total, found = torch.zeros_like(reward[0]), []
    for step in reversed(range(reward.shape[0])):
        total = reward[step] + gamma * torch.where(done[step], 0.0, total)
        found.append(total)
    return torch.stack(found[::-1])


def _mixture(players: list[TensorDictModuleBase], env: EnvBase) -> Callable[[TensorDictBase], TensorDictBase]:
    """Return one policy that lets each given policy act in its own worlds."""
    key = env.action_key
    turn = torch.arange(env.batch_size[0], device=env.device) % len(players)

    def choose(root: TensorDictBase) -> TensorDictBase:
        action = players[0](root).get(key)
        for index, player in enumerate(players[1:], 1):
            other = player(root).get(key)
            action = torch.where((turn == index).reshape(-1, *[1] * (action.ndim - 1)), other, action)
        return root.set(key, action)

    return choose
