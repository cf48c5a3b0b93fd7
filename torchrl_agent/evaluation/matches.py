"""Matches between agents: the fraction of the points of each in one batch of worlds, and ratings from it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torchrl.envs import EnvBase

from torchrl_agent.core import keys
from torchrl_agent.core.abilities import abilities, world_seed
from torchrl_agent.core.checkpoint import find_checkpoint, load_checkpoint
from torchrl_agent.core.devices import forked_random, resolve_device
from torchrl_agent.core.run_names import find_run
from torchrl_agent.core.tables import wilson
from torchrl_agent.core.text import did_you_mean
from torchrl_agent.experiment import Experiment
from torchrl_agent.experiment.build import instantiate_world
from torchrl_agent.experiment.judging import WAYS
from torchrl_agent.loop import make_learner
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.planned_policy import acting_policy
from torchrl_agent.modules.specs import agent_group
from torchrl_agent.population.agent import Member, PolicyGroup, SeatedPolicy
from torchrl_agent.population.league_learner import LeagueLearner
from torchrl_agent.population.ratings import Standings, bradley_terry
from torchrl_agent.population.seats import SEATS, check_seats, pairings
from torchrl_agent.population.stack import Stack
from torchrl_agent.runs.load import load_agent
from torchrl_agent.runs.members import member_folders
from torchrl_agent.training.evaluator import evaluate_policy


class Competitor(NamedTuple):
    """Participant in a tournament."""

    name: str
    agent: Agent | None = None
    """None for a scripted player of the world that has this name."""


class Games(NamedTuple):
    """Games of a tournament, each of two competitors by their numbers."""

    first: Tensor
    """Holder of the first seat, int64 [games]."""
    second: Tensor
    """Holder of the second seat, int64 [games]."""
    points: Tensor
    """Points of the first seat: 1 for a win, 1/2 for a draw, 0 for a loss."""

    def standings(self, competitors: int) -> Standings:
        """Points between the competitors."""
        standings = Standings(competitors)
        standings.enter(*self)
        return standings


def match(
    one: str, other: str, games: int = 512, device: str = "auto", seed: int | None = None, trust: bool = False
) -> dict[str, Any]:
    """Play a match of two players on the evaluation world of the first run, each from the first seat in half of the
    games.

    Args:
        one: a run's folder, an agent that comes with the package (``shipped:NAME``), or the name of one of the world's
            scripted players.
        other: likewise; at least one of the two is a run.
        games: worlds that play one episode each; an even number.
        seed: seed of the worlds; by default the evaluation's.
        trust: see :func:`~torchrl_agent.runs.load.load_agent`.

    Returns:
        For each way of acting the first player's fraction of the points (a draw counts 1/2), its 95 % interval, and the
        numbers of games that it won, drew and lost.

    Raises:
        ValueError: neither is a run, a player is unknown, the world has no two seats, or agents do not fit it.
    """
    runs = [name for name in (one, other) if find_run(name).exists()]
    if not runs:
        raise ValueError(f"neither {one} nor {other} is a run: give the folder of one, such as runs/NAME.")
    experiment, _ = load_agent(runs[0], device, trust=trust)
    competitors = [
        Competitor(name, load_agent(name, device, trust=trust)[1] if name in runs else None) for name in (one, other)
    ]
    played = play_tournament(experiment, competitors, games, seed)
    return {"one": one, "other": other, "games": games, **{way: points(found) for way, found in played.items()}}


def points(games: Games) -> dict[str, Any]:
    """Fraction of the points of the first competitor, its interval, and the numbers of games won, drawn and lost."""
    share_of_first = torch.where(games.first == 0, games.points, 1 - games.points)
    counts = {name: int((share_of_first == worth).sum()) for name, worth in (("won", 1), ("drawn", 0.5), ("lost", 0))}
    share = share_of_first.mean().item()
    low, high = wilson(share, len(share_of_first))
    return {"share": share, "low": low, "high": high, **counts}


def rate_league(
    runs: Sequence[str],
    games: int = 64,
    snapshots: int = 8,
    device: str = "auto",
    seed: int | None = None,
    trust: bool = False,
) -> dict[str, Any]:
    """Ratings of all agents of these runs, past selves, and the world's scripted players, from games of every pair.

    Args:
        runs: folders; of a population all members take part.
        games: games of every pair, an even number.
        snapshots: past selves of a league that take part, spread evenly over its time.
        seed: seed of the worlds; by default the evaluation's.
        trust: see :func:`~torchrl_agent.runs.load.load_agent`.

    Returns:
        ``players``, and for each way of acting ``rating`` and ``error`` of each (the world's best scripted player, the
        first one that it names, has 1000), ``shares`` [players, players], fractions of the points that the row takes
        from the column, and ``misfit``, see :class:`~torchrl_agent.population.ratings.Ratings`.

    Raises:
        ValueError: see :func:`match`.
    """
    experiment, _ = load_agent(runs[0], device, trust=trust)
    competitors = [each for run in runs for each in competitors_of(find_run(run), snapshots, device, trust)]
    scripted = list(match_world(experiment, 1, seed).players())
    competitors += [Competitor(name) for name in scripted]
    result: dict[str, Any] = {"players": [each.name for each in competitors], "games": games}
    anchor = len(competitors) - len(scripted)
    for way, played in play_tournament(experiment, competitors, games, seed).items():
        standings = played.standings(len(competitors))
        rating, error, misfit = bradley_terry(standings.points, standings.games, anchor)
        tables = {"rating": rating, "error": error, "shares": standings.shares(0).fill_diagonal_(0.5)}
        result[way] = {**{name: table.tolist() for name, table in tables.items()}, "misfit": misfit}
    return result


def competitors_of(run: Path, snapshots: int = 0, device: str = "auto", trust: bool = False) -> list[Competitor]:
    """The agent of a run, or all members of a population and the given number of a league's past selves."""
    members = member_folders(run)
    if not members:
        return [Competitor(run.name, load_agent(run, device, trust=trust)[1])]
    found = [Competitor(f"{run.name}/{place.name}", load_agent(place, device, trust=trust)[1]) for place in members]
    return [*found, *past_selves(run, snapshots, device, trust)]


