"""World, agent and algorithm of an experiment, put together into a learner: in one process, or in each of several."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import pkgutil
from typing import TYPE_CHECKING, Any

import torch
from tensordict.utils import NestedKey
from torchrl.envs import Compose, EnvBase, RewardSum, StepCounter, Transform, TransformedEnv

from torchrl_agent.algorithms.actor_critic import ActorCritic
from torchrl_agent.algorithms.algorithm import Algorithm
from torchrl_agent.algorithms.lagged_policy import LaggedPolicy
from torchrl_agent.core import keys, ranks
from torchrl_agent.core.abilities import abilities, world_seed
from torchrl_agent.core.devices import check_room, forked_random, resolve_device, size_limit, use_device
from torchrl_agent.core.text import did_you_mean, without_tilde
from torchrl_agent.experiment.rank_checks import check_ranks, own_num_envs, spreads, take_shard, total_num_envs
from torchrl_agent.experiment.world_making import TRANSFORMS, build_batched, with_transforms
from torchrl_agent.models.agent import Agent
from torchrl_agent.models.pretrained import load_pretrained, restore_reward_scale
from torchrl_agent.modules.memory import try_scan
from torchrl_agent.modules.specs import agent_group, group_spec
from torchrl_agent.optimization.precision import without_float8
from torchrl_agent.optimization.sharding import shard
from torchrl_agent.population.algorithm import MembersAlgorithm
from torchrl_agent.population.league import make_seats
from torchrl_agent.population.league_learner import LeagueLearner
from torchrl_agent.population.learner import PopulationLearner
from torchrl_agent.training.actor_learner import Actor, RemoteCollector
from torchrl_agent.training.collector import RolloutCollector, episode_entries
from torchrl_agent.training.learner import Learner
from torchrl_agent.training.plain_worlds import plain_world
from torchrl_agent.training.spread_agents import SpreadCollector
from torchrl_agent.training.world_check import check_world
from torchrl_agent.transforms import PotentialShaping, TeamReturn, check_shaping
from torchrl_agent.transforms.character import CharacterReward

if TYPE_CHECKING:
    from torchrl_agent.experiment import Experiment

# --- worlds ----------------------------------------------------------------------------------------------------------


def make_world(
    experiment: Experiment, evaluation: bool = False, num_envs: int | None = None, seed: int | None = None
) -> EnvBase:
    """See :meth:`~torchrl_agent.experiment.Experiment.make_world`."""
    arguments = {**experiment.world, **(experiment.evaluation.world if evaluation else {})}
    if num_envs is not None:
        arguments["num_envs"] = num_envs
    device = resolve_device(experiment.device)
    env = instantiate_world(arguments, device, experiment.seed if seed is None else seed, evaluation)
    return env if evaluation else _rewarded(experiment, env)


def instantiate_world(arguments: dict[str, Any], device: torch.device, seed: int, evaluation: bool = False) -> EnvBase:
    """Build the world ``{"_target_": ..., **arguments}``; worlds that report no episode statistics get TorchRL's. Its
    ``transforms`` come last, so that returns are those of the world's own rewards.

    Args:
        evaluation: True for a world in which agents are judged.

    Raises:
        ValueError: the target cannot be found, its arguments do not fit, or it is no batched TorchRL environment.
    """
    if "_target_" not in arguments:
        raise ValueError("the world has no _target_: name a class or factory, such as world._target_=envs.ArenaEnv.")
    try:
        with size_limit(f"it, with num_envs={arguments.get('num_envs')},", "world.num_envs", device):
            own = {name: value for name, value in arguments.items() if name != TRANSFORMS}
            env = build_batched({**without_tilde(own), "device": str(device)})
    except ValueError as error:
        raise ValueError(f"world: {error}") from None
    except Exception as error:  # a constructor of the user's own raises any
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"the world {arguments['_target_']} cannot be made: {reason}") from None
    env = _with_statistics(plain_world(env))
    env = with_transforms(env, arguments.get(TRANSFORMS, ()), evaluation)
    env.set_seed(world_seed(env, seed))
    return env


def _with_statistics(env: EnvBase) -> EnvBase:
    """The world with TorchRL's return and length of episodes, unless it reports them itself."""
    there = episode_entries(env)
    if keys.EPISODE_RETURN in there:
        return env
    group = agent_group(env)
    counter = StepCounter(step_count_key=keys.COUNTED_LENGTH) if keys.EPISODE_LENGTH in there else StepCounter()
    parts = [RewardSum(), counter, *([] if group is None else [TeamReturn(group)])]
    return TransformedEnv(env, Compose(*parts), auto_unwrap=True)


