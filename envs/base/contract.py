"""Contract between a game's functions and :class:`~envs.base.world.World`, with one error sentence for each violation:
it names the game's class and function, the value found and the fix.
"""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.data import Composite, TensorSpec, Unbounded
from torchrl.envs import EnvBase

from envs.toolkit.records import map_record, named_tensors

GROUP = "agents"
"""Key under which a world with several agents has their tensors."""
FUNCTIONS = ("settings", "spawn", "advance", "observe", "outcome", "statistics")
"""Functions by which a subclass of World defines its game."""
_STANDARD = sysconfig.get_path("stdlib")
_LONGEST_REASON = 300
"""Number of characters of the original message that an error sentence repeats."""


def ask(world: EnvBase, function: str, *arguments: Any) -> Any:
    """Return the result of a function of the game.

    Raises:
        ValueError: it failed; the sentence gives the place and the reason.
    """
    try:
        return getattr(world, function)(*arguments)
    except Exception as error:
        explain(world, error, function)


def explain(world: EnvBase, error: Exception, function: str | None = None) -> NoReturn:
    """Raise an error from inside a step or a reset, or inside a ``function`` of the game, again as one sentence."""
    name = type(world).__name__
    frames = traceback.extract_tb(error.__traceback__)
    function = function or next((frame.name for frame in frames if frame.name in FUNCTIONS), None)
    reason = f"{type(error).__name__}: {_first_words(error)}"
    if isinstance(error, NotImplementedError) and not str(error):
        raise ValueError(f"{name} has no {function}: write this function of the game.") from error
    if not type(error).__module__.startswith("torch._"):
        if function is None:
            check_game(world)
            raise error
        own = [frame for frame in frames if not _is_library(frame.filename)]
        place = f"{Path(own[-1].filename).name}, line {own[-1].lineno}"
        raise ValueError(f"{name}.{function} failed ({reason}; {place}): fix it there.") from error
    check_game(world)  # for a game that does not work at all, its own error is clearer than that of its compiled graph
    lines = re.findall(r'File "(.+)", line (\d+), in (\w+)', str(error))
    places = [f"{Path(file).name}, line {line}, in {code}" for file, line, code in lines if not _is_library(file)]
    place = f" ({places[-1]})" if places else ""
    raise ValueError(
        f"{name} cannot be compiled{place}: {reason}; decide with torch.where instead of if, make no shape depend on "
        "numbers, or leave compile out."
    ) from error


def check_specs(world: EnvBase, observations: Composite, actions: TensorSpec) -> None:
    """Check the specs of a game.

    Raises:
        ValueError: the shape of a spec does not begin with worlds, or worlds and agents; or it is not a spec.
    """
    name, n, agents = type(world).__name__, world.num_envs, world.num_agents
    if not isinstance(observations, Composite):
        raise ValueError(
            f"{name} gives {_kind(observations)} as specs of its observations: give a Composite of them by key."
        )
    leading = (n,) if agents is None else (n, agents)
    wanted = "num_envs" if agents is None else "num_envs and num_agents"
    named: list[tuple[NestedKey, TensorSpec]] = [("action", actions), *observations.items(True, True)]
    for key, spec in named:
        inner = key == "action" or (isinstance(key, tuple) and key[0] == GROUP)
        begin = leading if inner else (n,)
        if tuple(spec.shape[: len(begin)]) != begin:
            raise ValueError(
                f"the spec of {_words(key)} in {name} has shape {tuple(spec.shape)}: let it begin with {begin}, "
                f"{wanted if inner else 'num_envs'}."
            )
    if agents is not None and GROUP not in observations.keys():
        raise ValueError(f"{name} has {agents} agents but no specs under {GROUP!r}: put what they see there.")
    if tuple(observations.shape) != (n,):
        raise ValueError(f"the specs of {name} have shape {tuple(observations.shape)}: give Composite shape=({n},).")


def check_statistics(world: EnvBase, statistics: Any, own: Collection[str]) -> None:
    """Check a game's statistics; ``own`` are the names of the world's own statistics, which a game may not return."""
    name = f"{type(world).__name__}.statistics"
    if not isinstance(statistics, dict):
        raise ValueError(f"{name} gives {_kind(statistics)}: give a dict of tensors by name.")
    kept = [word for word in own if word in statistics]
    if kept:
        raise ValueError(f"{name} gives {', '.join(kept)}, which the world counts itself: leave them out.")
    for key, value in statistics.items():
        _check_tensor(f"{name}: {key}", value, (world.num_envs,), torch.float32, world.device)


def check_game(world: EnvBase) -> None:
    """Run one step of a game on a copy of the world's state and compare the results of its functions with its specs;
    the world is left as it was.

    Raises:
        ValueError: the first violation.
    """
    name = type(world).__name__
    if world.__dict__.get("_snapshot") is None:
        raise ValueError(f"{name} has no worlds: call self._build(...) at the end of its __init__.")
    live = world._snapshot
    snapshot = map_record(torch.clone, live)
    _check_record(world, "settings", ask(world, "settings"), live.settings)
    for midway in (False, True):
        state = ask(world, "spawn", snapshot.settings, snapshot.chance, midway)
        _check_record(world, "spawn", state, live.state)
    action = world.full_action_spec[world.action_key].zero()
    after = ask(world, "advance", state, action, snapshot.chance.tick())
    _check_record(world, "advance", after, live.state)
    for moment in (state, after):
        _check_observations(world, moment)
        check_statistics(world, ask(world, "statistics", moment), live.episode.statistics())
        _check_outcome(world, ask(world, "outcome", moment))