class Snapshot(NamedTuple):
    """A past self of a league's member."""

    member: int
    frames: int
    """Frames that the member had seen then."""
    agent: Agent


def past_selves(run: Path, count: int, device: str = "auto", trust: bool = False) -> list[Competitor]:
    """The given number of snapshots of a league's pool, spread evenly over time; none for a run without a league."""
    found = snapshots_of(run, device, trust) if count else []
    chosen = [found[i] for i in torch.linspace(0, len(found) - 1, min(count, len(found))).long().tolist()]
    return [Competitor(f"{run.name}/{each.member:02d} at {each.frames:,}", each.agent) for each in chosen]


def snapshots_of(run: Path, device: str = "auto", trust: bool = False) -> list[Snapshot]:
    """Snapshots in the pool of a league, oldest first; none for a run without a league."""
    experiment = Experiment.load(run / "config.yaml", f"device={device}", trust=trust)
    if not experiment.league.enabled:
        return []
    learner = make_learner(experiment, load_checkpoint(find_checkpoint(run), resolve_device(device)))
    assert isinstance(learner, LeagueLearner)
    found, pool = [], learner.league.pool
    for place in pool.used[pool.frames[pool.used].argsort(stable=True)].tolist():
        member = copy.deepcopy(Member(learner.algorithm.template))
        pool.snapshots.show(place, member)
        found.append(Snapshot(int(pool.owner[place]), int(pool.frames[place]), member.agent))
    return found