def check_world_arguments(arguments: dict[str, Any]) -> None:
    """Raise ValueError naming an argument that a world of this project does not take; others raise when they are made.

    Args:
        arguments: ``_target_`` and the rest.
    """
    target = str(arguments.get("_target_", ""))
    try:
        kind = pkgutil.resolve_name(target if target.startswith("envs.") else "")
    except (ImportError, AttributeError, ValueError):
        return
    taken = inspect.signature(getattr(kind, "__init__", kind) if isinstance(kind, type) else kind).parameters
    if any(each.kind is each.VAR_KEYWORD for each in taken.values()):
        return
    for name in arguments:
        if name not in ("_target_", TRANSFORMS) and name not in taken:
            raise ValueError(
                f"world.{name} is no argument of {target}{did_you_mean(name, taken)}: it takes "
                f"{', '.join(each for each in taken if each not in ('self', 'device'))}."
            )


def _rewarded(experiment: Experiment, env: EnvBase) -> EnvBase:
    """The world with the terms that training adds to its rewards."""
    parts: list[Transform] = []
    shaping, character = experiment.shaping, experiment.character
    if shaping.scale:
        (potential,) = _shown(env, keys.POTENTIAL, but="shaping.scale is set but the world shows no potential")
        gamma = experiment.algorithm.gamma if shaping.gamma is None else shaping.gamma
        parts.append(PotentialShaping(potential, env.reward_key, gamma, shaping.scale))
    if character.scale:
        places = (keys.DRIVES, keys.CHARACTER)
        drives, traits = _shown(env, *places, but="character.scale is set but the world shows no drives")
        parts.append(CharacterReward(drives, traits, env.reward_key, character.scale))
    if not parts:
        return env
    return abilities(env).transformed_class(env, Compose(*parts))


def _shown(env: EnvBase, *names: str, but: str) -> list[NestedKey]:
    """Keys of entries that a world shows of its agents besides observations."""
    group = agent_group(env)
    places: list[NestedKey] = [name if group is None else (group, name) for name in names]
    if not set(places) <= set(env.observation_spec.keys(True)):
        raise ValueError(f"{but}: use world.{names[0]}=true.")
    return places


# --- agents and algorithms -------------------------------------------------------------------------------------------


def make_agent(experiment: Experiment, env: EnvBase) -> Agent:
    """A freshly initialized agent for a world."""
    device = resolve_device(experiment.device)
    if experiment.model.memory != "none":
        try_scan(device)
    with size_limit("the agent's networks", "size under model", device):
        return experiment.algorithm_class.make_agent(env, experiment.model, experiment.algorithm)


def make_algorithm(experiment: Experiment, env: EnvBase, rows: int, pretrained: bool = True) -> Algorithm:
    """An algorithm with a fresh agent, for the given number of rows of this world."""
    agent = make_agent(experiment, env)
    load_pretrained(agent, experiment.pretrained, experiment.frozen, pretrained)
    algorithm = _algorithm_for(experiment, agent, rows)
    restore_reward_scale(algorithm.scaler, agent, experiment.pretrained, experiment.frozen, pretrained)
    return algorithm


def _algorithm_for(experiment: Experiment, agent: Agent, rows: int) -> Algorithm:
    """The algorithm that trains an existing agent."""
    acceleration, config, device = experiment.acceleration, experiment.algorithm, resolve_device(experiment.device)
    in_parts = experiment.run.shard and ranks.size() > 1
    if in_parts:
        shard(agent, device)
        acceleration = dataclasses.replace(acceleration, step=False, update=False)  # layers move in between
    if in_parts or experiment.has_members:
        config = dataclasses.replace(config, precision=without_float8(config.precision, device))
    return experiment.algorithm_class(agent, config, rows, acceleration)


# --- learners --------------------------------------------------------------------------------------------------------


