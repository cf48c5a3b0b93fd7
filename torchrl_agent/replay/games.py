"""Games that a person played in a browser, played again to learn from them: a recording for pre-training."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase, pad
from torch import Tensor
from torchrl.envs import EnvBase

from torchrl_agent.core import keys
from torchrl_agent.core.abilities import inner_world, world_name
from torchrl_agent.experiment import Experiment
from torchrl_agent.pretrain.recording import RecordingError, write_recording
from torchrl_agent.replay.play import played_world
from torchrl_agent.replay.record import read_record
from torchrl_agent.training.collector import agent_rows, under

PERSON = "person"
LEAST = 3
"""Least number of sequences: to learn from, to choose the weights by and to judge them by."""
START, SEATS, END = "start", "seats", "end"
"""Entries of a saved game: the world's record at its beginning, who the person was in each step, and the last
observations of all agents.
"""
OUTCOMES = ("reward", "terminated", "truncated")


def write_games(paths: Sequence[Path | str], experiment: Experiment, folder: Path) -> Path:
    """Write a recording of what a person did in saved games, for ``pretrain --data``, and return its folder.

    Only steps of the person count: not those of the agents beside, nor those in which the agent played in the person's
    place. Sequences have the length of the experiment's rollouts, and discounted rewards end with them.

    Args:
        paths: files of "Save this game".
        experiment: its world is that of the games.
        folder: a new folder.

    Raises:
        ValueError: a file is no such game or of another world, or the games are too short.
    """
    length, sequences = experiment.algorithm.rollout_steps, []
    with closing(experiment.make_world(evaluation=True, num_envs=1)) as world:
        agent = experiment.make_agent(world)
    with closing(played_world(experiment, agent)) as env:
        for path in paths:
            for frames in _played_again(env, agent.group, read_record(path), path):
                whole = pad(frames, [0, -len(frames) % length])  # the last sequence, with frames that do not count
                sequences += [part for part in whole.split(length) if bool(part[keys.ALIVE].any())]
        name = world_name(env)
    if len(sequences) < LEAST:
        raise RecordingError(
            f"the games make {len(sequences)} sequences of {length} steps and {LEAST} are needed: play on, or lower "
            "algorithm.rollout_steps."
        )
    count = len(sequences)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0)).tolist()  # the last ones are held out
    sheet = {"world": name, "players": [PERSON], "worlds": count, "frames": count * length}
    write_recording(folder, torch.stack([sequences[index] for index in order], 1), sheet)
    return folder


def _played_again(env: EnvBase, group: str | None, game: dict[str, Any], path: Path | str) -> list[TensorDictBase]:
    """Return the frames [steps] of each agent that the person was."""
    try:
        episode = game["episodes"][0]
        if not {START, SEATS, END} <= episode.keys():
            raise RecordingError(f"{path} is no game of a person: save one in a page of 'torchrl-agent play'.")
        played, name = game["world"]["name"], world_name(env)
        if played != name:
            raise RecordingError(
                f"{path} was played in {played}, and this configuration has {name}: name the one that was played."
            )
        actions = torch.tensor([[each["action"][0] for each in here] for here in episode["thoughts"]])
        rollout = _play(env, group, _start(env, game), actions)
        if not _ends(rollout[-1][keys.NEXT], episode[END]):
            raise ValueError("it ends otherwise")
        rows = agent_rows(rollout, group)
        seats = episode[SEATS]
        return [_frames(rows, seats, seat) for seat in sorted({seat for seat in seats if seat is not None})]
    except (KeyError, IndexError, TypeError, AttributeError, RuntimeError, ValueError) as error:
        if isinstance(error, RecordingError):
            raise
        raise RecordingError(
            f"{path} cannot be played again: it is damaged, or of another world than this configuration's; name the "
            "configuration that was played, with its changes, or save the game anew."
        ) from None


def _start(env: EnvBase, game: dict[str, Any]) -> dict[str, Tensor]:
    """Return the world's record from which a game began."""
    _, record = inner_world(env).programs()
    saved = game["episodes"][0][START]
    found = {name: torch.tensor(saved[name]).to(like.dtype).reshape(like.shape) for name, like in record.items()}
    found["chance.key"][0] = int(game["seed"])
    return found


def _ends(last: TensorDictBase, end: dict[str, list[float]]) -> bool:
    """True if last observations are those that a game was saved with, rounded."""
    flat = last.flatten_keys(".")
    pairs = [(flat[name].double().flatten(), torch.tensor(numbers).double()) for name, numbers in end.items()]
    return all(torch.allclose(mine, theirs, 1e-2, 1e-2) for mine, theirs in pairs)


@torch.no_grad()
def _play(env: EnvBase, group: str | None, record: dict[str, Tensor], actions: Tensor) -> TensorDictBase:
    """Play actions [steps, agents] by the world's programs and return the rollout [steps, 1 world]."""
    functions, _ = inner_world(env).programs()
    spec, agents = env.full_action_spec[env.action_key], actions.shape[1]
    if not bool(((actions >= 0) & (actions < int(spec.space.n))).all()):
        raise ValueError("an action is none of the world's")
    now, history = functions["reset"](record), []
    for action in actions.unsqueeze(1):
        root = _root(now, record, group, agents)
        root.set(under(group, keys.ACTION), action.reshape(spec.shape).to(spec.dtype))
        kept = {name: now[name] for name in record}
        now = functions["step"]({keys.ACTION: root[under(group, keys.ACTION)], **kept})
        later = _root(now, record, group, agents)
        later.set(under(group, keys.REWARD), now["reward"].reshape(later[group].shape if group else 1).unsqueeze(-1))
        later.set(keys.TERMINATED, now["terminated"].unsqueeze(-1))
        later.set(keys.DONE, (now["terminated"] | now["truncated"]).unsqueeze(-1))
        history.append(root.set(keys.NEXT, later))
    return torch.stack(history)


def _root(now: dict[str, Tensor], record: dict[str, Tensor], group: str | None, agents: int) -> TensorDict:
    """Return the observations among what a program gave, [1 world]."""
    root = TensorDict({}, [1])
    if group is not None:
        root.set(group, TensorDict({}, [1, agents]))
    for name, value in now.items():
        if name not in record and name not in OUTCOMES:
            root.set(tuple(name.split(".")), value)
    return root


def _frames(rows: TensorDictBase, seats: list[int | None], seat: int) -> TensorDictBase:
    """Return the frames [steps] of an agent, of which those count in which the person was this one."""
    frames = rows[:, seat]
    person = torch.tensor([here == seat for here in seats])
    alive = frames.get(keys.ALIVE, torch.ones_like(person))
    return frames.set(keys.ALIVE, alive & person)