def check_games(games: int) -> None:
    """Raise ValueError unless each of two players can have the first seat in half of the games."""
    if games < 2 or games % 2:
        raise ValueError(f"games is {games}: give an even number, half of which begins with each in the first seat.")


def play_tournament(
    experiment: Experiment, competitors: Sequence[Competitor], games: int, seed: int | None = None
) -> dict[str, Games]:
    """Play the given number of games of every pair of competitors at once, for each way of acting.

    Raises:
        ValueError: an odd number of games, an unknown player, a world without two seats, or agents that do not fit it.
    """
    check_games(games)
    seats = pairings(len(competitors), games)
    env = match_world(experiment, len(seats), seed)
    policy = seat_competitors(competitors, seats, env)
    remembering = next((agent for _, agent in competitors if agent is not None and agent.memory), None)
    if remembering is not None:  # all remember alike
        env = remembering.attach(env)
    result = {}
    seed = experiment.evaluation.seed if seed is None else seed
    with forked_random(env.device):
        for way, greedy in WAYS.items():
            torch.manual_seed(seed)
            env.set_seed(world_seed(env, seed))
            found = evaluate_policy(policy, env, greedy, experiment.evaluation.max_steps)
            result[way] = Games(seats[:, 0], seats[:, 1], found[keys.EPISODE_WIN] + found[keys.EPISODE_DRAW] / 2)
    return result


def seat_competitors(competitors: Sequence[Competitor], seats: Tensor, env: EnvBase) -> SeatedPolicy:
    """A policy in which all competitors act in their seats, int64 [N, 2]; agents of one architecture act at once."""
    holders, scripted = seats.flatten(), []
    kinds: dict[Any, list[tuple[int, Agent]]] = {}
    for index, (name, agent) in enumerate(competitors):
        if agent is not None:
            _check_fits(name, agent, env)
            shapes = tuple((key, tuple(value.shape)) for key, value in agent.state_dict().items())
            kinds.setdefault((shapes, agent.planner.enabled), []).append((index, agent))
        elif name in (known := env.players()):
            scripted.append((known[name], (seats == index).to(env.device)))
        else:
            raise ValueError(
                f"{name} is no run and no player of this world{did_you_mean(name, known)}: use a run, or "
                f"{', '.join(known)}."
            )
    if len(kinds) > 1 and any(agent.memory for group in kinds.values() for _, agent in group):
        raise ValueError("agents that remember can only meet those that remember alike: match agents of one kind.")
    groups = []
    for group in kinds.values():
        rows = torch.stack([(holders == index).nonzero().flatten() for index, _ in group])
        agents = [agent for _, agent in group]
        groups.append(PolicyGroup(Stack(agents), acting_policy(agents[0]), rows))
    among = agent_group(env)
    assert among is not None
    return SeatedPolicy(groups, scripted, among)


def match_world(experiment: Experiment, games: int, seed: int | None = None) -> EnvBase:
    """The evaluation world with two seats: a change of ``evaluation.world`` that takes a seat away, an opponent of the
    world's own, is left out.
    """
    changes, device = experiment.evaluation.world, resolve_device(experiment.device)
    for left_out in (None, *changes):
        kept = {name: value for name, value in changes.items() if name != left_out}
        arguments = {**experiment.world, **kept, "num_envs": games}
        env = instantiate_world(arguments, device, experiment.evaluation.seed if seed is None else seed)
        if abilities(env).num_agents == SEATS:
            break
    check_seats(env, experiment.name)
    return env


def _check_fits(name: str, agent: Agent, env: EnvBase) -> None:
    shown = agent.attach(env).fake_tensordict()
    missing = [key for key in agent.policy.in_keys if key not in shown.keys(True)]
    if missing:
        raise ValueError(f"the agent of {name} reads {missing[0]}, which this world does not show: match agents alike.")
    try:
        agent.policy(shown)
    except RuntimeError:
        raise ValueError(f"the agent of {name} was trained for another world than this: match agents alike.") from None