def _check_observations(world: EnvBase, state: Any) -> None:
    name = f"{type(world).__name__}.observe"
    seen = ask(world, "observe", state)
    if not isinstance(seen, dict):
        raise ValueError(f"{name} gives {_kind(seen)}: give a dict of tensors by key.")
    spec = world.observation_spec
    wanted = {key: leaf for key, leaf in spec.items(True, True) if key[0] != "episode"}
    found = dict(_leaves(seen))
    for key in found.keys() ^ wanted.keys():
        where = "gives" if key in found else "lacks"
        other = "no spec" if key in found else "a spec"
        raise ValueError(f"{name} {where} {_words(key)}, which has {other}: make them agree.")
    live = {value.untyped_storage().data_ptr() for _, value in named_tensors(state)}
    for key, leaf in wanted.items():
        value, title = found[key], f"{name}: {_words(key)}"
        _check_tensor(title, value, tuple(leaf.shape), leaf.dtype, world.device)
        if value.untyped_storage().data_ptr() in live:
            raise ValueError(f"{title} shares its memory with the state, which the next step overwrites: clone it.")
        if not isinstance(leaf, Unbounded) and not leaf.is_in(value):
            reach = f"{value.min().item():g} to {value.max().item():g}"
            raise ValueError(f"{title} has values from {reach}, outside of its spec: widen the spec or clamp them.")


def _check_outcome(world: EnvBase, outcome: Any) -> None:
    name = f"{type(world).__name__}.outcome"
    if not isinstance(outcome, tuple) or len(outcome) != 3:
        raise ValueError(f"{name} gives {_kind(outcome)}: give reward, terminated and truncated.")
    n = world.num_envs
    reward = (n,) if world.num_agents is None else (world.num_agents, n)
    for key, value, shape, dtype in zip(
        ("reward", "terminated", "truncated"),
        outcome,
        (reward, (n,), (n,)),
        (torch.float32, torch.bool, torch.bool),
        strict=True,
    ):
        _check_tensor(f"{name}: {key}", value, shape, dtype, world.device)


def check_record(world: EnvBase, function: str, record: Any) -> None:
    """Check that a game's record consists of nested NamedTuples of tensors whose last axis is the worlds."""
    for path, value in _entries(record, f"{type(world).__name__}.{function}"):
        if not isinstance(value, Tensor):
            raise ValueError(f"{path} is {_kind(value)}: a record is a NamedTuple of tensors or of NamedTuples.")
        if value.shape[-1:] != (world.num_envs,):
            raise ValueError(
                f"{path} has shape {tuple(value.shape)}: the last axis counts worlds, here {world.num_envs}."
            )
        if value.device != world.device:
            raise ValueError(f"{path} is on {value.device}: make it on the world's device, {world.device}.")


def _check_record(world: EnvBase, function: str, record: Any, like: Any) -> None:
    """Check a record as :func:`check_record`, and compare it with the record that the world holds."""
    check_record(world, function, record)
    title = f"{type(world).__name__}.{function}"
    found, wanted = dict(_entries(record, "")), dict(_entries(like, ""))
    for path in found.keys() ^ wanted.keys():
        raise ValueError(f"{title} {'adds' if path in found else 'loses'} {path[1:]}: give the same record each time.")
    for path, value in wanted.items():
        _check_tensor(f"{title}{path}", found[path], tuple(value.shape), value.dtype, world.device, finite=False)


def _check_tensor(
    title: str, value: Any, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, finite: bool = True
) -> None:
    if not isinstance(value, Tensor):
        raise ValueError(f"{title} is {_kind(value)}: give a tensor of shape {shape}.")
    if tuple(value.shape) != shape:
        raise ValueError(f"{title} has shape {tuple(value.shape)}: it must have {shape}.")
    if value.dtype != dtype:
        kind = str(dtype).removeprefix("torch.")
        raise ValueError(f"{title} is {str(value.dtype).removeprefix('torch.')}: make it {kind}.")
    if value.device != device:
        raise ValueError(f"{title} is on {value.device}: make it on the world's device, {device}.")
    if finite and not bool(value.isfinite().all()):
        raise ValueError(f"{title} holds NaN or infinity: look at what it is computed from.")


def _entries(record: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield (dotted path, value) of a record, whatever it holds."""
    if not isinstance(record, tuple) or not hasattr(record, "_fields"):
        yield path, record
        return
    for name in record._fields:
        yield from _entries(getattr(record, name), f"{path}.{name}")


def _leaves(seen: dict[str, Any], outer: tuple[str, ...] = ()) -> Iterator[tuple[NestedKey, Any]]:
    """Yield (key, value) of nested dicts, with keys as in specs."""
    for key, value in seen.items():
        path = (*outer, key)
        if isinstance(value, dict):
            yield from _leaves(value, path)
        else:
            yield path if outer else key, value


def _kind(value: Any) -> str:
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        return f"{type(value).__name__} of {len(value)}"
    return "nothing" if value is None else f"{type(value).__name__}"


def _words(key: NestedKey) -> str:
    return key if isinstance(key, str) else ".".join(key)


def _first_words(error: Exception) -> str:
    """Return the first line of a message, for use inside a sentence."""
    lines = str(error).strip().splitlines() or [""]
    return lines[0][:_LONGEST_REASON].rstrip(" .:") or "no message"


def _is_library(file: str) -> bool:
    """True if a file belongs to Python or to an installed package, such as PyTorch."""
    return "site-packages" in file or file.startswith(("<", _STANDARD)) or file == __file__
