"""Agents against each other: two policies in the seats of one world."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torchrl.envs import EnvBase

from torchrl_agent import keys
from torchrl_agent.experiment import Experiment, make_world, resolve_device
from torchrl_agent.judging import WAYS
from torchrl_agent.models.acting import acting_policy
from torchrl_agent.models.specs import agent_group
from torchrl_agent.runs.load import load_agent
from torchrl_agent.training.evaluation import evaluate_policy, wilson

SEATS = 2


class SeatedPolicies(TensorDictModuleBase):
    """Two policies in a world of two agents: in the first half of the worlds the first has the first seat, in the
    others the second.

    Args:
        policies: each writes the actions of the whole group, of which those of its seat are taken.
        group: key of the agents' tensordict.
    """

    def __init__(self, policies: Sequence[TensorDictModuleBase], group: str) -> None:
        super().__init__()
        self.policies, self.group = list(policies), group
        self.in_keys = list(dict.fromkeys(key for policy in policies for key in policy.in_keys))
        self.out_keys = [(group, keys.ACTION)]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the actions of both seats."""
        key = (self.group, keys.ACTION)
        one, other = (policy(tensordict.copy()).get(key) for policy in self.policies)
        world = torch.arange(len(one), device=one.device)
        seat = torch.arange(SEATS, device=one.device)
        holds_first = seat == (world >= len(one) // 2).long().unsqueeze(1)
        holds_first = holds_first.reshape(*holds_first.shape, *[1] * (one.ndim - 2))
        return tensordict.set(key, torch.where(holds_first, one, other))


def match(one: str, other: str, games: int = 512, device: str = "auto", seed: int | None = None) -> dict[str, Any]:
    """How two players fare against each other, each in half of the games from the first seat, on the evaluation world
    of the first run.

    Args:
        one: a run's folder, or the name of one of the world's own players.
        other: likewise; one of both is a run.
        games: worlds that play one episode each; an even number.
        device: where to play.
        seed: of the worlds; by default the evaluation's.

    Returns:
        for each way of acting the first one's share of the points (a draw is half of one), its 95 % interval, and how
        many games it won, drew and lost.

    Raises:
        ValueError: neither is a run, a player is unknown, the world has no two seats, or an agent remembers.
    """
    runs = [name for name in (one, other) if Path(name).exists()]
    if not runs:
        raise ValueError(f"neither {one} nor {other} is a run: give the folder of one, such as runs/NAME.")
    if games < 2 or games % 2:
        raise ValueError(f"games is {games}: give an even number, half of which begins with each in the first seat.")
    experiment, _ = load_agent(runs[0], device)
    env = _match_world(experiment, games, seed)
    group = agent_group(env)
    assert group is not None
    policies = [_player(name, env, device) for name in (one, other)]
    result: dict[str, Any] = {"one": one, "other": other, "games": games}
    seed = experiment.evaluation.seed if seed is None else seed
    with torch.random.fork_rng([env.device] if env.device.type == "cuda" else []):
        for way, greedy in WAYS.items():
            torch.manual_seed(seed)
            env.set_seed(seed)
            result[way] = points(evaluate_policy(SeatedPolicies(policies, group), env, greedy))
    return result


def points(episodes: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The first policy's points of games in whose first half it had the first seat."""
    win, draw = episodes[keys.EPISODE_WIN] > 0, episodes["draw"] > 0
    first = torch.arange(len(win)) < len(win) // 2
    won = torch.where(first, win, ~win & ~draw)
    count = len(win)
    share = (won.sum().item() + 0.5 * draw.sum().item()) / count
    low, high = wilson(share, count)
    counts = {"won": int(won.sum()), "drawn": int(draw.sum()), "lost": int((~won & ~draw).sum())}
    return {"share": share, "low": low, "high": high, **counts}


def _match_world(experiment: Experiment, games: int, seed: int | None) -> EnvBase:
    """The evaluation world, or what is left of it without the one change that takes a seat away: an opponent of the
    world's own.
    """
    changes, device = experiment.evaluation.world, resolve_device(experiment.device)
    for left_out in (None, *changes):
        kept = {name: value for name, value in changes.items() if name != left_out}
        arguments = {**experiment.world, **kept, "num_envs": games}
        env = make_world(arguments, device, experiment.evaluation.seed if seed is None else seed)
        if getattr(env, "num_agents", None) == SEATS:
            break
    names = env.observation_spec.get(keys.EPISODE, {}).keys()
    if getattr(env, "num_agents", None) != SEATS or keys.EPISODE_WIN not in names or "draw" not in names:
        raise ValueError(
            f"the world of {experiment.name} has no two seats with a winner: matches are for worlds such as the duel, "
            "without an opponent of its own."
        )
    return env


def _player(name: str, env: EnvBase, device: str) -> TensorDictModuleBase:
    if not Path(name).exists():
        known = env.players()
        if name not in known:
            raise ValueError(f"{name} is no run and no player of this world: use a run, or {', '.join(known)}.")
        return known[name]
    _, agent = load_agent(name, device)
    if agent.memory:
        raise ValueError(f"the agent of {name} remembers, and matches hand no memory on yet: take one without.")
    missing = [key for key in agent.policy.in_keys if key not in env.full_observation_spec.keys(True)]
    if missing:
        raise ValueError(f"the agent of {name} reads {missing[0]}, which this world does not show: match agents alike.")
    return acting_policy(agent)
