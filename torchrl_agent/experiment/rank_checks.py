"""This rank's part of a training, and checks of what several ranks can train together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchrl.envs import EnvBase

from torchrl_agent.algorithms.actor_critic import OnPolicyActorCritic
from torchrl_agent.core import ranks
from torchrl_agent.core.abilities import abilities, own_seed
from torchrl_agent.core.checkpoint import code_digest
from torchrl_agent.training.spread_agents import check_spread

if TYPE_CHECKING:
    from torchrl_agent.experiment import Experiment


def total_num_envs(experiment: Experiment) -> int:
    """Number of worlds of a configuration in all.

    Raises:
        ValueError: the configuration does not give it.
    """
    worlds = experiment.world.get("num_envs")
    if not isinstance(worlds, int):
        what = "one of several processes" if ranks.size() > 1 else "a member of a population"
        raise ValueError(f"the world has no num_envs, so it is not known how many {what} plays: say it.")
    return worlds


def own_num_envs(experiment: Experiment) -> int | None:
    """Number of worlds of this rank; None if it is that of the configuration."""
    if ranks.size() == 1 or spreads(experiment):
        return None
    return ranks.share(total_num_envs(experiment), "world.num_envs")


def take_shard(experiment: Experiment, env: EnvBase) -> int:
    """Make worlds this rank's part of the worlds of all ranks; return their seed."""
    if spreads(experiment):
        check_spread(env)
        return experiment.seed
    shard = abilities(env).take_shard
    if ranks.size() > 1 and shard is not None:
        shard(ranks.rank() * env.batch_size[0], ranks.size() * env.batch_size[0])
    return own_seed(env, experiment.seed)


def spreads(experiment: Experiment) -> bool:
    """True if ranks share the agents of every world."""
    return experiment.run.spread_agents and ranks.size() > 1


def check_ranks(experiment: Experiment) -> None:
    """Raise ValueError for settings that several ranks cannot train, or that differ between them."""
    if ranks.size() == 1:
        return
    kind = experiment.algorithm_class
    if experiment.league.enabled:
        raise ValueError(
            f"a league cannot be trained by {ranks.size()} processes, as its members learn from games in each "
            "other's worlds: start one process, or set league.enabled=false."
        )
    if spreads(experiment) and (experiment.has_members or experiment.plays_apart or experiment.governor.enabled):
        raise ValueError(
            "run.spread_agents is for a single agent that learns by ppo or a2c without a governor: leave it out."
        )
    if not kind.joins_ranks and not experiment.plays_apart:
        raise ValueError(
            f"algorithm {kind.name} cannot be trained by {ranks.size()} processes: start one, or use ppo, a2c or "
            "impala."
        )
    if experiment.run.shard:
        _check_shards(experiment)
    _check_alike(experiment)


def check_actors(experiment: Experiment) -> None:
    """Raise ValueError for settings with which the first rank cannot learn from what the others collect."""
    actors, worlds = ranks.size() - 1, total_num_envs(experiment)
    if experiment.governor.enabled:
        raise ValueError(
            "governor.enabled takes back what actors have played with by then: set governor.enabled=false, or start "
            "one process."
        )
    if worlds % actors:
        raise ValueError(
            f"world.num_envs={worlds} does not divide among {actors} actors, as one of {actors + 1} processes learns: "
            f"choose a multiple of {actors}."
        )


def _check_shards(experiment: Experiment) -> None:
    """Raise ValueError for settings that need the whole agent in one process."""
    kind = experiment.algorithm_class
    needs = {
        f"algorithm={kind.name}": not issubclass(kind, OnPolicyActorCritic),
        "population.members": experiment.population.members > 1,
        "algorithm.lag": experiment.plays_apart,
        "governor.enabled": experiment.governor.enabled,
        "evaluation.every": experiment.evaluation.every is not None,
    }
    for name in (name for name, needed in needs.items() if needed):
        raise ValueError(f"run.shard is set but {name} needs the whole agent in one process: leave one of them out.")


def _check_alike(experiment: Experiment) -> None:
    """Raise ValueError naming the first rank that differs from the first one, and in what."""
    facts = {"configuration": experiment.hash(), "version of the code": code_digest()}
    facts |= {f"run.{key}": str(getattr(experiment.run, key)) for key in ("shard", "spread_agents")}
    everyone = ranks.all_gather(facts)
    for number, theirs in enumerate(everyone):
        for name, value in everyone[0].items():
            if theirs[name] != value:
                raise ValueError(
                    f"rank {number} has another {name} ({theirs[name]}) than rank 0 ({value}): start all ranks with "
                    "the same command and the same code."
                )