def make_learner(experiment: Experiment, pretrained: bool = True, agent: Agent | None = None) -> Learner:
    """See :meth:`~torchrl_agent.experiment.Experiment.make_learner`."""
    _prepare_process(experiment)
    check_ranks(experiment)
    if agent is not None and (experiment.has_members or spreads(experiment)):
        raise ValueError("one agent was given to learn on: populations and run.spread_agents begin with fresh ones.")
    if experiment.has_members:
        return _make_population(experiment, pretrained)
    if ranks.size() > 1 and experiment.plays_apart:
        raise ValueError(
            "where players lag, one of several processes learns and the others play, which train() and "
            "'torchrl-agent train' share out: use one of them, or algorithm.lag=0 and no impala."
        )
    env = _make_checked_world(experiment, own_num_envs(experiment))
    rows = math.prod(group_spec(env).shape)
    if spreads(experiment):
        algorithm = make_algorithm(experiment, env, rows // ranks.size(), pretrained)
        collector = SpreadCollector(algorithm.agent.attach(env), algorithm)
        rest = (experiment.total_frames, None, experiment, collector.learning)
        return Learner(env, algorithm.agent, algorithm, collector, *rest)
    if agent is None:
        algorithm = make_algorithm(experiment, env, rows, pretrained)
    else:
        algorithm = _algorithm_for(experiment, agent, rows)
    governor = experiment.governor if experiment.governor.enabled else None
    return Learner(env, algorithm.agent, algorithm, None, experiment.total_frames, governor, experiment)


def _prepare_process(experiment: Experiment) -> None:
    """Set the process's threads, random seed and device."""
    if experiment.threads is not None:
        torch.set_num_threads(experiment.threads)
    torch.manual_seed(experiment.seed)
    use_device(experiment.device)


def _make_checked_world(experiment: Experiment, num_envs: int | None) -> EnvBase:
    """The training world of this rank, checked for what the learner relies on."""
    env = make_world(experiment, num_envs=num_envs)
    check_world(env)
    if not abilities(env).branchless:  # others' worlds may have no evaluation, which would be known in the end
        experiment.make_world(evaluation=True, num_envs=1).close()
    env.set_seed(take_shard(experiment, env))  # reset after the steps of the check
    check_shaping(env, experiment.algorithm.gamma)
    return env


def _make_population(experiment: Experiment, pretrained: bool) -> PopulationLearner:
    """This rank's members of a population, or a league."""
    config, league = experiment.population, experiment.league
    members = ranks.share(config.members, "population.members")
    seats = make_seats(league, members, total_num_envs(experiment)) if league.enabled else None
    env = _make_checked_world(experiment, members * total_num_envs(experiment) if seats is None else len(seats.player))
    rows = math.prod(group_spec(env).shape) // members if seats is None else seats.members.shape[1]
    algorithms = []
    for number in range(ranks.rank() * members, (ranks.rank() + 1) * members):
        torch.manual_seed(experiment.seed + number)  # as in a run of its own
        with ranks.alone():  # no member learns together with another
            algorithms.append(make_algorithm(experiment, env, rows, pretrained))
        if len(algorithms) == 1:  # weights, gradient, two moments and the copy that the members' own become, of each
            needed = members * 5 * sum(each.nbytes for each in algorithms[0].agent.parameters())
            check_room(needed, env.device, f"a population of {members} members", "population.members")
    torch.manual_seed(experiment.seed)
    newborn = functools.partial(_make_newborn, experiment, env, rows)
    rest = (experiment.seed, experiment.total_frames, experiment, newborn)
    if seats is not None:
        return LeagueLearner(env, MembersAlgorithm(algorithms), config, league, seats, *rest)
    return PopulationLearner(env, MembersAlgorithm(algorithms), config, *rest)


def _make_newborn(experiment: Experiment, env: EnvBase, rows: int, seed: int) -> Algorithm:
    """The algorithm of a fresh agent made with this seed, for a member that joins later. Random numbers of the run are
    left unchanged.
    """
    with ranks.alone(), forked_random(env.device):
        torch.manual_seed(seed)
        return make_algorithm(experiment, env, rows)


# --- actors and their learner ----------------------------------------------------------------------------------------


def make_actors_learner(experiment: Experiment, actors: int, pretrained: bool = True) -> Learner:
    """The learner for which ``actors`` other processes collect; see :func:`make_learner`. Its checkpoint is that of one
    process, and fits any number of actors.
    """
    env, algorithm, _ = _make_parts(experiment, pretrained)
    collector = RemoteCollector(algorithm.agent.attach(env), algorithm, actors)
    return Learner(env, algorithm.agent, algorithm, collector, experiment.total_frames, experiment=experiment)


def make_actor(experiment: Experiment) -> Actor:
    """The actor of this rank's worlds for a learner elsewhere; see ``training/actor_learner.py``."""
    env, algorithm, player = _make_parts(experiment, pretrained=False)
    played, steps = algorithm.agent.attach(env), algorithm.config.rollout_steps
    rest = (steps, algorithm.acceleration, algorithm.updater.autocast)
    return Actor(RolloutCollector(played, player.agent, *rest, replays=True), player)


def _make_parts(experiment: Experiment, pretrained: bool) -> tuple[EnvBase, ActorCritic, LaggedPolicy]:
    """This rank's worlds, the algorithm for the worlds of all ranks, and the policy that collects."""
    _prepare_process(experiment)
    env = _make_checked_world(experiment, own_num_envs(experiment))
    rows = math.prod(group_spec(env).shape) * ranks.size()
    algorithm = make_algorithm(experiment, env, rows, pretrained)
    assert isinstance(algorithm, ActorCritic) and algorithm.player is not None
    return env, algorithm, algorithm.player
